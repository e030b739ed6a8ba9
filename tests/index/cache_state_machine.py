"""A state machine for vector caches: any operations in any order must give the answers of the reference index."""

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.index.brute_force_index import BruteForceIndex, assert_same, random_vectors
from wikiholt.domain.protocols import VectorCache

QUERIES = random_vectors(8, seed=77)


class ClosableCache(VectorCache, Protocol):
    """A cache that can be reopened."""

    def close(self) -> None: ...


class VectorCacheMachine(RuleBasedStateMachine):
    """Rows are added and removed, the change log is truncated, caches are reopened; searches are compared."""

    compared: ClassVar[int] = 0
    """Number of answers compared, over all examples of the class."""

    cache: ClosableCache

    def prepare(self) -> None:
        """Set up what caches need besides index and directory."""

    def make_cache(self) -> ClosableCache:
        raise NotImplementedError

    @initialize(rows=st.integers(0, 60))
    def create_index(self, rows: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.index = BruteForceIndex(rows, per_page=3)
        self.seed = 1
        self.prepare()
        self.cache = self.make_cache()

    @rule(count=st.integers(1, 15), page=st.integers(1, 30))
    def add(self, count: int, page: int) -> None:
        self.seed += 1
        self.index.add(random_vectors(count, self.seed), [page] * count)

    @rule(data=st.data())
    def add_a_row_twice(self, data: st.DataObject) -> None:
        if self.index.rows:
            chosen = data.draw(st.sampled_from(sorted(self.index.rows)))
            self.index.add(self.index.rows[chosen][1][None], [data.draw(st.integers(1, 30))])

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.index.rows:
            self.index.remove(data.draw(st.lists(st.sampled_from(sorted(self.index.rows)), unique=True, max_size=20)))

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        if self.index.rows:
            self.seed += 1
            self.index.replace(data.draw(st.sampled_from(sorted(self.index.rows))), random_vectors(1, self.seed)[0])

    @rule()
    def reopen(self) -> None:
        self.cache.close()
        self.cache = self.make_cache()

    @rule(query=st.sampled_from(range(8)), limit=st.integers(1, 100), pages=st.none() | st.sets(st.integers(1, 40)))
    def search(self, query: int, limit: int, pages: set[int] | None) -> None:
        self.cache.refresh()
        allowed = None if pages is None else np.array(sorted(pages), np.int64)
        expected = self.index.search_vectors(QUERIES[query], limit, allowed)
        assert_same(self.cache.search(QUERIES[query], limit, allowed), expected)
        type(self).compared += 1

    def release_cache(self) -> None:
        """Release the resources of `prepare`."""

    def teardown(self) -> None:
        """Compare once more, because few examples end with a search."""
        if not hasattr(self, "cache"):
            return
        try:
            for limit, pages in ((10, None), (100, None), (10, set(range(1, 40, 2)))):
                self.search(limit % 8, limit, pages)
        finally:
            self.cache.close()
            self.release_cache()
            shutil.rmtree(self.folder, ignore_errors=True)


def run_cache_machine(machine: type[VectorCacheMachine], examples: int, steps: int) -> int:
    """Run `examples` examples of at most `steps` steps. Returns the number of compared answers."""
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    case = machine.TestCase()
    case.settings = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
    )
    machine.compared = 0
    case.runTest()
    return machine.compared
