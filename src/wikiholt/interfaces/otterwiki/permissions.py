"""Permissions of a request to Otterwiki: from a key, or from Otterwiki's own permissions.

All decisions are made here, in the thread of the request, and result in a HostGrant.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from flask import current_app, request
from werkzeug.exceptions import BadRequest

from wikiholt.api.operations.page_writes import make_key_author
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Key, Scope
from wikiholt.errors import Forbidden, Unauthorized
from wikiholt.interfaces.http.request_context import HostGrant, parse_bearer_token
from wikiholt.interfaces.otterwiki.plugin_runtime import CurrentWiki
from wikiholt.interfaces.otterwiki.wiki_resolver import get_request_paths
from wikiholt.wikis.access import RequestIdentity

_WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SHARED_KEY_ID = "otterwiki-api-key"
_PROXY_HEADERS = {
    "AUTH_HEADERS_USERNAME": "x-otterwiki-name",
    "AUTH_HEADERS_EMAIL": "x-otterwiki-email",
    "AUTH_HEADERS_PERMISSIONS": "x-otterwiki-permissions",
}
"""Otterwiki's settings for the headers of an authenticating proxy, with their default headers."""
_INDEX_WAIT_S = 2.0
"""How long a write with a key waits for the index: programs often search for what they wrote."""


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The shared key of otterwiki-api and otterwiki-semantic-search.

    It gives access to every wiki of the process: to read, write and reindex.
    """

    token: str = field(repr=False)
    author: Author

    @classmethod
    def from_environment(cls, config: Mapping[str, Any], environ: Mapping[str, str]) -> Self:
        """Read the key from the environment or Otterwiki's configuration; an empty token matches nothing."""
        values = {name: str(config.get(name) or "") for name in _SHARED_KEY_VARIABLES}
        values |= {name: environ[name] for name in _SHARED_KEY_VARIABLES if environ.get(name)}
        token, name, email = (values[variable].strip() for variable in _SHARED_KEY_VARIABLES)
        return cls(
            token,
            Author(_clean_author_text(name) or "Otterwiki API", _clean_author_text(email) or "api@otterwiki.local"),
        )

    def matches(self, token: str) -> bool:
        return bool(self.token) and hmac.compare_digest(self.token.encode(), token.encode("utf-8", "replace"))


_SHARED_KEY_VARIABLES = ("OTTERWIKI_API_KEY", "OTTERWIKI_API_AUTHOR_NAME", "OTTERWIKI_API_AUTHOR_EMAIL")


def build_host_grant(current_wiki: CurrentWiki, shared_key: SharedKey) -> HostGrant:
    """The rights of the current request. Raises AccessDenied for an unknown key or a key of another wiki."""
    token = parse_bearer_token(request.headers.get("Authorization"))
    if token is None:
        return _grant_by_otterwiki(current_wiki)
    address = request.remote_addr or ""
    if shared_key.matches(token):
        return _grant_by_shared_key(current_wiki, shared_key)
    if _is_proxy_token(token):
        return _grant_by_otterwiki(current_wiki)
    try:
        grant = current_wiki.application.access.authorize(RequestIdentity(token, current_wiki.wiki.slug), Scope.READ)
    except Unauthorized:
        current_wiki.application.rate_limiter.refuse_key(address, token)
        raise
    assert grant.key is not None
    current_wiki.application.rate_limiter.check(grant.key.id, address)
    return HostGrant(
        wiki=current_wiki.wiki,
        scopes=frozenset(scope for scope in Scope if grant.scope.allows(scope)),
        author=make_key_author(grant.key),
        can_attach=grant.scope.allows(Scope.WRITE),
        is_signed_in=True,
        key=grant.key,
        can_manage_keys=grant.scope.allows(Scope.ADMIN),
        path_style=get_request_paths(),
        index_wait_s=_INDEX_WAIT_S,
    )


def require_csrf_token() -> None:
    """Raise Forbidden if a writing request has no valid CSRF token of Otterwiki. Not needed with a key."""
    from otterwiki.server import csrf  # noqa: PLC0415 - Otterwiki loads this after its plugins

    if request.method not in _WRITE_METHODS or not current_app.config.get("WTF_CSRF_ENABLED", True):
        return
    try:
        csrf.protect()
    except BadRequest as error:
        raise Forbidden(
            f"The CSRF token is missing or invalid: {error.description}",
            hint="Send it as X-CSRFToken; every page has it in <meta name=csrf-token>. Requests with a key need none.",
        ) from None


def _get_otterwiki_permissions() -> tuple[frozenset[Scope], bool]:
    """The scopes that Otterwiki grants the user, and whether the user may attach files."""
    from otterwiki.auth import has_permission  # noqa: PLC0415 - see above

    # A user without READ gets no rights, whatever else a proxy grants.
    if not has_permission("READ"):
        return frozenset(), False
    granted = frozenset(scope for scope in Scope if scope is not Scope.PAST and has_permission(scope.name))
    scopes = granted | {Scope.PAST} if Scope.WRITE in granted else granted  # Otterwiki has no permission for the past
    return scopes, bool(has_permission("UPLOAD"))


def _grant_by_otterwiki(current_wiki: CurrentWiki) -> HostGrant:
    from otterwiki.auth import current_user, get_author  # noqa: PLC0415 - see above

    scopes, can_attach = _get_otterwiki_permissions()
    name, email = get_author()
    return HostGrant(
        wiki=current_wiki.wiki,
        scopes=scopes,
        author=Author(_clean_author_text(name) or "Anonymous", _clean_author_text(email)),
        can_attach=can_attach,
        is_signed_in=bool(current_user.is_authenticated),
        can_manage_keys=True,
        path_style=get_request_paths(),
    )


def _grant_by_shared_key(current_wiki: CurrentWiki, shared_key: SharedKey) -> HostGrant:
    key = Key(_SHARED_KEY_ID, current_wiki.wiki.id, Scope.ADMIN, shared_key.author.name, datetime.now(UTC), None)
    # A proxy may send this key with the requests of its users: they keep the permissions that the proxy sends.
    scopes, can_attach = _get_otterwiki_permissions() if _is_forwarded_visitor() else (frozenset(Scope), True)
    return HostGrant(
        wiki=current_wiki.wiki,
        scopes=scopes,
        author=shared_key.author,
        can_attach=can_attach,
        is_signed_in=True,
        key=key,
        # A client must lose access when the shared key changes, so it cannot create other keys.
        can_manage_keys=False,
        path_style=get_request_paths(),
        index_wait_s=_INDEX_WAIT_S,
    )


def _is_forwarded_visitor() -> bool:
    """Whether a trusted proxy names the user or the permissions of this request."""
    config = current_app.config
    if config.get("AUTH_METHOD") != "PROXY_HEADER":
        return False  # without that method any client can send the headers
    return any((config.get(setting) or default) in request.headers for setting, default in _PROXY_HEADERS.items())


def _is_proxy_token(token: str) -> bool:
    """Whether the token is not a Wikiholt key but the token of an authenticating proxy."""
    if current_app.config.get("AUTH_METHOD") != "PROXY_HEADER" or token.startswith("wh_"):
        return False
    from otterwiki.auth import current_user  # noqa: PLC0415 - see above

    return bool(current_user.is_authenticated)


def _clean_author_text(text: str) -> str:
    """Remove characters that git does not allow in a name or address."""
    return re.sub(r"[\x00-\x1f\x7f<>\ud800-\udfff]", "", str(text or "")).strip()
