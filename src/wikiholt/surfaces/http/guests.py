"""Visitors whom the host we run inside of has let in: they have what it has decided, and nothing else."""

from starlette.requests import Request

from wikiholt.access import Grant
from wikiholt.errors import Forbidden, Refused, Unauthorized
from wikiholt.model import Scope, Wiki
from wikiholt.surfaces.http.admission import ADMISSION, Admission
from wikiholt.surfaces.http.visits import Keyring, OpenWiki, Visitor
from wikiholt.wiring import Farm


class Guest(Visitor):
    """Who sent a request to a host, and what it may have. Keys and addresses were looked at by the host."""

    def __init__(self, farm: Farm, request: Request) -> None:
        super().__init__(farm, request)
        admission = request.scope.get(ADMISSION)
        if not isinstance(admission, Admission):
            raise Unauthorized("This takes a key.", hint="Nobody has said whose request this is.")
        self._admission = admission

    def wiki(self, needed: Scope) -> OpenWiki:
        return self._opened(needed, allowed=needed in self._admission.scopes)

    def as_allowed(self) -> OpenWiki:
        reads, writes = (scope in self._admission.scopes for scope in (Scope.READ, Scope.WRITE))
        return self.wiki(Scope.WRITE if reads and writes else Scope.READ)

    def under_known_host(self) -> None:
        """Pass anybody: which name is whose is the host's to know."""

    def attaching(self) -> OpenWiki:
        return self._opened(Scope.WRITE, allowed=self._admission.attaches)

    def enters(self) -> None:
        """Pass who may change anything, before what they send is taken in."""
        if not self._admission.changes:
            raise self._refusal()

    def counted(self) -> None:
        """Pass anybody: the host counts, or a proxy before it."""

    def keyring(self) -> Keyring:
        wiki = self.wiki(Scope.ADMIN).wiki
        if not self._admission.keeps_keys:
            raise Forbidden("This key does not manage keys.", hint="Sign in as an administrator of the wiki.")
        return Keyring(self._farm.service.registry, wiki)

    def farm(self) -> Farm:
        raise Forbidden("This is about all wikis.", hint="Ask on the machine: wikiholt list")

    def visible(self) -> tuple[list[Wiki], bool]:
        return [self.wiki(Scope.READ).wiki], False

    def claimed(self) -> Wiki | None:
        return None

    def _opened(self, needed: Scope, *, allowed: bool) -> OpenWiki:
        given = self._admission
        if not allowed:
            raise self._refusal()
        return self._open(Grant(given.wiki, needed, given.key), given)

    def _refusal(self) -> Refused:
        if self._admission.signed_in:
            return Forbidden("You may not do this in this wiki.", hint="Ask its administrator for the permission.")
        return Unauthorized("This takes a key, or signing in.", hint="Send a key as `Authorization: Bearer KEY`.")
