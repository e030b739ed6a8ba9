"""A store in PostgreSQL as a node has it, and wikis in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wikiholt.model import IndexChange, Recipe
from wikiholt.ports import WikiIndex
from wikiholt.stores.postgres.home import Catalog
from wikiholt.stores.postgres.pool import ConnectionPool
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.entries import make_entry

WIKI_ID, OTHER_WIKI_ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")


@contextmanager
def open_node_store(
    database: str,
    place: Path,
    *,
    lease: float = 15.0,
    connections: int = 10,
    linger: float = 60.0,
    lock_timeout_s: float | None = None,
) -> Iterator[PostgresStore]:
    """What one process has open of a farm."""
    home, doors = Catalog(database, lock_timeout_s=lock_timeout_s), ConnectionPool(connections, lock_timeout_s=lock_timeout_s)
    try:
        yield PostgresStore(home, doors, place, lease, linger_s=linger)
    finally:
        doors.close()
        home.close()


def create_filled_index(store: PostgresStore, wiki_id: str, pages: int = 3, revision: str = "r1") -> WikiIndex:
    """A published index of so many pages that each hold `needle`."""
    index = store.create(wiki_id, RECIPE)
    some = tuple(make_entry(f"{number}.md", [f"needle {number}"], EMBEDDER) for number in range(pages))
    index.apply(IndexChange(pages=some, revision=revision))
    return index
