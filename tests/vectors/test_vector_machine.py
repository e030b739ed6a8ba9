"""Whatever happens to index, cache and file, in whatever order: the answer is that of the truth."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from vector_truth import Truth, assert_same, random_vectors

from wikiholt.vectors import CacheBroken, ExactCache, FaissCache, FaissEngine, SketchEngine
from wikiholt.vectors import derived as derived_module
from wikiholt.vectors.derived import DerivedCache

QUERIES = random_vectors(8, seed=77)


class CacheFollowsTruth(RuleBasedStateMachine):
    """Rows come and go, files are damaged, caches reopened; merges happen after a few changes already."""

    def make(self) -> DerivedCache:
        return ExactCache(self.truth.as_index(), self.folder, background=False)

    @initialize(rows=st.integers(0, 60))
    def begin(self, rows: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.truth = Truth(rows, per_page=3)
        self.seed = 1
        self.cache = self.make()

    @rule(count=st.integers(1, 15), page=st.integers(1, 30))
    def add(self, count: int, page: int) -> None:
        self.seed += 1
        self.truth.add(random_vectors(count, self.seed), [page] * count)

    @rule(data=st.data())
    def add_a_row_twice(self, data: st.DataObject) -> None:
        if self.truth.rows:
            chosen = data.draw(st.sampled_from(sorted(self.truth.rows)))
            self.truth.add(self.truth.rows[chosen][1][None], [data.draw(st.integers(1, 30))])

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.truth.rows:
            self.truth.drop(data.draw(st.lists(st.sampled_from(sorted(self.truth.rows)), unique=True, max_size=20)))

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        if self.truth.rows:
            self.seed += 1
            self.truth.replace(data.draw(st.sampled_from(sorted(self.truth.rows))), random_vectors(1, self.seed)[0])

    @rule()
    def forget_the_past(self) -> None:
        self.truth.horizon = self.truth.version()

    @rule()
    def reopen(self) -> None:
        self.cache.close()
        self.cache = self.make()

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

    @rule(query=st.sampled_from(range(8)), limit=st.integers(1, 100), pages=st.none() | st.sets(st.integers(1, 40)))
    def search(self, query: int, limit: int, pages: set[int] | None) -> None:
        self.cache.refresh()
        allowed = None if pages is None else np.array(sorted(pages), np.int64)
        expected = self.truth.nearest(QUERIES[query], limit, allowed)
        assert_same(self.cache.search(QUERIES[query], limit, allowed), expected)

    @rule()
    def search_without_refreshing(self) -> None:
        """An older version is fine, a damaged file is not: it answers with rows that were once true, or refuses."""
        if self.cache.version is not None:
            try:
                found = self.cache.search(QUERIES[0], 10, None)
            except CacheBroken:
                return
            assert np.isfinite(found.distances).all()
            assert (np.diff(found.distances) >= 0).all()

    @invariant()
    def nothing_half_written_lies_around(self) -> None:
        if hasattr(self, "folder"):
            assert not list(self.folder.glob("*.writing"))

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class SketchFollowsTruth(CacheFollowsTruth):
    def make(self) -> DerivedCache:
        engine = SketchEngine(scan_below=10)
        return ExactCache(self.truth.as_index(), self.folder, background=False, engine=engine)


class FaissFollowsTruth(CacheFollowsTruth):
    def make(self) -> DerivedCache:
        engine = FaissEngine(scan_below=40)
        return FaissCache(self.truth.as_index(), self.folder, background=False, engine=engine)


@pytest.mark.parametrize(
    ("machine", "examples"), [(CacheFollowsTruth, 60), (SketchFollowsTruth, 60), (FaissFollowsTruth, 15)]
)
def test_the_cache_follows_the_truth(
    machine: type[CacheFollowsTruth], examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine is FaissFollowsTruth:
        pytest.importorskip("faiss")
    monkeypatch.setattr(derived_module, "MERGE_AT_LEAST", 25)
    monkeypatch.setattr(derived_module, "FAR_BEHIND", 5)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    case = machine.TestCase()
    case.settings = settings(max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=checks)
    case.runTest()
