"""Visitors whom the host we run inside of has let in: they have what it has decided, and nothing else."""

from starlette.requests import Request

from wikiholt.access import Grant
from wikiholt.errors import Forbidden, AccessDenied, Unauthorized
from wikiholt.model import Scope, Wiki
from wikiholt.surfaces.http.admission import HOST_GRANT_KEY, HostGrant
from wikiholt.surfaces.http.visits import KeyAdmin, WikiSession, RequestContext
from wikiholt.wiring import Application


class HostContext(RequestContext):
    """Who sent a request to a host, and what it may have. Keys and addresses were looked at by the host."""

    def __init__(self, application: Application, request: Request) -> None:
        super().__init__(application, request)
        admission = request.scope.get(HOST_GRANT_KEY)
        if not isinstance(admission, HostGrant):
            raise Unauthorized("This takes a key.", hint="Nobody has said whose request this is.")
        self._host_grant = admission

    def open_wiki(self, required_scope: Scope) -> WikiSession:
        return self._open_granted(required_scope, allowed=required_scope in self._host_grant.scopes)

    def open_wiki_best_scope(self) -> WikiSession:
        reads, writes = (scope in self._host_grant.scopes for scope in (Scope.READ, Scope.WRITE))
        return self.open_wiki(Scope.WRITE if reads and writes else Scope.READ)

    def require_known_host(self) -> None:
        """Pass anybody: which name is whose is the host's to know."""

    def open_wiki_for_attachments(self) -> WikiSession:
        return self._open_granted(Scope.WRITE, allowed=self._host_grant.can_attach)

    def require_key(self) -> None:
        """Pass who may change anything, before what they send is taken in."""
        if not self._host_grant.can_write:
            raise self._build_denied_error()

    def count_request(self) -> None:
        """Pass anybody: the host counts, or a proxy before it."""

    def get_key_admin(self) -> KeyAdmin:
        wiki = self.open_wiki(Scope.ADMIN).wiki
        if not self._host_grant.can_manage_keys:
            raise Forbidden("This key does not manage keys.", hint="Sign in as an administrator of the wiki.")
        return KeyAdmin(self._application.service.registry, wiki)

    def require_operator(self) -> Application:
        raise Forbidden("This is about all wikis.", hint="Ask on the machine: wikiholt list")

    def list_visible_wikis(self) -> tuple[list[Wiki], bool]:
        return [self.open_wiki(Scope.READ).wiki], False

    def identify_unverified(self) -> Wiki | None:
        return None

    def _open_granted(self, required_scope: Scope, *, allowed: bool) -> WikiSession:
        given = self._host_grant
        if not allowed:
            raise self._build_denied_error()
        return self._open_session(Grant(given.wiki, required_scope, given.key), given)

    def _build_denied_error(self) -> AccessDenied:
        if self._host_grant.is_signed_in:
            return Forbidden("You may not do this in this wiki.", hint="Ask its administrator for the permission.")
        return Unauthorized("This takes a key, or signing in.", hint="Send a key as `Authorization: Bearer KEY`.")
