"""A process that is killed while it exports leaves the earlier export or the new one, complete."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.support.tiers import choose
from wikiholt.wikis.export.directory import MARKER, SCRIPT, get_parts_name, write_export

ROUNDS = choose(60, 8)
FILES = 60
PROGRAM = """
import sys
from pathlib import Path
from wikiholt.wikis.export.directory import write_export
print("ready", flush=True)
number = int(sys.argv[2])
while True:
    name = f"{number:016d}"
    parts = {f"{n}.js": f"{name} {n}".encode() * 200 for n in range(60)}
    write_export(Path(sys.argv[1]), name, parts, {"wikiholt.js": name.encode(), "index.html": b"p"})
    number += 1
"""


def read_number(place: Path) -> int:
    """The number of the export that the script names, whose data must be complete."""
    name = (place / SCRIPT).read_text()
    parts = place / get_parts_name(name)
    for n in range(FILES):
        assert (parts / f"{n}.js").read_bytes() == f"{name} {n}".encode() * 200
    return int(name)


def test_a_kill_at_any_moment_leaves_a_complete_export(tmp_path: Path) -> None:
    place, random, number = tmp_path / "site", Random(7), -1
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", PROGRAM, str(place), str(number + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.01 + random.random() / 10)
            process.send_signal(signal.SIGKILL)
        if (place / SCRIPT).exists():
            found = read_number(place)
            assert found >= number
            number = found
    assert number > ROUNDS
    write_export(place, "f" * 16, {"0.js": b"x"}, {SCRIPT: b"last"})
    assert sorted(file.name for file in place.iterdir()) == sorted(
        [MARKER, SCRIPT, "index.html", get_parts_name("f" * 16)]
    )
