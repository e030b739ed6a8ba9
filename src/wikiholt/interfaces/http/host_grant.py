"""What a host that the API runs inside of has decided of a request: which wiki, what may be done with it, and by whom.

It travels in the ASGI scope, where only who calls the application in process can put it: nothing a client sends ends
up there. An application made for a host answers no request that comes without one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.interfaces.schemas.common import STORED_PATHS, PathStyle

HOST_GRANT_KEY = "wikiholt.admission"
"""Where the scope keeps it."""


class ChangeKind(StrEnum):
    """What a commit did to a page."""

    SAVED = "saved"
    DELETED = "deleted"
    RENAMED = "renamed"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """A commit that a request has made, for a host that tells others of it; paths and files are git's.

    `files` are those there are since, or those that are gone of a deleted page; the page's own is the first.
    """

    kind: ChangeKind
    path: str
    files: tuple[str, ...]
    author: Author
    message: str
    new_path: str = ""


CommitListener = Callable[[CommitEvent], None]


def ignore_commit(_: CommitEvent) -> None:
    """What is told where there is no host."""


@dataclass(frozen=True, slots=True)
class HostGrant:
    """One request's wiki and rights; hosts may give any of them without the others.

    Commits are by `author`; who has a key may name another. A write waits up to `patience` seconds for the index to
    hold it. `commits` are those that the request has made.
    """

    wiki: Wiki
    scopes: frozenset[Scope]
    author: Author
    can_attach: bool = False
    is_signed_in: bool = False
    key: Key | None = None
    can_manage_keys: bool = False
    path_style: PathStyle = STORED_PATHS
    index_wait_s: float = 0.0
    commits: list[CommitEvent] = field(default_factory=list)

    @property
    def can_write(self) -> bool:
        """Whether anything but reading is allowed."""
        return self.can_attach or bool(self.scopes - {Scope.READ})
