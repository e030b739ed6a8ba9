"""The session of a command, which works on the data directory of its user without a scheduler."""

from dataclasses import dataclass

from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Scope
from wikiholt.wikis.access import Grant
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.session import WikiSession


@dataclass(frozen=True, slots=True)
class _NoScheduler:
    """Nothing syncs the wiki but the command itself."""

    error: None = None

    def wait_until_fresh(self, _: str, __: float) -> None: ...

    def notify_changed(self, _: str) -> None: ...

    def get_sync_state(self, _: str) -> "_NoScheduler":
        return self


def open_own_session(handle: WikiHandle) -> WikiSession:
    """The session of a command: it may do everything with the wiki."""
    grant = Grant(handle.wiki, Scope.ADMIN, None)
    return WikiSession(grant, handle, 0.0, _NoScheduler(), interface=SearchInterface.CLI)
