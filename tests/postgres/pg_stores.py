"""A store in PostgreSQL as a node has it, and wikis in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wikiholt.model import Change, Recipe
from wikiholt.ports import WikiIndex
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.pool import Doors
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.entries import entry

ONE, OTHER = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")


@contextmanager
def node(
    database: str,
    place: Path,
    *,
    lease: float = 15.0,
    connections: int = 10,
    linger: float = 60.0,
    lock_timeout_s: float | None = None,
) -> Iterator[PostgresStore]:
    """What one process has open of a farm."""
    home, doors = Home(database, lock_timeout_s=lock_timeout_s), Doors(connections, lock_timeout_s=lock_timeout_s)
    try:
        yield PostgresStore(home, doors, place, lease, linger=linger)
    finally:
        doors.close()
        home.close()


def filled(store: PostgresStore, wiki_id: str, pages: int = 3, revision: str = "r1") -> WikiIndex:
    """A published index of so many pages that each hold `needle`."""
    index = store.create(wiki_id, RECIPE)
    some = tuple(entry(f"{number}.md", [f"needle {number}"], EMBEDDER) for number in range(pages))
    index.apply(Change(pages=some, revision=revision))
    return index
