"""Who is next: wikis wait in a line, once each, those that somebody waits for before those that are only due."""

from collections import OrderedDict
from enum import IntEnum

_IN_A_ROW = 8
"""So many are let past at most before one of those that only wait their turn is taken."""


class Rank(IntEnum):
    """Why a wiki waits; the smaller goes first."""

    ASKED = 0
    WOKEN = 1
    DUE = 2


class Line:
    """First come, first served within a rank; no rank starves. Not for several threads without a lock around it."""

    def __init__(self) -> None:
        self._ranks: tuple[OrderedDict[str, None], ...] = tuple(OrderedDict() for _ in Rank)
        self._let_past = 0

    def put(self, wiki_id: str, rank: Rank) -> None:
        """Have a wiki wait; one that waits already keeps its place, or moves up to the better rank's end."""
        if any(wiki_id in self._ranks[better] for better in Rank if better <= rank):
            return
        self.drop(wiki_id)
        self._ranks[rank][wiki_id] = None

    def drop(self, wiki_id: str) -> None:
        for waiting in self._ranks:
            waiting.pop(wiki_id, None)

    def take(self, *, urgent_only: bool = False) -> str | None:
        """The wiki whose turn it is, out of the line; `urgent_only` leaves those alone that are only due."""
        if self._let_past >= _IN_A_ROW and self._ranks[Rank.DUE] and not urgent_only:
            self._let_past = 0
            return self._ranks[Rank.DUE].popitem(last=False)[0]
        for rank in Rank:
            if rank is Rank.DUE and urgent_only:
                break
            if self._ranks[rank]:
                self._let_past = self._let_past + 1 if rank is not Rank.DUE and self._ranks[Rank.DUE] else 0
                return self._ranks[rank].popitem(last=False)[0]
        return None

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for one of those that wait."""
        return bool(self._ranks[Rank.ASKED] or self._ranks[Rank.WOKEN])

    def __len__(self) -> int:
        return sum(map(len, self._ranks))

    def __contains__(self, wiki_id: object) -> bool:
        return any(wiki_id in waiting for waiting in self._ranks)
