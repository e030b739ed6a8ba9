"""Processes killed while they log searches, and a full disk: committed records are kept."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.fork_server import ForkedPopen
from tests.support.paths import ROOT, SOURCES
from tests.support.wait import TIMEOUT_S
from tests.wikis.query_log.query_log_fixtures import RETENTION, QueryLogFixture, make_query_record
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

_WRITER_SCRIPT = """
import os, sys
from pathlib import Path
from tests.wikis.query_log.query_log_fixtures import make_query_record
from wikiholt.domain.search import QueryRetention
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

log = SqliteQueryLog(Path(sys.argv[1]))
for line in sys.stdin:  # the number to begin with; a child is made that writes until it is killed
    if child := os.fork():
        os.waitpid(child, 0)
        print("killed", flush=True)
        continue
    print(os.getpid(), flush=True)
    number = int(line)
    while True:
        log.write([make_query_record(f"{number} {part}") for part in range(5)], QueryRetention(30, 400))
        os.write(1, f"{number}\\n".encode())  # one system call, so that a kill leaves no part of a line
        number += 1
"""
_FULL_DISK_SCRIPT = """
import resource, signal, sys
from pathlib import Path
from tests.wikis.query_log.query_log_fixtures import QueryLogFixture
from wikiholt.domain.search import SearchInterface
from wikiholt.search.request import SearchRequest

ground = QueryLogFixture.__new__(QueryLogFixture)
ground.data, ground.settings = Path(sys.argv[1]), {"queries.log": True}
ground.service = ground.open_service()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file grows by a byte from now on
print(len(ground.wiki.search(SearchRequest("heron"), interface=SearchInterface.HTTP).hits))
ground.service.close()
print(len(ground.wiki.search(SearchRequest("heron")).hits))
"""


def start_script(code: str, place: Path) -> "subprocess.Popen[str]":
    paths = f"import sys; sys.path += {[str(SOURCES), str(ROOT)]!r}\n"
    program = [sys.executable, "-c", paths + code, str(place)]
    return ForkedPopen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_and_kill(parent: "subprocess.Popen[str]", first: int, chance: random.Random) -> list[int]:
    """Let a child write batches from this number on, kill it, and return those it reported as committed."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{first}\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    known = [int(parent.stdout.readline()) for _ in range(chance.randrange(3))]
    time.sleep(chance.uniform(0.0, 0.02))  # the time of the kill is random
    os.kill(child, signal.SIGKILL)
    return known + [int(line) for line in iter(parent.stdout.readline, "killed\n")]


def read_batches(log: SqliteQueryLog) -> Counter[int]:
    found = log.read(0)
    assert found is None or found.damaged_at is None
    return Counter(int(record.query.split()[0]) for record in found.records) if found else Counter()


def test_committed_records_are_kept_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    chance = random.Random("killed while it writes down searches")
    log, newest = SqliteQueryLog(tmp_path), -1
    with start_script(_WRITER_SCRIPT, tmp_path) as parent:
        for _ in range(20):
            committed = run_and_kill(parent, newest + 1, chance)
            stored = read_batches(log)
            # Each batch is complete or missing, and every batch reported as committed is there.
            assert set(stored.values()) <= {5}
            assert max(stored, default=-1) >= max(committed, default=newest)
            newest = max(stored, default=-1)
            assert sorted(stored) == list(range(max(0, newest - 79), newest + 1))
        parent.communicate(timeout=TIMEOUT_S)
    log.write([make_query_record("1000000 afterwards")], RETENTION)
    assert max(read_batches(log)) == 1_000_000
    assert newest > 0


def test_a_full_disk_stops_the_log_but_no_search(tmp_path: Path) -> None:
    fixture = QueryLogFixture(tmp_path)
    fixture.search("before")
    fixture.service.close()
    with start_script(_FULL_DISK_SCRIPT, fixture.data) as process:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out.split()) == (0, ["3", "3"])
    assert fixture.read_queries() == ["before"]
