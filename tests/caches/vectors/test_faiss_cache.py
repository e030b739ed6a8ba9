"""The FAISS cache gives the answers of the exact cache; without FAISS the error says what to install."""

from pathlib import Path

import numpy as np
import pytest
from wikiholt.caches.vectors import factory
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.factory import FaissEngine, FaissVectorCache, create_vector_cache, resolve_kind

from tests.caches.brute_force_index import BruteForceIndex, measure_recall, random_vectors
from wikiholt.errors import InvalidSetting, MissingDependency

ROWS = 30_000


def import_without_faiss(name: str) -> None:
    raise ImportError(name)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[BruteForceIndex, FaissVectorCache]:
    pytest.importorskip("faiss")
    reference = BruteForceIndex(ROWS, dimensions=96)
    cache = FaissVectorCache(reference.as_index(), tmp_path_factory.mktemp("faiss"), background=False)
    cache.refresh()
    reference.remove(list(range(1, 1_000)))
    reference.add(random_vectors(300, seed=2, dimensions=96), [5_000] * 300)
    cache.refresh()
    return reference, cache


@pytest.mark.slow
@pytest.mark.parametrize("limit", [10, 100, 500])
@pytest.mark.parametrize("share", [None, 0.02, 0.3, 0.9])
def test_it_finds_ninety_nine_of_a_hundred_under_any_filter(
    large: tuple[BruteForceIndex, FaissVectorCache], limit: int, share: float | None
) -> None:
    reference, cache = large
    chosen = np.random.default_rng(1).random(3_000) < (share or 0)
    pages = None if share is None else 1 + np.flatnonzero(chosen)
    found = [
        measure_recall(cache.search(query, limit, pages), reference.search_vectors(query, limit, pages))
        for query in random_vectors(4, seed=9, dimensions=96)
    ]
    assert np.mean(found) >= 0.99


def test_a_file_is_opened_again_without_training(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    reference = BruteForceIndex(2_000)
    engine = FaissEngine(scan_max_rows=0)
    FaissVectorCache(reference.as_index(), tmp_path, background=False, engine=engine).refresh()
    again = FaissVectorCache(reference.as_index(), tmp_path, background=False, engine=engine)
    again.refresh()
    assert again.version == reference.get_version()
    assert reference.snapshots == 1


def test_without_faiss_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", import_without_faiss)
    with pytest.raises(MissingDependency) as caught:
        FaissVectorCache(BruteForceIndex(3).as_index(), tmp_path)
    assert "the extra faiss" in caught.value.hint


def test_auto_is_exact_up_to_the_crossover_and_faiss_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "is_faiss_installed", lambda: True)
    assert resolve_kind("auto", 1_000, 1_000) == ("exact", "")
    assert resolve_kind("auto", 1_001, 1_000) == ("faiss", "")
    assert resolve_kind("exact", 10**9, 1_000) == ("exact", "")
    assert resolve_kind("faiss", 1, 1_000) == ("faiss", "")


def test_auto_without_faiss_stays_exact_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "is_faiss_installed", lambda: False)
    kind, note = resolve_kind("auto", 2_000, 1_000)
    assert kind == "exact"
    assert "the extra faiss" in note


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="hnsw"):
        resolve_kind("hnsw", 1, 1)


def test_a_wiki_gets_the_cache_of_its_size(tmp_path: Path) -> None:
    cache, note = create_vector_cache("auto", BruteForceIndex(20).as_index(), tmp_path)
    assert isinstance(cache, ExactVectorCache)
    assert note == ""
