"""Whatever happens to index, cache and child, in whatever order: the answer is that of the truth."""

import os
import signal

from chroma_ground import ONE, until
from hypothesis.stateful import rule
from vector_rules import QUERIES, FollowsTruth, follow

from wikiholt.vectors.chroma import Chroma, ChromaCache, Place


class ChromaFollowsTruth(FollowsTruth):
    """Beside what may happen to any cache, the child is killed, and has its work done."""

    cache: ChromaCache

    def prepare(self) -> None:
        place = Place(path=self.folder / "chroma", timeout=60.0, heartbeat=30.0, patience=60.0)
        self.engine = Chroma(place, self.folder / "owner", lambda: [ONE])

    def make(self) -> ChromaCache:
        return self.engine.cache(self.truth.as_index(), self.folder, ONE, "one")

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

    def teardown(self) -> None:
        """Compare with Chroma's help, whatever was done to it before."""
        if hasattr(self, "cache"):
            self.let_it_settle()
        super().teardown()

    def release(self) -> None:
        self.engine.close()


def test_the_cache_of_chroma_follows_the_truth() -> None:
    assert follow(ChromaFollowsTruth, 5, steps=15) >= 3 * 5, "answers are compared in every example"
