"""Who sends a request without a key: a browser with the cookie of a sign-in, or a person that a trusted proxy names.

Browsers send both by themselves, also with requests that another site starts. Requests that change something must
therefore come from a page of this service.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from wikiholt.api.bootstrap import Application
from wikiholt.domain.wiki import Key, Person, PersonOrigin
from wikiholt.errors import Forbidden
from wikiholt.interfaces.http.owner_link import find_owner

_log = logging.getLogger(__name__)

COOKIE_NAME = "wikiholt_sign_in"
PEER_KEY = "wikiholt.peer"
"""The key in the ASGI scope of the address that the connection comes from."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_COOKIES = 4
"""A browser may send several cookies of this name, with different paths: the most specific one comes first."""
_MAX_USER_CHARS = 200
_MAX_GROUPS = 200
_LOG_INTERVAL_S = 60.0


class SignInMethod(StrEnum):
    """How a client is authenticated."""

    NONE = "none"
    KEY = "key"
    COOKIE = "cookie"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The authenticated client of a request without a key."""

    client: Key | Person
    method: SignInMethod


class PeerMiddleware:
    """Records the address of the connection, before another middleware replaces it by that in X-Forwarded-For."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, PEER_KEY: (scope.get("client") or ("",))[0]}
        await self._app(scope, receive, send)


def find_signed_in(application: Application, request: Request) -> SignedIn | None:
    """The client that a trusted proxy or a cookie names; None without one. Raises Forbidden for ambiguous headers."""
    person = _find_proxy_person(application, request)
    if person is not None:
        return SignedIn(person, SignInMethod.PROXY)
    owner = find_owner(application, request)
    if owner is not None:
        return SignedIn(owner, SignInMethod.COOKIE)
    return next((found for token in get_cookie_tokens(request) if (found := _find_by_cookie(application, token))), None)


def get_cookie_tokens(request: Request, cookie: str = COOKIE_NAME) -> list[str]:
    """The tokens of all cookies of this name, the most specific path first."""
    pairs = (pair.strip().partition("=") for header in request.headers.getlist("cookie") for pair in header.split(";"))
    return [value for name, _, value in pairs if name == cookie and value][:_MAX_COOKIES]


def _find_by_cookie(application: Application, token: str) -> SignedIn | None:
    settings, registry = application.settings, application.service.registry
    if not settings.people_remember_days and not settings.people_oidc_issuer:
        return None
    sign_in = registry.sign_ins.find(token)
    if sign_in is None:
        return None
    if sign_in.person is not None:
        # Another provider may use the same subjects for other persons.
        is_current = sign_in.person.subject.startswith(f"{settings.people_oidc_issuer} ")
        return SignedIn(sign_in.person, SignInMethod.COOKIE) if is_current else None
    key = registry.keys.find_valid(sign_in.client) if settings.people_remember_days else None
    return SignedIn(key, SignInMethod.COOKIE) if key is not None else None


def require_same_origin(request: Request) -> None:
    """Raise Forbidden unless a page of this service started the request."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_same = site == "same-origin"
    else:  # browsers send Sec-Fetch-Site to https:// and this machine only
        is_same = origin is not None and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if not is_same:
        raise Forbidden(
            "This request comes from another site.", hint="Send it from a page of this service, or with a key."
        )


def add_cookie(
    request: Request,
    response: Response,
    name: str,
    value: str,
    path: str,
    max_age_s: int | None,
    *,
    is_strict: bool = False,
) -> None:
    """Add a Set-Cookie header to the response. Without `max_age_s` the browser removes the cookie when it is closed.

    Unless `is_strict`, links from other sites, and the way back from an OpenID provider, send the cookie.
    """
    is_secure = request.scope["scheme"] == "https"
    same_site = "Strict" if is_strict else "Lax"
    response.set_cookie(name, value, max_age_s, path=path, secure=is_secure, httponly=True, samesite=same_site)  # type: ignore[arg-type]


# Headers of an authenticating proxy


def _find_proxy_person(application: Application, request: Request) -> Person | None:
    settings = application.settings
    header = settings.people_proxy_user_header
    names = _get_values(request, header)
    if not names:
        return None
    if not is_trusted_peer(request.scope.get(PEER_KEY, ""), settings.serve_trusted_proxies):
        _report_untrusted(request)
        return None
    emails = _get_values(request, settings.people_proxy_email_header)
    groups = _get_values(request, settings.people_proxy_groups_header)
    if max(len(names), len(emails), len(groups)) > 1:  # one of them may be the client's
        raise Forbidden(
            "The proxy sent the name, the groups or the e-mail address of the person more than once.",
            hint="Configure the proxy to replace the header of the client.",
        )
    subject = names[0].strip()[:_MAX_USER_CHARS]
    if not subject:
        return None
    return Person(
        PersonOrigin.PROXY,
        subject,
        email="".join(emails),
        groups=tuple(group.strip() for group in "".join(groups).split(",") if group.strip())[:_MAX_GROUPS],
    )


def _get_values(request: Request, header: str) -> list[str]:
    return [decode_header(value) for value in request.headers.getlist(header)] if header else []


def is_trusted_peer(peer: str, proxies: Sequence[str]) -> bool:
    """Whether the address is one of these addresses or networks. A wildcard trusts nobody."""
    for proxy in proxies:
        with suppress(ValueError):
            if ip_address(peer) in ip_network(proxy, strict=False):
                return True
    return False


_last_report_s = -_LOG_INTERVAL_S


def _report_untrusted(request: Request) -> None:
    """Count the header, and log it at most once a minute: any client can send it."""
    global _last_report_s  # noqa: PLW0603
    request.app.state.metrics.untrusted_headers.inc()
    now = time.monotonic()
    if now - _last_report_s >= _LOG_INTERVAL_S:
        _last_report_s = now
        peer = request.scope.get(PEER_KEY) or (request.client.host if request.client else "an unknown address")
        _log.warning("ignored the name of a person from %s, which is not in serve.trusted_proxies", peer)


def decode_header(header: str) -> str:
    """Decode UTF-8 in a header, which the server decodes as Latin-1."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return header
