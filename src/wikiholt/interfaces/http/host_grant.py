"""The decision of a host application about one request: which wiki, which rights, which author.

The grant travels in the ASGI scope. Only code that calls the application in process can set it; no request header ends
up there. An application created for a host refuses every request without a grant.
"""

from dataclasses import dataclass, field

from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.wikis.session import STORED_PATHS, CommitEvent, PathStyle

HOST_GRANT_KEY = "wikiholt.host_grant"
"""The key of the grant in the ASGI scope."""


@dataclass(frozen=True, slots=True)
class HostGrant:
    """The wiki and the rights of one request. A host may grant each right independently.

    Commits use `author`; a request with a key may name another author. A write waits up to `index_wait_s` seconds for
    the index. `commits` collects the commits that the request makes.
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
        """Whether the grant allows anything but reading."""
        return self.can_attach or bool(self.scopes - {Scope.READ})
