"""What an operator asks of the databases: which there are and how they stand, another one, upgrades, moves."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.model import DatabaseStanding
from wikiholt.stores.postgres import layout, moving, notes, upgrading
from wikiholt.stores.postgres.home import Database, Home
from wikiholt.stores.postgres.pool import Doors
from wikiholt.stores.postgres.store import PostgresStore

_VERSIONS = """
SELECT split_part(current_setting('server_version'), ' ', 1),
    coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '')
"""
_COUNTS = """
SELECT database, count(*), count(*) FILTER (WHERE layout < %s AND condition = 'here')
FROM placements GROUP BY database
"""


class PostgresDatabases:
    """`Databases` of one home, beside the store that is in them."""

    def __init__(self, home: Home, doors: Doors, store: PostgresStore, scratch: Path) -> None:
        self._home = home
        self._doors = doors
        self._store = store
        self._scratch = scratch

    def standing(self) -> Sequence[DatabaseStanding]:
        with self._home.reading() as connection:
            rows = connection.execute(_COUNTS, (layout.LAYOUT,)).fetchall()
        counts = {name: (wikis, behind) for name, wikis, behind in rows}
        return [self._asked(database, *counts.get(database.name, (0, 0))) for database in self._home.databases()]

    def unfinished(self) -> Sequence[str]:
        return moving.unfinished(self._store.placements)

    def finish(self, wiki_id: str) -> None:
        moving.finish(self._store, wiki_id)

    def add(self, name: str, address: str, weight: float) -> DatabaseStanding:
        added = self._home.add_database(name, address, weight)
        self._store.placements.recount()
        return next(each for each in self.standing() if each.name == added.name)

    def remove(self, name: str) -> None:
        self._home.remove_database(name)
        self._store.placements.recount()

    def open(self, name: str, *, to_new: bool) -> None:
        self._home.set_open(name, to_new=to_new)
        self._store.placements.recount()

    def upgrade(self, progress: Callable[[int, int], None]) -> Sequence[tuple[str, str]]:
        total = sum(each.behind for each in self.standing())
        progress(0, total)
        return upgrading.upgrade_all(self._store.placements, lambda done: progress(done, max(done, total))).failed

    def place(self, wiki_id: str) -> str | None:
        found = self._store.placements.find(wiki_id, again=True)
        return found.database if found is not None else None

    def move(self, wiki_id: str, to: str) -> bool:
        self._home.database(to)
        return moving.move(self._store, wiki_id, to)

    def tidy(self, wiki_ids: Collection[str]) -> None:
        wanted = set(wiki_ids)
        for wiki_id in notes.directories(self._scratch):
            if wiki_id not in wanted:
                shutil.rmtree(self._scratch / wiki_id, ignore_errors=True)
        for wiki_id in self.unfinished():
            with suppress(WikiholtError):  # whoever is at it just now finishes it
                moving.finish(self._store, wiki_id, 0)

    def figures(self) -> Mapping[str, int]:
        return {"connections": self._home.connections + self._doors.open, "leases": self._store.leases.count}

    def timeouts(self) -> Mapping[str, int]:
        of_wikis = self._doors.timeouts.counts
        return {kind: count + of_wikis[kind] for kind, count in self._home.timeouts.counts.items()}

    def up(self) -> Mapping[str, bool]:
        away = self._doors.away
        return {name: well and place not in away for name, (place, well) in self._home.up.items()}

    def close(self) -> None:
        self._doors.close()
        self._home.close()

    def _asked(self, database: Database, wikis: int, behind: int) -> DatabaseStanding:
        server = vector = away = ""
        try:
            with database.door.reading() as connection:
                server, vector = connection.execute(_VERSIONS).fetchone() or ("", "")
        except WikiholtError as error:
            said = " ".join(str(error.__cause__ or "").split())
            away = f"{error.message}: {said}" if said else error.message
        return DatabaseStanding(
            database.name,
            database.address.shown,
            database.open,
            database.weight,
            wikis,
            behind,
            server,
            vector,
            away,
        )
