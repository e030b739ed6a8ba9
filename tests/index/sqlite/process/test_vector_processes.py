"""Several processes read and write the vectors of one index."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.wait import TIMEOUT_S

SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.index.brute_force_index import assert_same, random_vectors
from tests.index.sqlite.vector_index import VectorIndex
from wikiholt.index.sqlite import vector_codes
from wikiholt.index.sqlite.faiss_codes import make_codes_choice

vector_codes.CODED_MIN_ROWS = 500
vectors = VectorIndex(Path(sys.argv[1]), choose=make_codes_choice(sys.argv[3], 0))
vectors.write_many(random_vectors(1_000))
query = random_vectors(1, seed=99)[0]
vectors.index.search_vectors(query, 5, None)
child = os.fork()
if child == 0:
    for change in range(20):  # enough to replace the file
        vectors.write({f"p{n}.md": random_vectors(10, seed=change + n) for n in range(30)})
    vectors.write({"own.md": query[None]})
    assert vectors.index.search_vectors(query, 1, None).distances[0] < 1e-4
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert vectors.index.search_vectors(query, 1, None).distances[0] < 1e-4
assert vectors.index.check() == []
sys.exit(status)
"""


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_a_forked_child_writes_and_its_parent_follows(tmp_path: Path, kind: str) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(ROOT), kind]
    assert subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode == 0
