"""Several processes over the files of one vector cache."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.caches.brute_force_index import BruteForceIndex, assert_same, random_vectors
from tests.caches.vectors.cache_kinds import QUERY, ROWS, exact
from tests.support.fork_server import ForkedPopen
from tests.support.paths import ROOT
from tests.support.wait import TIMEOUT_S

BUILDER_SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.caches.brute_force_index import BruteForceIndex, assert_same, random_vectors
from wikiholt.caches.vectors.exact import ExactVectorCache

truth = BruteForceIndex(3_000)
query = random_vectors(1, seed=99)[0]
for round_ in range(6):
    cache = ExactVectorCache(truth.as_index(), Path(sys.argv[1]), background=False)
    cache.refresh()
    assert_same(cache.search(query, 30, None), truth.search_vectors(query, 30))
    truth.add(random_vectors(2_100, seed=round_ + 1), [900 + round_] * 2_100)
    cache.refresh()
    assert_same(cache.search(query, 30, None), truth.search_vectors(query, 30))
"""


def test_processes_that_build_at_the_same_time_do_not_conflict(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILDER_SCRIPT, str(tmp_path), str(ROOT)]
    builders = [ForkedPopen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for builder in builders:
        _, errors = builder.communicate(timeout=TIMEOUT_S)
        assert builder.returncode == 0, errors.decode()
    assert not list(tmp_path.glob("*.writing"))


def test_a_process_far_behind_takes_the_newer_file_of_another(tmp_path: Path) -> None:
    reference = BruteForceIndex(ROWS)
    behind = exact(reference, tmp_path)
    behind.refresh()
    reference.add(random_vectors(2_500, seed=3), [60] * 2_500)
    for _ in range(250):
        reference.log.append(((), ()))
    elsewhere = tmp_path / "elsewhere" / tmp_path.name  # a directory is named for the wiki that owns its files
    elsewhere.mkdir(parents=True)
    exact(reference, elsewhere).refresh()
    only = next(elsewhere.iterdir())
    only.rename(tmp_path / only.name)
    reference.horizon = reference.get_version()
    behind.refresh()
    assert reference.snapshots == 2
    assert_same(behind.search(QUERY, 30, None), reference.search_vectors(QUERY, 30))


FORK_SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.caches.brute_force_index import BruteForceIndex, random_vectors
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.factory import FaissEngine, FaissVectorCache

truth = BruteForceIndex(3_000)
query = random_vectors(1, seed=99)[0]
if sys.argv[3] == "faiss":
    cache = FaissVectorCache(
        truth.as_index(), Path(sys.argv[1]), background=False, engine=FaissEngine(scan_max_rows=0)
    )
else:
    cache = ExactVectorCache(truth.as_index(), Path(sys.argv[1]), background=False)
cache.refresh()
cache.search(query, 5, None)
with cache._lock:
    child = os.fork()
    if child == 0:
        truth.add(query[None], [900])
        cache.refresh()
        os._exit(0 if cache.search(query, 1, None).chunk_ids.tolist() == [3_001] else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_a_forked_child_searches_and_refreshes(tmp_path: Path, kind: str) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    command = [sys.executable, "-c", FORK_SCRIPT, str(tmp_path), str(ROOT), kind]
    assert subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode == 0
