"""Any operations on index, cache and file in any order: answers equal those of the reference index."""

import shutil

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.caches.cache_state_machine import QUERIES, VectorCacheMachine, run_cache_machine
from tests.support.tiers import limit_examples
from wikiholt.caches.cache_file import CacheBroken
from wikiholt.caches.vectors import vector_cache as derived_module
from wikiholt.caches.vectors.exact import ExactVectorCache, QuantizedEngine
from wikiholt.caches.vectors.factory import FaissEngine, FaissVectorCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache


class CacheFollowsReference(VectorCacheMachine):
    """Adds to the operations of any cache: files are damaged, and merges happen after a few changes."""

    cache: FileVectorCache

    def make_cache(self) -> FileVectorCache:
        return ExactVectorCache(self.index.as_index(), self.folder, background=False)

    @precondition(lambda self: self.cache.version is not None)
    @rule(offset=st.integers(0, 1 << 30), length=st.integers(1, 5_000), value=st.integers(0, 255))
    def overwrite_part_of_the_file(self, offset: int, length: int, value: int) -> None:
        for path in self.folder.glob("vectors-*"):
            with path.open("r+b") as file:
                file.seek(offset % max(1, path.stat().st_size))
                file.write(bytes([value]) * length)

    @precondition(lambda self: self.cache.version is not None)
    @rule(share=st.floats(0, 0.99))
    def cut_the_file_short(self, share: float) -> None:
        for path in self.folder.glob("vectors-*"):
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * share))

    @rule()
    def delete_the_files(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule()
    def search_without_refreshing(self) -> None:
        """An older version is allowed, a damaged file is not: the answer has rows of some version, or is an error."""
        if self.cache.version is not None:
            try:
                found = self.cache.search(QUERIES[0], 10, None)
            except CacheBroken:
                return
            assert np.isfinite(found.distances).all()
            assert (np.diff(found.distances) >= 0).all()

    @invariant()
    def no_partial_files_remain(self) -> None:
        if hasattr(self, "folder"):
            assert not list(self.folder.glob("*.writing"))


class SketchFollowsReference(CacheFollowsReference):
    def make_cache(self) -> FileVectorCache:
        engine = QuantizedEngine(scan_max_rows=10)
        return ExactVectorCache(self.index.as_index(), self.folder, background=False, engine=engine)


class FaissFollowsReference(CacheFollowsReference):
    def make_cache(self) -> FileVectorCache:
        engine = FaissEngine(scan_max_rows=40)
        return FaissVectorCache(self.index.as_index(), self.folder, background=False, engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "examples"), [(CacheFollowsReference, 100), (SketchFollowsReference, 100), (FaissFollowsReference, 40)]
)
def test_the_cache_agrees_with_the_reference_index(
    machine: type[CacheFollowsReference], examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine is FaissFollowsReference:
        pytest.importorskip("faiss")
    monkeypatch.setattr(derived_module, "MERGE_MIN_ROWS", 25)
    monkeypatch.setattr(derived_module, "REOPEN_AFTER_VERSIONS", 5)
    count = limit_examples(examples)
    assert run_cache_machine(machine, count, steps=25) >= 3 * count, "answers are compared in every example"
