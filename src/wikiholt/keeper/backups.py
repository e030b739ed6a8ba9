"""Backups by schedule: one at a time, only of what has changed, resting longer than it works. Used by one thread."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from wikiholt.errors import Busy, DatabaseAway, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.keeper.board import Board
from wikiholt.keeper.entries import Entry
from wikiholt.model import Occasion
from wikiholt.service import Service

_LOG = logging.getLogger(__name__)

_FIRST = 60.0
"""Seconds after the start in which there is better to do."""
_ROUND = 300.0
"""Seconds between two looks at which wikis are due, and at whether the registry has changed."""
_AGAIN = 3600.0
"""Seconds until a backup that failed is tried again, at most."""
_EASE = 4.0
"""For every second of work so many of rest."""


class Rounds:
    """Looks after the backups of all wikis on a board, and of the registry."""

    def __init__(self, service: Service, board: Board, every: float, rest: Callable[[float], None]) -> None:
        """`every` is the time between two backups of a wiki that changes, in seconds."""
        self._service = service
        self._board = board
        self._every = every
        self._rest = rest
        self._due: dict[str, float] = {}

    def run(self) -> None:
        """Go round until the keeper stops."""
        self._rest(min(_FIRST, self._every))
        while not self._board.stopping:
            self.go_round()
            self._rest(min(_ROUND, self._every / 4))

    def go_round(self) -> None:
        """Back up what is due."""
        self._follow_registry()
        entries = self._board.all()
        self._due = {entry.wiki.id: self._due.get(entry.wiki.id, 0.0) for entry in entries}
        for entry in entries:
            if self._board.stopping:
                return
            began = time.monotonic()
            if self._due[entry.wiki.id] > began or entry.running:
                continue
            self._due[entry.wiki.id] = began + self._looked_after(entry)
            self._rest(_EASE * (time.monotonic() - began))

    def _looked_after(self, entry: Entry) -> float:
        """Back the wiki up if its newest backup is old enough; returns in how many seconds to look again."""
        try:
            backups = self._service.background(entry.wiki.slug).backups
            newest = backups.newest()
            if newest is not None:
                age = (datetime.now(UTC) - newest.taken_at).total_seconds()
                if 0 <= age < self._every:
                    return self._every - age
            kept = backups.keep(Occasion.SCHEDULED, lambda: self._board.stopping)
            self._board.count["backups"] += newest is None or kept.name != newest.name
            entry.backup_error = None
            return self._every
        except (Busy, DatabaseAway, WikiNotFound):
            return 0.0
        except IndexMissing:
            return 0.0  # it was never synced; as soon as it is there is something to keep
        except WikiholtError as error:
            return self._failed(entry, error)
        except Exception as error:  # noqa: BLE001 - a fault met in one wiki must not end the thread that serves all
            _LOG.exception("%s: a fault of Wikiholt's own", entry.wiki.slug)
            return self._failed(entry, WikiholtError(f"{type(error).__name__}: {error}"))

    def _failed(self, entry: Entry, error: WikiholtError) -> float:
        self._board.count["backup_failures"] += 1
        entry.backup_error = error
        _LOG.warning("%s: no backup could be made: %s", entry.wiki.slug, error.message)
        return min(_AGAIN, self._every)

    def _follow_registry(self) -> None:
        try:
            self._service.registry.backups.follow(_ROUND)
        except IndexMissing:
            return
        except (WikiholtError, OSError) as error:
            self._board.count["backup_failures"] += 1
            _LOG.warning("no backup of the registry could be made: %s", error)
