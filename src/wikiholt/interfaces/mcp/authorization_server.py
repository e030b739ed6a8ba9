"""The OAuth 2.1 authorization server for agents: the SDK's endpoints over what the registry stores.

A client registers itself, a person approves it on the consent page with a key, and the client gets tokens for the wiki
in the resource it named. Every client is public and must use PKCE, so no client secret is stored.
"""

import base64
import hashlib
import re
from functools import partial
from html import escape
from math import inf
from urllib.parse import urlencode, urlsplit

from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.server.auth.routes import REGISTRATION_PATH, build_metadata, cors_middleware, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from wikiholt.api.operations.page_writes import make_key_author
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.wiki import Key, Wiki
from wikiholt.domain.wiki import Scope as KeyScope
from wikiholt.errors import Forbidden, InvalidQuery, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.interfaces.http.request_context import TokenIdentity, get_request_context
from wikiholt.interfaces.http.responses import limit_body, make_json_response
from wikiholt.interfaces.mcp.oauth import SCOPES_BY_NAME
from wikiholt.wikis.oauth_grants import ACCESS_TOKEN_PREFIX, ACCESS_TOKEN_TTL_S, GrantKind, OAuthGrant
from wikiholt.wikis.rate_limit import get_network
from wikiholt.wikis.registry import Registry

_CONSENT_PATH = "/oauth/consent"
_EDITOR_SCHEMES = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf"})
"""Schemes of known agents without a dot. Others must contain one, as RFC 8252 says: systems own those without."""
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_MAX_REDIRECT_URIS = 10
_MAX_CLIENT_CHARS = 8000
_IMPLICIT_MARK = "implicit:"
"""Prefix of a redirect URI that the request did not name, because the client has only one."""


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The provider that the SDK's endpoints call, and the verifier of its tokens. Safe to use from many threads."""

    def __init__(self, registry: Registry, base: str, network: str = "") -> None:
        """`network` is where the request to register a client comes from."""
        self.registry = registry
        self.base = base
        self.network = network

    # Clients.

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        metadata = await run_in_threadpool(self.registry.oauth.find_client, client_id)
        return OAuthClientInformationFull.model_validate(metadata) if metadata else None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Store a client as a public one, whatever it asked for. Raises RegistrationError."""
        for uri in client_info.redirect_uris or ():
            if fault := _find_redirect_fault(str(uri)):
                raise RegistrationError("invalid_redirect_uri", fault)
        if not 0 < len(client_info.redirect_uris or ()) <= _MAX_REDIRECT_URIS:
            raise RegistrationError("invalid_redirect_uri", f"register 1 to {_MAX_REDIRECT_URIS} redirect URIs")
        client_info.client_secret = None
        client_info.client_secret_expires_at = None
        client_info.token_endpoint_auth_method = "none"  # noqa: S105 - the name of a method
        metadata = client_info.model_dump(mode="json", exclude_none=True)
        if len(str(metadata)) > _MAX_CLIENT_CHARS:
            raise RegistrationError("invalid_client_metadata", "the metadata is too long")
        await run_in_threadpool(self.registry.oauth.add_client, client_info.client_id, metadata, self.network)

    # The person.

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """The address of the consent page for this request. Raises AuthorizeError."""
        if params.resource is not None and self.find_slug(params.resource) is None:
            raise AuthorizeError("invalid_target", "the resource is not a wiki of this service")
        fields = {
            "client_id": client.client_id,
            "redirect_uri": str(params.redirect_uri),
            "explicit": "1" if params.redirect_uri_provided_explicitly else "",
            "state": params.state or "",
            "scope": " ".join(params.scopes or ()),
            "code_challenge": params.code_challenge,
            "resource": params.resource or "",
        }
        return f"{self.base}{_CONSENT_PATH}?{urlencode(fields)}"

    def find_slug(self, resource: str) -> str | None:
        """The slug of the wiki whose endpoint this resource is; None if it is none."""
        match = re.fullmatch(rf"{re.escape(self.base)}/w/([a-z0-9-]{{1,63}})/mcp/?", resource)
        return match[1] if match else None

    # Tokens.

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        grant = await run_in_threadpool(self.registry.oauth.find, GrantKind.CODE, authorization_code)
        if grant is None or grant.client_id != client.client_id:
            return None
        return AuthorizationCode(
            code=authorization_code,
            scopes=_to_scope_names(grant.scope),
            expires_at=inf,  # the registry finds no expired one
            client_id=grant.client_id,
            code_challenge=grant.code_challenge,
            redirect_uri=AnyUrl(grant.redirect_uri.removeprefix(_IMPLICIT_MARK)),
            redirect_uri_provided_explicitly=not grant.redirect_uri.startswith(_IMPLICIT_MARK),
            resource=grant.resource,
        )

    async def exchange_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - compared by `load_authorization_code`
        authorization_code: AuthorizationCode,
    ) -> OAuthToken:
        return await self._exchange(GrantKind.CODE, authorization_code.code, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        grant = await run_in_threadpool(self.registry.oauth.find, GrantKind.REFRESH, refresh_token)
        if grant is None or grant.client_id != client.client_id:
            return None
        return RefreshToken(token=refresh_token, client_id=grant.client_id, scopes=_to_scope_names(grant.scope))

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - compared by `load_refresh_token`
        refresh_token: RefreshToken,
        scopes: list[str],
    ) -> OAuthToken:
        return await self._exchange(GrantKind.REFRESH, refresh_token.token, scopes)

    async def _exchange(self, kind: GrantKind, secret: str, scopes: list[str]) -> OAuthToken:
        scope = KeyScope.WRITE if "write" in scopes else KeyScope.READ
        tokens = await run_in_threadpool(self.registry.oauth.exchange, kind, secret, str(scope))
        if tokens is None:
            raise TokenError("invalid_grant", "it was used already, has expired, or its key was revoked")
        access, refresh = tokens
        granted = " ".join(_to_scope_names(str(scope)))
        return OAuthToken(access_token=access, expires_in=ACCESS_TOKEN_TTL_S, refresh_token=refresh, scope=granted)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """The access token, for its revocation."""
        grant = await run_in_threadpool(self.registry.oauth.find, GrantKind.ACCESS, token)
        if grant is None:
            return None
        return AccessToken(token=token, client_id=grant.client_id, scopes=_to_scope_names(grant.scope))

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        await run_in_threadpool(self.registry.oauth.revoke, token.token)

    def is_token_format(self, token: str) -> bool:
        """Whether it looks like an access token of this server."""
        return token.startswith(ACCESS_TOKEN_PREFIX)

    def verify(self, token: str) -> TokenIdentity:
        """The wiki, scope and author of an access token. Raises Unauthorized."""
        oauth = self.registry.oauth
        grant = oauth.find(GrantKind.ACCESS, token)
        key = oauth.find_key(grant) if grant is not None else None
        if grant is None or key is None:
            raise Unauthorized("This token is invalid or has expired.", hint="Refresh it, or authorize again.")
        try:
            slug = self.registry.get_by_id(grant.wiki_id).slug
        except WikiNotFound:
            raise Unauthorized("This token is invalid or has expired.", hint="Authorize again.") from None
        return TokenIdentity(slug, KeyScope(grant.scope), key.id, make_key_author(key))

    # The page on which a person approves an agent with a key. The fields of the request travel in the page and are
    # checked again when it is sent. A page elsewhere cannot approve anything in the person's name: it would have to
    # know the key.

    async def handle_consent(self, request: Request) -> Response:
        limited = Request(request.scope, limit_body(request.scope, request.receive, _MAX_FORM_BYTES))
        form = await limited.form() if request.method == "POST" else None
        source = form if form is not None else request.query_params
        fields = {name: str(source.get(name, ""))[:_MAX_FIELD_CHARS] for name in _FIELDS}
        await run_in_threadpool(get_request_context(request).count_request)
        client = await self._check_request(fields)
        wiki = self.find_slug(fields["resource"]) or fields["resource"]
        if form is None:
            return _render(client, fields, wiki, "", 200)
        if form.get("action") != "approve":
            return _redirect(fields, {"error": "access_denied"})
        try:
            key = await run_in_threadpool(get_request_context(request).check_key, str(form.get("key", "")).strip())
            code = await run_in_threadpool(self._approve, client, fields, key)
        except WikiholtError as error:
            return _render(client, fields, wiki, " ".join(get_public_message(error)), error.status)
        return _redirect(fields, {"code": code})

    async def _check_request(self, fields: dict[str, str]) -> OAuthClientInformationFull:
        """Check again what the authorization endpoint has checked. Raises InvalidQuery."""
        client = await self.get_client(fields["client_id"])
        try:
            if client is None or not fields["code_challenge"] or _find_redirect_fault(fields["redirect_uri"]):
                raise InvalidQuery("This request is not valid.", hint="Start again in the agent.")
            client.validate_redirect_uri(AnyUrl(fields["redirect_uri"]))
        except (ValidationError, InvalidRedirectUriError):
            raise InvalidQuery("This request is not valid.", hint="Start again in the agent.") from None
        return client

    def _approve(self, client: OAuthClientInformationFull, fields: dict[str, str], key: Key) -> str:
        """The code for what the holder of this key approves. Raises Forbidden."""
        wiki = self._find_wiki(key, fields["resource"])
        may_write = "write" in fields["scope"].split() and key.scope.allows(KeyScope.WRITE)
        grant = OAuthGrant(
            client.client_id,
            key.id,
            wiki.id,
            str(KeyScope.WRITE if may_write else KeyScope.READ),
            fields["resource"],
            fields["code_challenge"],
            fields["redirect_uri"] if fields["explicit"] else _IMPLICIT_MARK + fields["redirect_uri"],
        )
        return self.registry.oauth.approve(grant)

    def _find_wiki(self, key: Key, resource: str) -> Wiki:
        """The wiki that the request names, or else that of the key. Raises Forbidden."""
        slug = self.find_slug(resource) if resource else None
        try:
            if resource and slug is not None:
                wiki = self.registry.get(slug)
            elif not resource and key.wiki_id is not None:
                wiki = self.registry.get_by_id(key.wiki_id)
            else:
                raise Forbidden("The agent named no wiki.", hint="Use the address of one wiki, which ends in /mcp.")
        except WikiNotFound:
            raise _make_other_wiki_error() from None
        if key.wiki_id not in (None, wiki.id):
            raise _make_other_wiki_error()
        return wiki


def _find_redirect_fault(uri: str) -> str:
    """Why codes must not be sent to this URI; empty if they may."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "a redirect URI must be an absolute URI"
    if parts.fragment or len(uri) > 2000:
        return "a redirect URI must be short and have no fragment"
    if "@" in parts.netloc:
        return "a redirect URI must have no user name, which looks like another host"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
        return "http is allowed for this machine only"
    if parts.scheme not in {"http", "https", *_EDITOR_SCHEMES} and "." not in parts.scheme:
        return f"the scheme {parts.scheme} is not allowed; use https, or one with a dot, like org.example.app"
    return ""


def _to_scope_names(scope: str) -> list[str]:
    return [name for name, value in SCOPES_BY_NAME.items() if KeyScope(scope).allows(value)]


def create_routes(server: AuthorizationServer) -> list[Route]:
    """The endpoints of the authorization server, each within the rate limit of the client's address."""
    issuer, scopes = AnyHttpUrl(server.base), list(SCOPES_BY_NAME)
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=scopes, default_scopes=scopes)
    revocation = RevocationOptions(enabled=True)
    metadata = build_metadata(issuer, None, registration, revocation)
    metadata.token_endpoint_auth_methods_supported = ["none"]
    metadata.revocation_endpoint_auth_methods_supported = ["none"]
    # Clients compare the issuer letter by letter, and the type of the SDK would add a slash.
    document = metadata.model_dump(mode="json", exclude_none=True) | {"issuer": server.base}
    handler = cors_middleware(lambda _: make_json_response(document), ["GET", "OPTIONS"])
    metadata_route = Route("/.well-known/oauth-authorization-server", handler, methods=["GET", "OPTIONS"])
    own_endpoints = {
        metadata_route.path: metadata_route.app,
        REGISTRATION_PATH: cors_middleware(partial(_register, server, registration), ["POST", "OPTIONS"]),
    }
    routes = create_auth_routes(server, issuer, client_registration_options=registration, revocation_options=revocation)
    limited_routes = [
        Route(route.path, _RateLimited(own_endpoints.get(route.path, route.app)), methods=list(route.methods or ()))
        for route in routes
    ]
    return [*limited_routes, Route(_CONSENT_PATH, server.handle_consent, methods=["GET", "POST"])]


async def _register(server: AuthorizationServer, options: ClientRegistrationOptions, request: Request) -> Response:
    """Register a client for the network that the request comes from."""
    limited = Request(request.scope, limit_body(request.scope, request.receive, _MAX_FORM_BYTES))
    network = get_network(request.client.host if request.client else "")
    provider = AuthorizationServer(server.registry, server.base, network)
    return await RegistrationHandler(provider, options).handle(limited)


class _RateLimited:
    """An endpoint within the rate limit of the client's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await run_in_threadpool(get_request_context(Request(scope)).count_request)
        await self._app(scope, receive, send)


# The consent page.


_FIELDS = ("client_id", "redirect_uri", "explicit", "state", "scope", "code_challenge", "resource")
_MAX_FIELD_CHARS = 4000
_MAX_FORM_BYTES = 64 * 1024
_STYLE = """
:root { color-scheme: light dark; color: light-dark(#1c2420, #e6ece8); background: light-dark(#f6f5f1, #111513); }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } strong, code { overflow-wrap: anywhere; }
label, input[type=password] { display: block; width: 100%; box-sizing: border-box; }
label { font-weight: 600; }
input[type=password], button { padding: .6rem .8rem; margin: .25rem 0 1rem; border: 1px solid #777; }
button { margin-right: .5rem; cursor: pointer; } input, button { font: inherit; border-radius: 9px; }
button[value=approve] { color: light-dark(#fff, #0b241b); background: light-dark(#1a6653, #85d3b8); font-weight: 600; }
:focus-visible { outline: 2px solid light-dark(#1a6653, #85d3b8); outline-offset: 2px; }
[role=alert] { border-left: .3rem solid #b00; padding-left: .8rem; }
"""
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def _make_other_wiki_error() -> Forbidden:
    return Forbidden("This key is not for the wiki that the agent asks for.", hint="Use a key of that wiki.")


def _redirect(fields: dict[str, str], answer: dict[str, str]) -> Response:
    """Send the person back to the agent, to a URI that was registered exactly so."""
    uri = fields["redirect_uri"]
    parameters = answer | ({"state": fields["state"]} if fields["state"] else {})
    location = f"{uri}{'&' if urlsplit(uri).query else '?'}{urlencode(parameters)}"
    return RedirectResponse(location, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def _render(
    client: OAuthClientInformationFull, fields: dict[str, str], wiki: str, problem: str, status: int
) -> Response:
    parts = urlsplit(fields["redirect_uri"])
    origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(fields[name])}">' for name in _FIELDS)
    may = "read and change" if "write" in fields["scope"].split() else "read"
    wiki_html = f"the wiki <strong>{escape(wiki)}</strong>" if wiki else "the wiki of your key"
    name = escape((client.client_name or "An agent without a name")[:100])
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Approve an agent</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>"
        f"<h1>Approve this agent?</h1>{alert}<p>The agent calls itself <strong>{name}</strong>. "
        f"It wants to {may} the pages of {wiki_html}. The answer goes to <code>{escape(origin)}</code>.</p>"
        "<p>Approve it only if you started this yourself, just now. To end its access later, revoke your key.</p>"
        f'<form method="post" autocomplete="off">{hidden}<label for="key">Your key</label>'
        '<input id="key" name="key" type="password" autocomplete="off" spellcheck="false">'
        '<button name="action" value="approve">Approve</button><button name="action" value="deny">Deny</button>'
        "</form></main></body></html>"
    )
    # Browsers apply form-action also to the redirect that follows the form.
    target = origin if origin.isascii() and not set(origin) & set(" ;,'\"") else "'self'"
    csp = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; form-action 'self' {target}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, status, {"Content-Security-Policy": csp, "Cache-Control": "no-store"})
