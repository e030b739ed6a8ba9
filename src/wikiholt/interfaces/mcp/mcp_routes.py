"""The protocol over HTTP, in the service: one address that takes POST, here and below /w/{slug}.

Every request brings its key and is answered by itself: there are no sessions, so nothing outlives a request and no
wiki can be reached by another's. Access decides before anything of the request is read.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Environment

from wikiholt.app.bootstrap import Application
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, Unauthorized, WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.problem_details import make_problem_response
from wikiholt.interfaces.http.request_context import get_request_context, parse_bearer_token
from wikiholt.interfaces.http.responses import limit_body, make_json_response
from wikiholt.interfaces.mcp.mcp_server import McpContext, ServerOptions, ToolContext, make_server
from wikiholt.interfaces.mcp.oauth import SCOPES_BY_NAME, TokenVerifier

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"
_TOOL_CONTEXT_KEY = "wikiholt.mcp"
_MAX_READ_BODY_BYTES = 256 * 1024
"""Bytes that a request may have that cannot write: nobody fills the memory who may not."""
_SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def add_mcp(app: FastAPI, application: Application, prefix: str = "") -> None:
    """Answer agents at /mcp, or `below` an address of a host; say where tokens come from where issuers are set."""
    settings = application.settings
    issuers = None
    if settings.oauth_issuers and not prefix:
        issuers = TokenVerifier(settings.oauth_issuers, settings.oauth_resource, settings.oauth_jwks)
        app.router.routes.append(
            Route(f"{METADATA_PATH}/w/{{slug}}/mcp", _make_metadata_handler(issuers), methods=["GET"])
        )
    server = make_server(_get_tool_context, ServerOptions(settings.mcp_max_tokens, settings.mcp_aliases))
    endpoint = _McpEndpoint(server, issuers, settings.limit_body_bytes, settings.serve_cors_origins)
    endpoint.route = Route(f"{prefix}{MCP_PATH}", endpoint, methods=["POST"])
    app.router.routes.append(endpoint.route)


def _get_tool_context(ctx: McpContext) -> ToolContext:
    """What was granted to the request that this message came with."""
    entry = ctx.request.scope[_TOOL_CONTEXT_KEY] if ctx.request is not None else None
    assert isinstance(entry, ToolContext), "no message comes here but by the endpoint"
    return entry


class _McpEndpoint:
    """The address that agents send messages to."""

    def __init__(
        self, server: Server[Any], verifier: TokenVerifier | None, body_bytes: int, origins: tuple[str, ...]
    ) -> None:
        self._server = server
        self._verifier = verifier
        self._body_bytes = body_bytes
        self._origins = frozenset(origins)
        self.route: Route | None = None

    async def __call__(self, scope: Environment, receive: Receive, send: Send) -> None:
        scope["route"] = self.route  # by which requests are counted; the framework notes only its own
        try:
            scope[_TOOL_CONTEXT_KEY] = entry = await run_in_threadpool(self._authorize, Request(scope))
        except WikiholtError as error:
            await self._make_error_response(error, scope)(scope, receive, send)
            return
        limit = self._body_bytes if entry.scope.allows(Scope.WRITE) else min(self._body_bytes, _MAX_READ_BODY_BYTES)
        # Read here, where what is wrong with a body is still this service's to answer.
        body = await Request(scope, limit_body(scope, receive, limit)).body()
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, _replay_body(body, receive), send)

    def _authorize(self, request: Request) -> ToolContext:
        """Who asks may do what with which wiki; raises what access raises."""
        who = get_request_context(request)
        who.require_known_host()
        if not self._is_allowed_origin(request):
            who.count_request()
            raise Forbidden("Pages of this origin may not call this.", hint="The setting serve.cors_origins allows it.")
        token = parse_bearer_token(request.headers.get("authorization"))
        if self._verifier is not None and token is not None and self._verifier.is_token_format(token):
            wiki = who.open_wiki_for_token(self._verifier.verify)
        else:
            wiki = who.open_wiki_best_scope()
        return ToolContext(wiki.grant.scope, lambda: wiki)

    def _is_allowed_origin(self, request: Request) -> bool:
        """Browsers say which page makes them ask: it must be ours, or one that is allowed to."""
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()

    def _make_error_response(self, error: WikiholtError, scope: Environment) -> Response:
        response = make_problem_response(error)
        named = scope.get(SLUG_KEY) or ""
        if isinstance(error, Unauthorized) and self._verifier is not None and _SLUG_PATTERN.fullmatch(named):
            where = f"{self._verifier.base}{METADATA_PATH}/w/{named}/mcp"
            known = f'Bearer realm="wikiholt", resource_metadata="{where}", scope="{" ".join(SCOPES_BY_NAME)}"'
            response.headers["WWW-Authenticate"] = known
        return response


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, and then whatever comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _make_metadata_handler(verifier: TokenVerifier) -> Any:
    async def metadata(request: Request) -> Response:
        """What an agent must know to get a token (RFC 9728); the same whether there is such a wiki or not."""
        slug = request.path_params["slug"]
        await run_in_threadpool(get_request_context(request).count_request)
        if not _SLUG_PATTERN.fullmatch(slug):
            return make_json_response({"error": "there is no such resource"}, 404)
        return make_json_response(verifier.build_metadata(slug))

    return metadata
