"""Backups of the registry: what no git repository could give back.

A registry is never restored by itself, and restoring one brings no key back that is known to have been revoked: keys
that the present registry has not, or where that is damaged the newest backup, are left out. What was struck with a
removed wiki is struck from the backups too.
"""

import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from wikiholt.backups import Kept, Shelf
from wikiholt.errors import BackupNotFound, Busy, Conflict, IndexCorrupt, IndexFault, IndexMissing
from wikiholt.model import Key, Occasion, RegistryBackup
from wikiholt.registry import schema
from wikiholt.registry.database import RegistryFile
from wikiholt.registry.keys import key_of
from wikiholt.registry.mending import seal_at, strike
from wikiholt.registry.sessions import RegistryDatabase

_LOG = logging.getLogger(__name__)

_SMALL = 1 << 20
_REMEMBERED = timedelta(days=30)
"""For so long it is remembered in a registry that machines share that a wiki was removed."""
STRUCK = "struck-"
"""A mark of this name and a wiki's id: the wiki was removed, and may still be in backups."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What restoring a registry did: from what, which keys it left out, and where a damaged registry lies now."""

    backup: RegistryBackup
    left_out: tuple[Key, ...]
    aside: str | None
    sure: bool
    """Whether it is known which keys were revoked; if not, some may open wikis again that were."""


class RegistryBackups:
    """Bound to one registry and one shelf. Safe to use from many threads and processes."""

    def __init__(self, database: RegistryDatabase, directory: Path, keep: int) -> None:
        self._database = database
        self._shelf = Shelf(directory)
        self._keep = keep
        self._done: set[str] = set()
        self.drop_rest: Callable[[str], None] = lambda _: None
        """Removes what is left of a wiki outside the registry."""

    def take(self, occasion: Occasion = Occasion.ASKED) -> RegistryBackup:
        """Copy the registry as it is now, verify the copy and keep it; raises IndexMissing while there is none."""
        self.finish_striking()
        with self._shelf.alone(), self._shelf.making() as draft:
            seal = self._database.copy(draft.file)
            if seal is None:
                raise IndexMissing("there is no registry yet", hint="`wikiholt add` registers a first wiki")
            rows = self._rows(draft.file)
            if schema.seal_of(rows) != seal:
                raise IndexCorrupt("the copy of the registry is not what was copied", hint="check the disk, try again")
            kept = draft.keep(_label(rows), occasion)
        self._shelf.prune(self._keep, but=(kept,))
        return _backup(kept, rows)

    def follow(self, patience: float = 0.0) -> RegistryBackup | None:
        """Take a backup if the registry has changed since the newest; a large one not within `patience` seconds."""
        self.finish_striking()
        self._shelf.sweep()  # what a killed process left goes, though there may be nothing to take
        with self._database.reading() as connection:
            if connection is None:
                return None
            seal = schema.seal(connection)
        newest = next(iter(self._shelf.all()), None)
        if newest is not None:
            recent = datetime.now(UTC) - newest.taken_at < timedelta(seconds=patience)
            if recent and _backup(newest, None).bytes > _SMALL:
                return None
            if seal == seal_at(newest.file) and not self._shelf.fault(newest):
                return None
        return self.take(Occasion.SCHEDULED)

    def behind(self) -> bool:
        """Whether the registry holds what no good backup holds."""
        with self._database.reading() as connection:
            if connection is None:
                return False
            seal = schema.seal(connection)
        newest = next((kept for kept in self._shelf.all() if not self._shelf.fault(kept)), None)
        return newest is None or seal_at(newest.file) != seal

    def list(self) -> Sequence[RegistryBackup]:
        """What there is, newest first, every byte of it verified."""
        return [self._verified(kept)[0] for kept in self._shelf.all()]

    def restore(self, at: datetime | None = None) -> Restored:
        """Put the newest good backup not taken after `at` in the registry's place; raises BackupNotFound."""
        good = [(backup, rows) for backup, rows in map(self._verified, self._shelf.all()) if rows is not None]
        chosen = next(((backup, rows) for backup, rows in good if at is None or backup.taken_at <= at), None)
        if chosen is None:
            raise BackupNotFound(
                "there is no good backup of the registry" + ("" if at is None else f" from before {at:%Y-%m-%d %H:%M}"),
                hint="`wikiholt restore --registry --list` shows what there is; where none can be used,"
                " `wikiholt restore --registry --empty` starts a new registry, closed to all",
            )
        backup, rows = chosen
        present = self._present()
        known = present or good[0][1]
        rows, left_out = _without_revoked(rows, known)
        # Whoever has once made a key relies on it that without one nothing opens.
        rows["marks"] = list({row[0]: row for each in (rows, known) for row in each["marks"]}.values())
        if present is None:
            return Restored(backup, left_out, self._database.install(rows), sure=backup.name != good[0][0].name)
        if schema.seal_of(present) != schema.seal_of(good[0][1]):
            self.take(Occasion.BEFORE_RESTORING)
        with self._database.writing() as ledger:
            if schema.seal(ledger.connection) != schema.seal_of(present):
                raise Busy("the registry was changed meanwhile", hint="try again")
            ledger.replace(rows)
        return Restored(backup, left_out, None, sure=True)

    def start_empty(self) -> str | None:
        """Put a registry without wikis and keys in the place of one that is lost; the name under which that lies now.

        Nothing is open without a key in it, and its wikis are private until they are said to be public. Raises
        Conflict while the registry can be read, or can be restored from a backup.
        """
        with suppress(IndexCorrupt), self._database.reading() as connection:
            raise Conflict(
                "the registry is not lost" if connection else "there is no registry yet",
                hint="`wikiholt add` registers a wiki in it",
            )
        if any(rows is not None for _, rows in map(self._verified, self._shelf.all())):
            raise Conflict("there is a good backup of the registry", hint="restore that: wikiholt restore --registry")
        now = datetime.now(UTC).isoformat()
        marks: list[schema.Row] = [(schema.KEYED, now), (schema.REBUILT, now)]
        return self._database.install({**{table: [] for table in schema.COLUMNS}, "marks": marks})

    def finish_striking(self) -> None:
        """Take removed wikis out of every backup: those too whose removal was killed before it came to that.

        What is left of them elsewhere is removed by `drop_rest`; should somebody be writing that, the next call does.
        """
        marked = self._struck()
        gone = {wiki_id: when for wiki_id, when in marked.items() if when is not None and wiki_id not in self._done}
        if gone:
            self.strike(gone)
        for wiki_id in gone:
            try:
                self.drop_rest(wiki_id)
            except (Busy, IndexFault) as error:
                _LOG.warning("what is left of a removed wiki is removed later: %s", error.message)
                continue
            self._done.add(wiki_id)
        self._done &= marked.keys()
        lately = (datetime.now(UTC) - _REMEMBERED).isoformat() if self._database.shared else ""
        over = [
            wiki_id
            for wiki_id, when in marked.items()
            # Other machines have backups of their own to take it out of, and may be away for a while.
            if when is None or (wiki_id in self._done and (not lately or when < lately))
        ]
        if over:
            with self._database.writing() as ledger:
                for wiki_id in over:
                    ledger.delete("marks", "name", STRUCK + wiki_id)

    def _struck(self) -> Mapping[str, str | None]:
        """The ids of wikis that bear the mark, and since when; None for one that is registered again."""
        with self._database.reading() as connection:
            if connection is None:
                return {}
            marks = connection.execute("SELECT name, value FROM marks").fetchall()
            struck = {name.removeprefix(STRUCK): when for name, when in marks if name.startswith(STRUCK)}
            known = {wiki_id for (wiki_id,) in connection.execute("SELECT id FROM wikis")} if struck else set()
        return {wiki_id: None if wiki_id in known else when for wiki_id, when in struck.items()}

    def strike(self, wiki_ids: Collection[str]) -> None:
        """Take removed wikis out of every backup; one that cannot be rewritten is removed."""
        if not self._shelf.directory.exists():
            return
        # Alone, lest a copy that was begun before the removal be kept after this.
        with self._shelf.alone():
            for kept in self._shelf.all():
                try:
                    self._strike(kept, wiki_ids)
                except (IndexFault, OSError) as error:
                    _LOG.warning("a backup of the registry is removed, for a removed wiki may be in it: %s", error)
                    kept.file.unlink(missing_ok=True)

    def _strike(self, kept: Kept, wiki_ids: Collection[str]) -> None:
        fault = self._shelf.fault(kept)
        if fault:
            raise IndexCorrupt(fault, hint="it is of no use")
        with self._shelf.making() as draft:
            shutil.copyfile(kept.file, draft.file)
            if not strike(draft.file, wiki_ids):
                return
            rows = self._rows(draft.file)
            # What is to be gone goes first: should this end here, one backup of several is lost, and nothing stays.
            kept.file.unlink(missing_ok=True)
            draft.keep(_label(rows), kept.occasion, kept.taken_at)

    def _present(self) -> schema.Rows | None:
        """What the registry holds; None when it is damaged or not there."""
        try:
            with self._database.reading() as connection:
                return schema.read(connection) if connection is not None else None
        except IndexCorrupt:
            return None

    def _verified(self, kept: Kept) -> tuple[RegistryBackup, schema.Rows | None]:
        fault = self._shelf.fault(kept)
        try:
            rows = None if fault else self._rows(kept.file)
        except (IndexFault, Busy) as error:
            rows, fault = None, error.message
        return _backup(kept, rows, fault), rows

    def _rows(self, file: Path) -> schema.Rows:
        with RegistryFile(file, 1.0).unchanging() as connection:
            return schema.read(connection)


def _without_revoked(rows: schema.Rows, known: schema.Rows) -> tuple[schema.Rows, tuple[Key, ...]]:
    valid = {row[0] for row in known["keys"]}
    left_out = tuple(key_of(cast(Sequence[str], row)) for row in rows["keys"] if row[0] not in valid)
    return {**rows, "keys": [row for row in rows["keys"] if row[0] in valid]}, left_out


def _label(rows: schema.Rows) -> str:
    return f"w{len(rows['wikis'])}-k{len(rows['keys'])}"


def _backup(kept: Kept, rows: schema.Rows | None, fault: str = "") -> RegistryBackup:
    try:
        size = kept.file.stat().st_size
    except OSError:
        size = 0
    wikis, keys = (len(rows["wikis"]), len(rows["keys"])) if rows is not None else (0, 0)
    return RegistryBackup(kept.name, kept.taken_at, kept.occasion, size, wikis, keys, fault)
