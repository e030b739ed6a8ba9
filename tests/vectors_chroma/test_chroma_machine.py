"""Whatever happens to index, cache and child, in whatever order: the answer is that of the truth."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
from chroma_ground import ONE, until
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from vector_truth import Truth, assert_same, random_vectors

from wikiholt.vectors.chroma import Chroma, ChromaCache, Place

QUERIES = random_vectors(8, seed=77)


class ChromaFollowsTruth(RuleBasedStateMachine):
    """Rows come and go, the past is forgotten, caches are reopened, the child is killed."""

    @initialize(rows=st.integers(0, 60))
    def begin(self, rows: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.truth = Truth(rows, per_page=3)
        place = Place(path=self.folder / "chroma", timeout=60.0, heartbeat=30.0, patience=60.0)
        self.engine = Chroma(place, self.folder / "owner", lambda: [ONE])
        self.seed = 1
        self.cache = self.make()

    def make(self) -> ChromaCache:
        return self.engine.cache(self.truth.as_index(), self.folder, ONE, "one")

    @rule(count=st.integers(1, 15), page=st.integers(1, 30))
    def add(self, count: int, page: int) -> None:
        self.seed += 1
        self.truth.add(random_vectors(count, self.seed), [page] * count)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.truth.rows:
            self.truth.drop(data.draw(st.lists(st.sampled_from(sorted(self.truth.rows)), unique=True, max_size=20)))

    @rule()
    def forget_the_past(self) -> None:
        self.truth.horizon = self.truth.version()

    @rule()
    def reopen(self) -> None:
        self.cache.close()
        self.cache = self.make()

    @rule()
    def kill_the_child(self) -> None:
        process = self.engine._caretaker.host._process  # type: ignore[attr-defined]
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)

    @rule()
    def let_it_settle(self) -> None:
        self.cache.refresh()
        until(lambda: self.cache.settle(1) and not self._degraded(), "Chroma helps")

    def _degraded(self) -> bool:
        self.cache.refresh()
        return self.cache.search(QUERIES[0], 5, None).degraded

    @rule(query=st.sampled_from(range(8)), limit=st.integers(1, 100), pages=st.none() | st.sets(st.integers(1, 40)))
    def search(self, query: int, limit: int, pages: set[int] | None) -> None:
        self.cache.refresh()
        allowed = None if pages is None else np.array(sorted(pages), np.int64)
        expected = self.truth.nearest(QUERIES[query], limit, allowed)
        assert_same(self.cache.search(QUERIES[query], limit, allowed), expected)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.cache.close()
            self.engine.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def test_the_cache_follows_the_truth() -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    case = ChromaFollowsTruth.TestCase()
    case.settings = settings(
        max_examples=5, stateful_step_count=15, deadline=None, suppress_health_check=checks, derandomize=True
    )
    case.runTest()
