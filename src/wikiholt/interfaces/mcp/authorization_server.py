"""The OAuth 2.1 authorization server for agents: the SDK's endpoints over what the registry stores.

A client registers itself, a person approves it on the consent page with a key, and the client gets tokens for the wiki
in the resource it named. Every client is public and must use PKCE, so no client secret is stored.
"""

import re
from urllib.parse import urlencode, urlsplit

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
from mcp.server.auth.routes import build_metadata, cors_middleware, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from wikiholt.domain.wiki import Scope as KeyScope
from wikiholt.errors import Unauthorized, WikiholtError, WikiNotFound
from wikiholt.interfaces.http.problem_details import make_problem_response
from wikiholt.interfaces.http.request_context import TokenIdentity, get_request_context
from wikiholt.interfaces.http.responses import make_json_response
from wikiholt.interfaces.http.write_request import make_key_author
from wikiholt.interfaces.mcp.oauth import SCOPES_BY_NAME
from wikiholt.wikis.oauth_grants import ACCESS_TOKEN_PREFIX, ACCESS_TOKEN_TTL_S, GrantKind, OAuthGrant
from wikiholt.wikis.registry import Registry

CONSENT_PATH = "/oauth/consent"
_FOREVER = float("inf")
_UNSAFE_SCHEMES = frozenset({"javascript", "data", "vbscript", "file", "blob", "about", "ftp", "ws", "wss"})
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_MAX_REDIRECT_URIS = 10
_MAX_CLIENT_CHARS = 8000


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The provider that the SDK's endpoints call, and the verifier of its tokens. Safe to use from many threads."""

    def __init__(self, registry: Registry, base: str) -> None:
        self.registry = registry
        self.base = base

    # Clients.

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        metadata = await run_in_threadpool(self.registry.oauth.find_client, client_id)
        return OAuthClientInformationFull.model_validate(metadata) if metadata else None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Store a client as a public one, whatever it asked for. Raises RegistrationError."""
        for uri in client_info.redirect_uris or ():
            if fault := find_redirect_fault(str(uri)):
                raise RegistrationError("invalid_redirect_uri", fault)
        if not 0 < len(client_info.redirect_uris or ()) <= _MAX_REDIRECT_URIS:
            raise RegistrationError("invalid_redirect_uri", f"register 1 to {_MAX_REDIRECT_URIS} redirect URIs")
        client_info.client_secret = None
        client_info.client_secret_expires_at = None
        client_info.token_endpoint_auth_method = "none"  # noqa: S105 - the name of a method
        metadata = client_info.model_dump(mode="json", exclude_none=True)
        if len(str(metadata)) > _MAX_CLIENT_CHARS:
            raise RegistrationError("invalid_client_metadata", "the metadata is too long")
        try:
            await run_in_threadpool(self.registry.oauth.add_client, client_info.client_id, metadata)
        except WikiholtError as error:
            raise RegistrationError("invalid_client_metadata", error.message) from None

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
        return f"{self.base}{CONSENT_PATH}?{urlencode(fields)}"

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
            expires_at=_FOREVER,  # the registry finds no expired one
            client_id=grant.client_id,
            code_challenge=grant.code_challenge,
            redirect_uri=AnyUrl(grant.redirect_uri.removeprefix(IMPLICIT_MARK)),
            redirect_uri_provided_explicitly=not grant.redirect_uri.startswith(IMPLICIT_MARK),
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


IMPLICIT_MARK = "implicit:"
"""Prefix of a redirect URI that the request did not name, because the client has only one."""


def find_redirect_fault(uri: str) -> str:
    """Why codes must not be sent to this URI; empty if they may."""
    parts = urlsplit(uri)
    if parts.fragment or len(uri) > 2000:
        return "a redirect URI must be short and have no fragment"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
        return "http is allowed for this machine only"
    if parts.scheme in _UNSAFE_SCHEMES:
        return f"the scheme {parts.scheme} is not allowed"
    return ""


def _to_scope_names(scope: str) -> list[str]:
    return [name for name, value in SCOPES_BY_NAME.items() if KeyScope(scope).allows(value)]


def make_grant(client_id: str, key_id: str, wiki_id: str, scope: KeyScope, fields: dict[str, str]) -> OAuthGrant:
    """What a person approved on the consent page, whose fields were checked."""
    return OAuthGrant(
        client_id,
        key_id,
        wiki_id,
        str(scope),
        fields["resource"],
        fields["code_challenge"],
        fields["redirect_uri"] if fields["explicit"] else IMPLICIT_MARK + fields["redirect_uri"],
    )


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
    routes = create_auth_routes(server, issuer, client_registration_options=registration, revocation_options=revocation)
    return [
        Route(route.path, _RateLimited(route.app), methods=list(route.methods or ()))
        for route in (metadata_route, *(route for route in routes if route.path != metadata_route.path))
    ]


class _RateLimited:
    """An endpoint within the rate limit of the client's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_in_threadpool(get_request_context(Request(scope)).count_request)
        except WikiholtError as error:
            await make_problem_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)
