"""Codes find the nearest vectors of a large index, and losing or damaging them loses nothing."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.index.brute_force_index import assert_same, measure_recall, normalize, random_vectors
from tests.index.sqlite.vector_index import VectorIndex, flip_byte
from tests.support.small_disk import run_on_small_disk
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.index import FloatArray
from wikiholt.errors import MissingDependency
from wikiholt.index.sqlite import vector_codes
from wikiholt.index.sqlite.faiss_codes import FaissCodes, make_codes_choice
from wikiholt.index.sqlite.vector_codes import QuantizedCodes

KINDS = ["exact", "faiss"]
DIMENSIONS = 96
_TURN = np.linalg.qr(np.random.default_rng(4).normal(size=(DIMENSIONS, DIMENSIONS)))[0]
"""Rotated, all dimensions have the same variance, as in real text."""


def make_vectors(count: int, seed: int = 0) -> FloatArray:
    return normalize(random_vectors(count, seed, DIMENSIONS) @ _TURN)


QUERIES = make_vectors(5, seed=9)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes for indexes of 500 rows and more."""
    monkeypatch.setattr(vector_codes, "CODED_MIN_ROWS", 500)


def make_index(directory: Path, kind: str = "exact", count: int = 3_000) -> VectorIndex:
    """An index with codes in use."""
    if kind == "faiss":
        pytest.importorskip("faiss")
    vectors = VectorIndex(directory, DIMENSIONS, make_codes_choice(kind, 0))
    vectors.write_many(make_vectors(count))
    assert has_codes(vectors)
    return vectors


def has_codes(vectors: VectorIndex) -> bool:
    """Whether searches use codes."""
    with closing(vectors.open()) as index:
        return index._read_vectors().codes is not None


def get_codes_file(vectors: VectorIndex) -> Path:
    (file,) = (file for file in vectors.directory.glob("g000001-*") if file.suffix != ".vectors")
    return file


def measure(vectors: VectorIndex, limit: int, files: list[str] | None = None) -> float:
    page_ids = None if files is None else vectors.get_page_ids(*files)
    found = (
        measure_recall(
            vectors.index.search_vectors(query, limit, page_ids), vectors.find_expected(query, limit, page_ids)
        )
        for query in QUERIES
    )
    return float(np.mean(list(found)))


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_written_by_the_end_of_a_sync_and_find_what_later_rows_do_not_have(tmp_path: Path, kind: str) -> None:
    vectors = make_index(tmp_path, kind)
    assert get_codes_file(vectors).suffix == f".{kind}"
    assert measure(vectors, 20) >= 0.99
    vectors.write({"p3.md": make_vectors(4, seed=70), "new.md": QUERIES[:2]}, deleted=("p7.md", "p8.md"))
    assert measure(vectors, 20) >= 0.99
    assert vectors.index.search_vectors(QUERIES[1], 1, None).distances[0] < 1e-4, "a row without a code is found"
    assert not set(vectors.index.search_vectors(QUERIES[0], 3_000, None).page_ids.tolist()) - set(
        vectors.get_page_ids(*vectors.pages).tolist()
    )
    assert vectors.index.check() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_filter_never_reduces_recall(
    tmp_path: Path, kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.index.sqlite.vectors._MAX_GATHERED_ROWS", 100)
    vectors = make_index(tmp_path, kind)
    vectors.write({"new.md": QUERIES[:2]}, deleted=("p7.md",))
    chosen = list(vectors.pages)
    chosen = chosen[: max(2, int(share * len(chosen)))]
    assert measure(vectors, 20, chosen) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 10, 100, 500])
@pytest.mark.parametrize("turned", [True, False])
def test_codes_find_ninety_nine_of_a_hundred(tmp_path: Path, limit: int, turned: bool) -> None:
    """Also if a few dimensions have most of the variance; codes then carry too little, and are not used."""
    turn = _TURN if turned else np.eye(DIMENSIONS)
    vectors = VectorIndex(tmp_path, DIMENSIONS)
    vectors.write_many(normalize(random_vectors(20_000, dimensions=DIMENSIONS) @ turn))
    assert has_codes(vectors) == turned
    found = [
        measure_recall(vectors.index.search_vectors(query, limit, None), vectors.find_expected(query, limit))
        for query in normalize(random_vectors(5, seed=3, dimensions=DIMENSIONS) @ turn)
    ]
    assert np.mean(found) >= 0.99


@pytest.mark.parametrize("dimensions", [1, 24, 64, 100, 600])
def test_codes_are_made_of_vectors_of_any_length(tmp_path: Path, dimensions: int) -> None:
    vectors = VectorIndex(tmp_path, dimensions)
    vectors.write_many(random_vectors(900, dimensions=dimensions))
    query = random_vectors(1, seed=5, dimensions=dimensions)[0]
    found = vectors.index.search_vectors(query, 20, None)
    assert measure_recall(found, vectors.find_expected(query, 20)) >= 0.95


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "of other vectors", "a directory"])
def test_without_codes_every_row_is_compared_and_the_next_sync_makes_them_again(
    tmp_path: Path, kind: str, damage: str
) -> None:
    vectors = make_index(tmp_path, kind)
    file = get_codes_file(vectors)
    if damage == "a directory":
        file.unlink()
        file.mkdir()
    elif damage == "lost":
        file.unlink()
    elif damage == "of other vectors":
        other = tmp_path / "other"
        other.mkdir()
        get_codes_file(make_index(other, kind)).replace(file)
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if damage == "cut" else b"")
    vectors.index = vectors.open()
    for query in QUERIES:
        assert_same(vectors.index.search_vectors(query, 20, None), vectors.find_expected(query, 20))
    vectors.write({}, revision="again")
    assert get_codes_file(vectors).is_file()
    assert has_codes(vectors)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_truncated_while_they_are_in_use_end_no_process(tmp_path: Path, kind: str) -> None:
    vectors = make_index(tmp_path, kind)
    script = (
        "import sys, numpy as np; from pathlib import Path; from wikiholt.index.sqlite import vector_codes;"
        "from wikiholt.index.sqlite.faiss_codes import make_codes_choice;"
        "from wikiholt.index.sqlite.index import SqliteIndex; vector_codes.CODED_MIN_ROWS = 500;"
        "index = SqliteIndex(Path(sys.argv[1]), choose_codes=make_codes_choice(sys.argv[3], 0));"
        f"query = np.eye({DIMENSIONS}, dtype=np.float32)[0]; index.search_vectors(query, 20, None);"
        "Path(sys.argv[2]).open('r+b').truncate(5000);"
        "print(*index.search_vectors(query, 20, None).chunk_ids)"
    )
    command = [sys.executable, "-c", script, str(vectors.file), str(get_codes_file(vectors)), kind]
    searched = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    expected = vectors.find_expected(np.eye(DIMENSIONS, dtype=np.float32)[0], 20).chunk_ids
    found = list(map(int, searched.stdout.split()))
    assert found == expected.tolist() or (kind == "faiss" and len(found) == 20)


def test_a_check_removes_codes_with_a_flipped_bit(tmp_path: Path) -> None:
    vectors = make_index(tmp_path)
    assert vectors.index.check() == []
    file = get_codes_file(vectors)
    flip_byte(file, file.stat().st_size - 5_000)
    assert vectors.index.check() == []
    assert not file.exists()


def test_codes_are_made_again_when_a_tenth_of_the_rows_has_none(tmp_path: Path) -> None:
    vectors = make_index(tmp_path)
    first = get_codes_file(vectors).stat()
    vectors.write({"one.md": make_vectors(10, seed=1)}, revision="one")
    assert get_codes_file(vectors).stat().st_ino == first.st_ino
    vectors.write({f"more{n}.md": make_vectors(10, seed=n) for n in range(60)})
    vectors.write({}, revision="more")
    assert get_codes_file(vectors).stat().st_size > first.st_size
    assert measure(vectors, 20) >= 0.99


def test_codes_that_cannot_be_written_only_cost_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "g000001-1.exact.writing").mkdir()
    vectors = VectorIndex(tmp_path, DIMENSIONS)
    vectors.write_many(make_vectors(3_000))
    assert "could not be written" in caplog.text
    assert not has_codes(vectors)
    for query in QUERIES:
        assert_same(vectors.index.search_vectors(query, 20, None), vectors.find_expected(query, 20))


FULL_DISK_SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.index.sqlite.test_vector_codes import DIMENSIONS, make_vectors
from tests.index.sqlite.vector_index import VectorIndex
from wikiholt.index.sqlite import vector_codes

disk = Path(sys.argv[1])
directory = disk / "wiki"
directory.mkdir()
vectors = VectorIndex(directory, DIMENSIONS)
vectors.write_many(make_vectors(9_000))
status = os.statvfs(disk)
(disk / "other").write_bytes(bytes(status.f_bavail * status.f_bsize - 400_000))
vector_codes.CODED_MIN_ROWS = 500
vectors.index.update_codes()
assert not list(directory.glob("*.exact*"))
"""


def test_a_full_disk_ends_no_process_that_writes_codes(tmp_path: Path) -> None:
    assert "could not be written" in run_on_small_disk(tmp_path, FULL_DISK_SCRIPT)


# ── the choice ───────────────────────────────────────────────────────────────────────────────────


def test_auto_is_exact_up_to_the_crossover_and_faiss_beyond() -> None:
    pytest.importorskip("faiss")
    assert make_codes_choice("auto", 1_000)(1_000) is QuantizedCodes
    assert make_codes_choice("auto", 1_000)(1_001) is FaissCodes
    assert make_codes_choice("exact", 1_000)(10**9) is QuantizedCodes
    assert make_codes_choice("faiss", 1_000)(1) is FaissCodes


def test_auto_without_faiss_stays_exact_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with caplog.at_level("INFO"):
        assert make_codes_choice("auto", 1_000)(2_000) is QuantizedCodes
    assert "the extra faiss" in caplog.text


def test_faiss_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_without_faiss(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", import_without_faiss)
    with pytest.raises(MissingDependency) as caught:
        make_codes_choice("faiss", 0)
    assert "the extra faiss" in caught.value.hint
