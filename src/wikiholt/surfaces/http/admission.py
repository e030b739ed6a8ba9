"""What a host that the API runs inside of has decided of a request: which wiki, what may be done with it, and by whom.

It travels in the ASGI scope, where only who calls the application in process can put it: nothing a client sends ends
up there. An application made for a host answers no request that comes without one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from wikiholt.model import Author, Key, Scope, Wiki
from wikiholt.surfaces.documents.names import AS_STORED, Names

ADMISSION = "wikiholt.admission"
"""Where the scope keeps it."""


class Deed(StrEnum):
    """What a commit did to a page."""

    SAVED = "saved"
    DELETED = "deleted"
    RENAMED = "renamed"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class Wrote:
    """A commit that a request has made, for a host that tells others of it; paths and files are git's.

    `files` are those there are since, or those that are gone of a deleted page; the page's own is the first.
    """

    deed: Deed
    path: str
    files: tuple[str, ...]
    author: Author
    message: str
    new_path: str = ""


Tell = Callable[[Wrote], None]


def to_nobody(_: Wrote) -> None:
    """What is told where there is no host."""


@dataclass(frozen=True, slots=True)
class Admission:
    """One request's wiki and rights; hosts may give any of them without the others.

    Commits are by `author`; who has a key may name another. A write waits up to `patience` seconds for the index to
    hold it. `commits` are those that the request has made.
    """

    wiki: Wiki
    scopes: frozenset[Scope]
    author: Author
    attaches: bool = False
    signed_in: bool = False
    key: Key | None = None
    keeps_keys: bool = False
    names: Names = AS_STORED
    patience: float = 0.0
    commits: list[Wrote] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """Whether anything but reading is allowed."""
        return self.attaches or bool(self.scopes - {Scope.READ})
