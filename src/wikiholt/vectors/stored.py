"""No cache at all: a store that finds the nearest chunks by itself, fast, is asked each time."""

from wikiholt.model import FloatArray, IntArray, VectorHits
from wikiholt.ports import WikiIndex


class DatabaseVectorCache:
    """A `VectorCache` that holds nothing and so is never behind."""

    def __init__(self, index: WikiIndex) -> None:
        self._index = index

    @property
    def version(self) -> int | None:
        """Ready, always: to ask which version that is would take as long as the search."""
        return 0

    def refresh(self) -> None:
        """Nothing to bring up to date."""

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        return self._index.search_vectors(vector, limit, page_ids)

    def verify(self) -> None:
        """Nothing to read."""

    def wait_idle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return False

    def close(self) -> None:
        """Nothing to let go of."""
