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

from wikiholt.errors import Forbidden, Unauthorized, WikiholtError
from wikiholt.model import Scope
from wikiholt.surfaces.http.bodies import bounded, json_response
from wikiholt.surfaces.http.edge import NAMED
from wikiholt.surfaces.http.problems import problem
from wikiholt.surfaces.http.visits import bearer, visitor
from wikiholt.surfaces.mcp.oauth import SCOPES, Issuers
from wikiholt.surfaces.mcp.server import Context, Entry, Terms, make_server
from wikiholt.wiring import Farm

ADDRESS = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
_ENTRY = "wikiholt.mcp"
_FOR_READING = 256 * 1024
"""Bytes that a request may have that cannot write: nobody fills the memory who may not."""
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def add_mcp(app: FastAPI, farm: Farm, below: str = "") -> None:
    """Answer agents at /mcp, or `below` an address of a host; say where tokens come from where issuers are set."""
    settings = farm.settings
    issuers = None
    if settings.oauth_issuers and not below:
        issuers = Issuers(settings.oauth_issuers, settings.oauth_resource, settings.oauth_jwks)
        app.router.routes.append(Route(f"{METADATA}/w/{{slug}}/mcp", _metadata_of(issuers), methods=["GET"]))
    server = make_server(_entry, Terms(settings.mcp_max_tokens, settings.mcp_aliases))
    endpoint = _Endpoint(server, issuers, settings.limit_body_bytes, settings.serve_cors_origins)
    endpoint.route = Route(f"{below}{ADDRESS}", endpoint, methods=["POST"])
    app.router.routes.append(endpoint.route)


def _entry(ctx: Context) -> Entry:
    """What was granted to the request that this message came with."""
    entry = ctx.request.scope[_ENTRY] if ctx.request is not None else None
    assert isinstance(entry, Entry), "no message comes here but by the endpoint"
    return entry


class _Endpoint:
    """The address that agents send messages to."""

    def __init__(self, server: Server[Any], issuers: Issuers | None, body_bytes: int, origins: tuple[str, ...]) -> None:
        self._server = server
        self._issuers = issuers
        self._body_bytes = body_bytes
        self._origins = frozenset(origins)
        self.route: Route | None = None

    async def __call__(self, scope: Environment, receive: Receive, send: Send) -> None:
        scope["route"] = self.route  # by which requests are counted; the framework notes only its own
        try:
            scope[_ENTRY] = entry = await run_in_threadpool(self._admit, Request(scope))
        except WikiholtError as error:
            await self._refusal(error, scope)(scope, receive, send)
            return
        limit = self._body_bytes if entry.scope.allows(Scope.WRITE) else min(self._body_bytes, _FOR_READING)
        # Read here, where what is wrong with a body is still this service's to answer.
        body = await Request(scope, bounded(scope, receive, limit)).body()
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, _replayed(body, receive), send)

    def _admit(self, request: Request) -> Entry:
        """Who asks may do what with which wiki; raises what access raises."""
        who = visitor(request)
        who.under_known_host()
        if not self._is_welcome(request):
            who.counted()
            raise Forbidden("Pages of this origin may not call this.", hint="The setting serve.cors_origins allows it.")
        token = bearer(request.headers.get("authorization"))
        if self._issuers is not None and token is not None and self._issuers.may_have_issued(token):
            wiki = who.vouched(self._issuers.vouch)
        else:
            wiki = who.as_allowed()
        return Entry(wiki.grant.scope, lambda: wiki)

    def _is_welcome(self, request: Request) -> bool:
        """Browsers say which page makes them ask: it must be ours, or one that is allowed to."""
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()

    def _refusal(self, error: WikiholtError, scope: Environment) -> Response:
        response = problem(error)
        named = scope.get(NAMED) or ""
        if isinstance(error, Unauthorized) and self._issuers is not None and _SLUG.fullmatch(named):
            where = f"{self._issuers.base}{METADATA}/w/{named}/mcp"
            known = f'Bearer realm="wikiholt", resource_metadata="{where}", scope="{" ".join(SCOPES)}"'
            response.headers["WWW-Authenticate"] = known
        return response


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, and then whatever comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _metadata_of(issuers: Issuers) -> Any:
    async def metadata(request: Request) -> Response:
        """What an agent must know to get a token (RFC 9728); the same whether there is such a wiki or not."""
        slug = request.path_params["slug"]
        await run_in_threadpool(visitor(request).counted)
        if not _SLUG.fullmatch(slug):
            return json_response({"error": "there is no such resource"}, 404)
        return json_response(issuers.metadata(slug))

    return metadata
