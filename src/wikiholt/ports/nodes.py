"""What the core asks of databases that several machines share, and of the other machines."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import StrEnum
from typing import Protocol

from wikiholt.model import DatabaseStatus


class DatabaseAdmin(Protocol):
    """The databases that hold indexes, where those are no files: one for all wikis of a process."""

    def get_statuses(self) -> Sequence[DatabaseStatus]:
        """How each stands: asks each of them, for a few seconds at most; raises DatabaseAway if nobody knows them."""

    def find_unfinished_moves(self) -> Sequence[str]:
        """The ids of wikis of which a move that was cut off has left something at another place."""

    def finish_move(self, wiki_id: str) -> None:
        """Remove what such a move has left; raises Busy while somebody is just moving the wiki."""

    def add(self, name: str, address: str, weight: float) -> DatabaseStatus:
        """Make a database ready for wikis, and have new ones go there; raises InvalidSetting and DatabaseAway."""

    def remove(self, name: str) -> None:
        """Know it no more, and touch nothing in it; raises Conflict while there are wikis on it."""

    def set_open(self, name: str, *, accept_new: bool) -> None:
        """Whether new wikis may go there."""

    def upgrade(self, progress: Callable[[int, int], None]) -> Sequence[tuple[str, str]]:
        """Bring every wiki to the layout of this program; goes on where another left off. Ids of those that could not
        be brought along, with the reason.
        """

    def get_database_name(self, wiki_id: str) -> str | None:
        """The name of the database a wiki is on; None for one that has no index yet."""

    def move(self, wiki_id: str, to: str) -> bool:
        """Move a wiki to another database while it answers; whether it was not there already."""

    def remove_leftovers(self, wiki_ids: Collection[str]) -> None:
        """Remove what this machine keeps of wikis other than these: caches and mirrors of wikis that were removed.

        Also what moves to another database have left behind that were cut off.
        """

    def get_metrics(self) -> Mapping[str, int]:
        """Connections that are open, and leases held, by this process."""

    def get_timeout_counts(self) -> Mapping[str, int]:
        """How many statements of this process the databases ended, by kind: `lock` for those that waited too long for
        a lock, `statement` for those that ran too long.
        """

    def get_availability(self) -> Mapping[str, bool]:
        """Of each database that is known here, whether it answered when it was last needed; asks nobody."""

    def close(self) -> None: ...


class NodeMessage(StrEnum):
    """Why a node is called: for a wiki it looks after, or because which wikis those are may have changed."""

    CHANGED = "wake"
    REPAIR = "mend"
    TOUCH = "asked"
    REINDEX = "reindex"
    ASSIGNMENTS = "shifts"


class NodeAssignments(Protocol):
    """Which wikis this node looks after, where several share the work. Safe to use from many threads.

    It only divides the work: that two never write one index is the store's to see to.
    """

    def get_assigned(self) -> Set[str] | None:
        """The ids of the wikis this node looks after; None where there is no other node."""

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        """Call the node that looks after the wiki, or that will; raises DatabaseAway."""

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        """Take on wikis, and tell of calls: with the wiki's id, or with none for SHIFTS. It must not raise."""

    def close(self) -> None:
        """Leave all wikis to others."""
