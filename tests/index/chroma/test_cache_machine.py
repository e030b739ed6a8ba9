"""Any operations on index, cache and child process in any order: answers equal those of the reference index."""

import os
import signal

from hypothesis.stateful import rule

from tests.index.cache_state_machine import QUERIES, VectorCacheMachine, run_cache_machine
from tests.index.chroma.chroma_fixtures import WIKI_ID
from tests.support.wait import wait_until
from wikiholt.index.chroma.engine import ChromaConfig, ChromaEngine
from wikiholt.index.chroma.searcher import ChromaSearcher


class ChromaCacheMachine(VectorCacheMachine):
    """Adds to the operations of any cache: the child is killed, and completes its work."""

    cache: ChromaSearcher

    def prepare(self) -> None:
        place = ChromaConfig(path=self.folder / "chroma", timeout_s=60.0, read_timeout_s=30.0, write_timeout_s=60.0)
        self.engine = ChromaEngine(place, self.folder / "owner", lambda: [WIKI_ID])

    def make_cache(self) -> ChromaSearcher:
        index = self.index.as_index()
        return self.engine.open_searcher(index, self.folder, WIKI_ID, "one")

    @rule()
    def kill_the_child(self) -> None:
        assert self.engine._server is not None
        process = self.engine._server._process
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)

    @rule()
    def wait_until_synced(self) -> None:
        self.cache.refresh()
        wait_until(lambda: self.cache.wait_idle(1) and not self._is_degraded(), "Chroma takes part")

    def _is_degraded(self) -> bool:
        self.cache.refresh()
        return self.cache.search(QUERIES[0], 5, None).degraded

    def teardown(self) -> None:
        """Compare with Chroma taking part, whatever happened before."""
        if hasattr(self, "cache"):
            self.wait_until_synced()
        super().teardown()

    def release_cache(self) -> None:
        self.engine.close()


def test_the_chroma_cache_agrees_with_the_reference_index() -> None:
    assert run_cache_machine(ChromaCacheMachine, 5, steps=15) >= 3 * 5, "answers are compared in every example"
