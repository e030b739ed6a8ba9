"""MCP over HTTP: one endpoint for POST, at /mcp and below /w/{slug}.

It is stateless: every request is authorized by itself, before its body is read, and no session outlives a request.
"""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Environment

from wikiholt.api.bootstrap import Application
from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, InvalidQuery, Unauthorized, WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.problem_details import make_problem_response
from wikiholt.interfaces.http.request_context import get_request_context, parse_bearer_token
from wikiholt.interfaces.http.responses import limit_body, make_json_response
from wikiholt.interfaces.mcp.authorization_server import AuthorizationServer, create_routes
from wikiholt.interfaces.mcp.mcp_server import McpContext, ToolContext, make_server
from wikiholt.interfaces.mcp.oauth import SCOPES_BY_NAME, TokenVerifier
from wikiholt.wikis.multi_search import OpenedWikis
from wikiholt.wikis.session import WikiSession

AnyTokenVerifier = TokenVerifier | AuthorizationServer

METADATA_PATH = "/.well-known/oauth-protected-resource"
_TOOL_CONTEXT_KEY = "wikiholt.mcp"
_MAX_READ_BODY_BYTES = 256 * 1024
"""Body limit of requests without the scope write, so that they cannot fill the memory."""
_INTRODUCTIONS = (b'"initialize"', b'"server/discover"')
"""The methods whose answers have the instructions, which take a query of the index."""
_SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def add_oauth(app: FastAPI, application: Application) -> Sequence[AnyTokenVerifier]:
    """Add the OAuth metadata and the routes of our own authorization server; return the verifiers of tokens."""
    settings = application.settings
    verifiers: list[AnyTokenVerifier] = []
    base = settings.oauth_resource
    if settings.oauth_issuers:
        verifiers.append(TokenVerifier(settings.oauth_issuers, base, settings.oauth_jwks))
    if settings.mcp_oauth:
        server = AuthorizationServer(application.service.registry, base)
        verifiers.append(server)
        app.router.routes += create_routes(server)
    issuers = (*((base,) if settings.mcp_oauth else ()), *settings.oauth_issuers)
    handler = _make_metadata_handler(base, issuers)
    app.router.routes.append(Route(f"{METADATA_PATH}/w/{{slug}}/mcp", handler, methods=["GET"]))
    return verifiers


def _refuse_several_wikis() -> WikiSession:
    """The opener of a request for several wikis, which only the search of several wikis can use."""
    raise InvalidQuery("These keys are for several wikis.", hint="Use search here, and /w/SLUG/mcp for one wiki.")


def _get_tool_context(ctx: McpContext) -> ToolContext:
    """The context that the endpoint stored for the request of this message."""
    tool_context = ctx.request.scope[_TOOL_CONTEXT_KEY] if ctx.request is not None else None
    assert isinstance(tool_context, ToolContext), "the endpoint sets it"
    return tool_context


class McpEndpoint:
    """The ASGI endpoint for MCP messages. Keys are verified without a verifier."""

    def __init__(self, settings: Settings, verifiers: Sequence[AnyTokenVerifier] = ()) -> None:
        self._settings = settings
        self._base = settings.oauth_resource
        self._verifiers = tuple(verifiers)
        self._body_bytes = settings.limit_body_bytes
        self._origins = frozenset(settings.serve_cors_origins)

    async def __call__(self, scope: Environment, receive: Receive, send: Send) -> None:
        try:
            scope[_TOOL_CONTEXT_KEY] = tool_context = await run_in_threadpool(self._authorize, Request(scope))
        except WikiholtError as error:
            await self._make_error_response(error, scope)(scope, receive, send)
            return
        can_write = tool_context.scope.allows(Scope.WRITE)
        limit = self._body_bytes if can_write else min(self._body_bytes, _MAX_READ_BODY_BYTES)
        # Read the body here, so that its errors get our error responses.
        body = await Request(scope, limit_body(scope, receive, limit)).body()
        slug = "" if tool_context.wikis else tool_context.open().wiki.slug
        is_introduction = any(method in body for method in _INTRODUCTIONS)
        about = await run_in_threadpool(tool_context.describe) if is_introduction else ""
        server = make_server(_get_tool_context, self._settings, slug, about)
        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=self._body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, _replay_body(body, receive), send)

    def _authorize(self, request: Request) -> ToolContext:
        """Authorize the request. Raises Unauthorized, Forbidden or TooManyRequests."""
        context = get_request_context(request)
        context.require_known_host()
        if not self._is_allowed_origin(request):
            context.count_request()
            raise Forbidden("This origin is not allowed.", hint="The setting serve.cors_origins allows it.")
        token = parse_bearer_token(request.headers.get("authorization"))
        verifier = next((one for one in self._verifiers if token is not None and one.is_token_format(token)), None)
        if verifier is not None:
            opened = OpenedWikis([context.open_wiki_for_token(verifier.verify)], {})
        else:
            opened = context.open_wikis_best_scope()
        if len(opened.sessions) == 1 and not opened.failures:
            session = opened.sessions[0]
            return ToolContext(session.grant.scope, lambda: session, check_access=lambda: self._authorize(request))
        return ToolContext(Scope.READ, _refuse_several_wikis, opened)

    def _is_allowed_origin(self, request: Request) -> bool:
        """Whether the Origin header is absent, configured, or our own host."""
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()

    def _make_error_response(self, error: WikiholtError, scope: Environment) -> Response:
        response = make_problem_response(error)
        slug = scope.get(SLUG_KEY) or ""
        if isinstance(error, Unauthorized) and self._verifiers and _SLUG_PATTERN.fullmatch(slug):
            url = f"{self._base}{METADATA_PATH}/w/{slug}/mcp"
            scopes = " ".join(SCOPES_BY_NAME)
            challenge = f'Bearer realm="wikiholt", resource_metadata="{url}", scope="{scopes}"'
            response.headers["WWW-Authenticate"] = challenge
        return response


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns the body first, which was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _make_metadata_handler(base: str, issuers: Sequence[str]) -> Any:
    async def handle_metadata(request: Request) -> Response:
        """The protected resource metadata (RFC 9728). It does not reveal whether the wiki exists."""
        slug = request.path_params["slug"]
        await run_in_threadpool(get_request_context(request).count_request)
        if not _SLUG_PATTERN.fullmatch(slug):
            return make_json_response({"error": "there is no such resource"}, 404)
        document = {
            "resource": f"{base}/w/{slug}/mcp",
            "authorization_servers": list(issuers),
            "scopes_supported": list(SCOPES_BY_NAME),
            "bearer_methods_supported": ["header"],
            "resource_name": "Wikiholt",
        }
        return make_json_response(document)

    return handle_metadata
