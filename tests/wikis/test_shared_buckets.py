"""Token buckets in a file count the requests to all processes together."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_disk import run_on_small_disk
from wikiholt.wikis.rate_limit import (
    _ROWS,
    BucketSize,
    BucketTable,
    RateLimiter,
    TooManyRequests,
    create_table,
)

SIZE = BucketSize(60)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("buckets") / "table"
    create_table(file)
    return file


@pytest.fixture
def table(file: Path) -> Iterator[BucketTable]:
    with closing(BucketTable(file)) as opened:
        yield opened


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from((0.0, 0.3, 20.0))), max_size=60))
def test_two_processes_count_together_and_tokens_are_refilled(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, float]]
) -> None:
    file = tmp_path_factory.mktemp("buckets") / "table"
    create_table(file)
    clock = Clock()
    levels: dict[str, float] = {}
    with closing(BucketTable(file, clock)) as one, closing(BucketTable(file, clock)) as other:
        for number, (name, takes, seconds) in enumerate(steps):
            clock.now += seconds
            levels = {name: min(SIZE.capacity, level + seconds * SIZE.per_second) for name, level in levels.items()}
            level = levels.get(name, SIZE.capacity)
            shared = (one, other)[number % 2].open_buckets("key", SIZE)
            got = shared.take(name) if takes else shared.consume(name)
            assert got == pytest.approx(level - 1 if takes else max(0.0, level - 1))
            levels[name] = level if takes and level < 1 else max(0.0, level - 1)


def test_kinds_do_not_share_buckets(table: BucketTable) -> None:
    keys, addresses = table.open_buckets("key", SIZE), table.open_buckets("address", SIZE)
    keys.take("one")
    assert addresses.take("one") == SIZE.capacity - 1


def test_two_limiters_count_together(table: BucketTable) -> None:
    limiters = [RateLimiter(1, 1, table=table) for _ in range(2)]
    for number in range(int(SIZE.capacity)):
        limiters[number % 2].check("the-key", "")
    for limiter in limiters:
        with pytest.raises(TooManyRequests):
            limiter.check("the-key", "")


def test_a_full_table_forgets_the_buckets_that_were_not_used_for_the_longest_time(table: BucketTable) -> None:
    buckets = table.open_buckets("key", BucketSize(1))
    for _ in range(5):
        buckets.take("used")
    for number in range(2 * _ROWS):
        buckets.take(f"other {number}")
        if number % 100 == 0:
            buckets.consume("used")
    assert buckets.take("used") < 1


def test_damaged_places_do_no_harm(table: BucketTable) -> None:
    buckets = table.open_buckets("damaged", SIZE)
    buckets.take("name")
    start = table._map.find(table.digest_name("damaged", "name"))
    table._map[start + 16 : start + 32] = b"\xff" * 16
    assert -1 <= buckets.take("name") <= SIZE.capacity


_KILLED = """
import os, signal, sys
from pathlib import Path
from wikiholt.wikis.rate_limit import BucketSize
from wikiholt.wikis.rate_limit import BucketTable
def die(level):
    os.kill(os.getpid(), signal.SIGKILL)
table = BucketTable(Path(sys.argv[1]))
table.update_level(table.digest_name("key", "killed"), BucketSize(60), die)
"""


def test_a_process_that_dies_with_the_table_locked_does_not_stop_the_others(file: Path, table: BucketTable) -> None:
    assert subprocess.run([sys.executable, "-c", _KILLED, str(file)], check=False).returncode == -9
    assert table.open_buckets("key", SIZE).take("killed") == SIZE.capacity - 1


FULL_DISK_SCRIPT = """
import os, sys
from pathlib import Path
from wikiholt.wikis.rate_limit import BucketSize, BucketTable, create_table

disk = Path(sys.argv[1])
create_table(disk / "table")
status = os.statvfs(disk)
(disk / "other").write_bytes(bytes(status.f_bavail * status.f_bsize))
buckets = BucketTable(disk / "table").open_buckets("address", BucketSize(60))
for number in range(1000):
    buckets.take(f"192.0.2.{number}")
"""


def test_a_full_disk_ends_no_process_that_counts_requests(tmp_path: Path) -> None:
    assert run_on_small_disk(tmp_path, FULL_DISK_SCRIPT) == ""
