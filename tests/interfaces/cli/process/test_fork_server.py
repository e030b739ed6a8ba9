"""Programs of the fork server that the tests use: each is a process of its own, like one of a new interpreter."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import ForkedPopen, run_forked
from tests.support.wait import TIMEOUT_S

REPORT = """
import json, os, sys
report = [sys.argv, os.getcwd(), os.environ.get("COLOUR"), sys.stdin.read(), os.getppid(), __name__, sys.path[0]]
print(json.dumps(report))
print("an error", file=sys.stderr)
print("tests" in sys.modules, "wikiholt.interfaces.http.app" in sys.modules)
raise SystemExit(7)
"""


def test_a_program_has_its_own_arguments_environment_streams_and_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", REPORT, "one", "two"]
    environment = {**os.environ, "COLOUR": "green"}
    done = run_forked(command, env=environment, cwd=tmp_path, input="typed\n", text=True, check=False)
    first, second = done.stdout.splitlines()
    assert json.loads(first) == [
        ["-c", "one", "two"],
        str(tmp_path),
        "green",
        "typed\n",
        os.getpid(),
        "__main__",
        "",
    ]
    assert (second, done.stderr, done.returncode) == ("False True", "an error\n", 7)
    with pytest.raises(subprocess.CalledProcessError):
        run_forked(command, input="", text=True, check=True)


def test_a_program_is_ended_by_signals() -> None:
    wait = "import sys, time; print('ready', flush=True); time.sleep(600)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with ForkedPopen([sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.wait() == -number


def test_an_environment_that_changes_the_interpreter_starts_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['numpy'] = None\n")
    command = [sys.executable, "-c", "import sys; print(sys.modules.get('numpy', 'absent'), sys.stdout.encoding)"]
    for changed, expected in (({"PYTHONPATH": str(tmp_path)}, "None"), ({"PYTHONIOENCODING": "latin-1"}, "absent")):
        done = run_forked(command, env=os.environ | changed, text=True, check=True)
        assert done.stdout.split()[0] == expected


def test_children_of_a_program_are_forks_too() -> None:
    child = (
        "import os, sys; print(os.getppid(), 'wikiholt.interfaces.http.app' in sys.modules, sys.argv[1:], flush=True)"
    )
    parent = f"""
import os, subprocess, sys
print(os.getpid(), flush=True)
for number in (3, 4):
    done = subprocess.run([sys.executable, "-c", {child + "; raise SystemExit(int(sys.argv[1]))"!r}, str(number)])
    print(done.returncode, flush=True)
print(subprocess.run(["sh", "-c", "exit 5"]).returncode)
"""
    with ForkedPopen([sys.executable, "-c", parent], forks_children=True, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    pid = process.pid
    assert output.splitlines() == [str(pid), f"{pid} True ['3']", "3", f"{pid} True ['4']", "4", "5"]
    assert process.returncode == 0
