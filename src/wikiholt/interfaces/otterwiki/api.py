"""The API, an ASGI application, called from the threads of a WSGI server.

One event loop in one thread, made by whoever calls first: never in a process that is yet to fork, for each bridge
belongs to the farm of one process. Routes run in threads of the loop's own, as many as there are callers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from threading import Lock, Thread
from typing import Any
from urllib.parse import quote

from a2wsgi import ASGIMiddleware
from flask import Blueprint, Flask, Response, request
from otterwiki.plugins import plugin_manager
from starlette.responses import Response as Built
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as CallScope

from wikiholt.app.bootstrap import Application
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.host_grant import HOST_GRANT_KEY, HostGrant
from wikiholt.interfaces.http.problem_details import (
    make_error_response,
    make_internal_error_response,
    make_problem_response,
)
from wikiholt.interfaces.otterwiki.permissions import SharedKey, build_host_grant, load_shared_key, require_csrf_token
from wikiholt.interfaces.otterwiki.plugin_runtime import CurrentWiki, PluginRuntime
from wikiholt.text.page_parser import get_page_path
from wikiholt.wikis.session import ChangeKind, CommitEvent

RESPONSE_TIMEOUT_S = 120.0
"""How long a caller waits; longer than anything that a route waits for itself."""
MAX_MCP_MESSAGE_BYTES = 64 * 1024
"""How much is taken in of who may only read: agents ask by messages."""
_CLEANUP_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class BridgeResponse:
    """An answer of the API."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class AsgiBridge:
    """Calls one application. Safe to use from many threads."""

    def __init__(self, app: ASGIApp, body_bytes: int, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        loop = asyncio.new_event_loop()
        Thread(target=loop.run_forever, name="wikiholt-api", daemon=True).start()
        self._wsgi = ASGIMiddleware(_TimeLimitedApp(app, timeout_s), _CLEANUP_TIMEOUT_S, loop)  # type: ignore[arg-type]
        self._body_bytes = body_bytes

    def call(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> BridgeResponse:
        """The answer to a request, given as WSGI has it, of a visitor whom the host has looked at."""
        begun: list[tuple[int, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _fault: object = None) -> None:
            begun.append((int(status.partition(" ")[0]), headers))

        environ = {**wsgi_environ, **self._clean_environ(wsgi_environ, host_grant), HOST_GRANT_KEY: host_grant}
        chunks: Iterable[bytes] = self._wsgi(environ, start)  # type: ignore[arg-type]
        body = b"".join(chunks)
        status, headers = begun[-1]
        return BridgeResponse(status, tuple(headers), body)

    def _clean_environ(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> dict[str, Any]:
        """What the way to ASGI would stumble over, put right: odd bytes in an address, bodies that end too early."""
        path = wsgi_environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace").encode().decode("latin-1")
        query = quote(wsgi_environ.get("QUERY_STRING", ""), safe="%&=+:/?@!$'()*,;~[]-._", encoding="latin-1")
        body = self._read_body(wsgi_environ, host_grant)
        return {
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_PORT": str(wsgi_environ.get("REMOTE_PORT") or 0),
            "wsgi.input": BytesIO(body),
            # A body that was announced as too large keeps its length, by which it is refused.
            "CONTENT_LENGTH": str(len(body))
            if body or not self._is_too_large(wsgi_environ)
            else wsgi_environ["CONTENT_LENGTH"],
        }

    def _read_body(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> bytes:
        """All that was sent, of who may change something, and small messages of agents: no more is held in memory."""
        if (
            host_grant is None
            or not (host_grant.can_write or _is_mcp_message(wsgi_environ))
            or self._is_too_large(wsgi_environ)
        ):
            return b""
        length = _get_content_length(wsgi_environ)
        if length is None and not wsgi_environ.get("wsgi.input_terminated"):
            return b""
        # One byte more than is allowed is enough to be refused by.
        data: bytes = wsgi_environ["wsgi.input"].read(self._body_bytes + 1 if length is None else length)
        return data

    def _is_too_large(self, wsgi_environ: dict[str, Any]) -> bool:
        return (_get_content_length(wsgi_environ) or 0) > self._body_bytes


def _is_mcp_message(wsgi_environ: dict[str, Any]) -> bool:
    """Whether an agent asks by it: that takes a body even where nothing is to be changed."""
    asks = (wsgi_environ.get("REQUEST_METHOD"), wsgi_environ.get("PATH_INFO")) == ("POST", "/api/v1/mcp")
    return asks and (_get_content_length(wsgi_environ) or 0) <= MAX_MCP_MESSAGE_BYTES


def _get_content_length(wsgi_environ: dict[str, Any]) -> int | None:
    text = wsgi_environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isdecimal() else None


class _TimeLimitedApp:
    """The application with what the host has decided in its scope, and an end to waiting for it."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: CallScope, receive: Receive, send: Send) -> None:
        scope = {name: value for name, value in scope.items() if name != "wsgi_environ"} | {
            HOST_GRANT_KEY: scope["wsgi_environ"][HOST_GRANT_KEY]
        }
        answer = _GuardedSender(send)
        work = asyncio.ensure_future(self._app(scope, receive, answer.send))
        done, _ = await asyncio.wait({work}, timeout=self._timeout_s)
        if done:
            await work
            return
        work.cancel()  # a route in a thread ends when it does; nobody waits for it
        if answer.close_if_unstarted():
            told = make_error_response(
                503, "too-slow", "The answer takes too long.", "Try again in a moment.", {"Retry-After": "5"}
            )
            await told(scope, receive, send)


class _GuardedSender:
    """Passes an answer on, unless it comes too late."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._closed = False

    async def send(self, message: Message) -> None:
        if not self._closed:
            self._started = True
            await self._send(message)

    def close_if_unstarted(self) -> bool:
        """Let nothing more pass; whether nothing has yet."""
        self._closed = True
        return not self._started


# Telling Otterwiki of commits that the API has made: its hooks and its push, as after a save of its own.


_log = logging.getLogger(__name__)


def notify_otterwiki(current_wiki: CurrentWiki, host_grant: HostGrant) -> None:
    """Call, in the request's own thread, what Otterwiki would; what another plugin raises is logged, for the commit
    is made."""
    for commit in host_grant.commits:
        _call_safely(lambda files: plugin_manager.hook.repository_changed(changed_files=files), list(commit.files))
        _call_safely(_push_repository)
        _call_safely(_notify_page_change, current_wiki, host_grant, commit)


def _notify_page_change(current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent) -> None:
    hook, shown = plugin_manager.hook, host_grant.path_style.to_display_path
    author, message = (commit.author.name, commit.author.email), commit.message
    if commit.kind is ChangeKind.SAVED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files)
    elif commit.kind is ChangeKind.DELETED:
        hook.page_deleted(pagepath=shown(commit.path), author=author, message=message)
    elif commit.kind is ChangeKind.RENAMED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files[1:])
        hook.page_renamed(
            old_pagepath=shown(commit.path), new_pagepath=shown(commit.new_path), author=author, message=message
        )


def _notify_page_saved(
    current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent, files: Sequence[str]
) -> None:
    contents = current_wiki.application.service.get_handle(current_wiki.wiki.slug).pages
    for path in map(get_page_path, files):
        plugin_manager.hook.page_saved(
            pagepath=host_grant.path_style.to_display_path(path),
            content=contents.read(path).content,
            author=(commit.author.name, commit.author.email),
            message=commit.message,
        )


def _push_repository() -> None:
    from otterwiki.repomgmt import get_repo_manager  # noqa: PLC0415 - it is loaded after the plugins are set up

    manager = get_repo_manager()
    if manager:
        manager.auto_push_if_enabled()


def _call_safely(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - it may raise anything, and the commit is made all the same
        _log.exception("a hook failed after a commit was made over the API")


# The API under /api/v1 of the wiki: Otterwiki says who asks and what they may, the service's own routes answer.


_ALLOWED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FORM_MEDIA_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_SAFE_LENGTH = 16
"""Characters that a key needs so that nobody finds it by trying."""
_PUBLIC_PATHS = ("/api/v1/health", "/api/v1/openapi.json")
"""What says nothing of any wiki."""


def register(app: Flask, runtime: PluginRuntime) -> None:
    """Add the API to the wiki."""
    from otterwiki.server import csrf  # noqa: PLC0415 - this is called while that module is being loaded

    shared = load_shared_key(app.config)
    if 0 < len(shared.token) < _SAFE_LENGTH:
        _log.warning("OTTERWIKI_API_KEY is so short that it can be guessed: use at least %d characters", _SAFE_LENGTH)
    api = OtterwikiApi(runtime, shared)
    blueprint = Blueprint("wikiholt_api", __name__, url_prefix="/api/v1")
    for rule in ("/", "/<path:rest>"):
        blueprint.add_url_rule(
            rule, f"all{len(rule)}", api.handle_request, methods=_ALLOWED_METHODS, provide_automatic_options=False
        )
    # Who has a key needs no token of a form; who has none is asked for it in the view.
    csrf.exempt(blueprint)
    app.register_blueprint(blueprint)


class OtterwikiApi:
    """Answers requests to the API of whichever wiki they are about."""

    def __init__(self, runtime: PluginRuntime, shared_key: SharedKey) -> None:
        self._runtime = runtime
        self._shared_key = shared_key
        self._lock = Lock()
        self._bridge_cache: tuple[Application, AsgiBridge] | None = None
        self._last_error_message = ""

    def handle_request(self, rest: str = "") -> Response:  # noqa: ARG002 - the whole address is passed on
        try:
            return self._respond()
        except WikiholtError as error:
            return _convert_response(make_problem_response(error))
        except Exception:  # noqa: BLE001 - the visitor gets an answer, the log the rest
            _log.exception("a request to the API failed")
            return _convert_response(make_internal_error_response())

    def _respond(self) -> Response:
        try:
            farm = self._runtime.application
            if request.path in _PUBLIC_PATHS:
                return _to_flask_response(self._get_bridge(farm).call(request.environ, None))
            here = self._runtime.get_current_wiki()
        except WikiholtError as error:
            return self._make_not_set_up_response(error)
        given = build_host_grant(here, self._shared_key)
        if given.key is None and given.can_write:
            require_csrf_token()
        environ = dict(request.environ)
        if (
            request.mimetype in _FORM_MEDIA_TYPES
        ):  # it was read for the token, and holds nothing else that the API takes
            environ["CONTENT_LENGTH"] = "0"
        answered = self._get_bridge(here.application).call(environ, given)
        notify_otterwiki(here, given)
        return _to_flask_response(answered)

    def _make_not_set_up_response(self, error: WikiholtError) -> Response:
        """What is wrong is the owner's to mend, and may name what is no visitor's business: the log has it, once."""
        if self._last_error_message != error.message:
            self._last_error_message = error.message
            _log.error("the API cannot answer: %s (%s)", error.message, error.hint)
        hint = "Whoever runs the wiki finds the reason in its log."
        return _convert_response(
            make_error_response(503, "not-set-up", "Search is not set up rightly in this wiki.", hint)
        )

    def _get_bridge(self, application: Application) -> AsgiBridge:
        """That of this process: after a fork there is another farm, and its first caller makes the bridge to it."""
        bridged = self._bridge_cache
        if bridged is None or bridged[0] is not application:
            with self._lock:
                bridged = self._bridge_cache
                if bridged is None or bridged[0] is not application:
                    made = AsgiBridge(create_host_app(application), application.settings.limit_body_bytes)
                    self._bridge_cache = bridged = (application, made)
        return bridged[1]


def _to_flask_response(response: BridgeResponse) -> Response:
    return Response(response.body, response.status, list(response.headers))


def _convert_response(response: Built) -> Response:
    return Response(bytes(response.body), response.status_code, list(response.headers.items()))
