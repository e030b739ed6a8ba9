"""The HTTP API under /api/v1 of Otterwiki: a bridge from WSGI threads to the ASGI application.

The first request creates one event loop in one thread, so a process that will fork never has one. Routes run in the
threads of that loop.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
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

from wikiholt.api.bootstrap import Application
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.problem_details import (
    make_error_response,
    make_internal_error_response,
    make_problem_response,
)
from wikiholt.interfaces.http.request_context import HOST_GRANT_KEY, HostGrant
from wikiholt.interfaces.otterwiki import log_once
from wikiholt.interfaces.otterwiki.legacy_api import call_for_legacy_clients
from wikiholt.interfaces.otterwiki.permissions import SharedKey, build_host_grant, require_csrf_token
from wikiholt.interfaces.otterwiki.plugin_runtime import CurrentWiki, PluginRuntime
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.session import ChangeKind, CommitEvent

RESPONSE_TIMEOUT_S = 120.0
"""How long a request waits for a response; longer than any timeout of a route."""
MAX_MCP_MESSAGE_BYTES = 64 * 1024
"""Maximum body of a client that may only read; MCP requests are messages."""
_CLEANUP_TIMEOUT_S = 1.0


class AsgiBridge:
    """Calls one ASGI application. Safe to use from many threads."""

    def __init__(self, app: ASGIApp, body_bytes: int, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        loop = asyncio.new_event_loop()
        Thread(target=loop.run_forever, name="wikiholt-api", daemon=True).start()
        self._wsgi = ASGIMiddleware(_TimeLimitedApp(app, timeout_s), _CLEANUP_TIMEOUT_S, loop)  # type: ignore[arg-type]
        self._body_bytes = body_bytes

    def call(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> Response:
        """The response to a WSGI request with the rights that the host granted."""
        started: list[tuple[int, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _exc_info: object = None) -> None:
            started.append((int(status.partition(" ")[0]), headers))

        environ = {**wsgi_environ, **self._clean_environ(wsgi_environ, host_grant), HOST_GRANT_KEY: host_grant}
        chunks: Iterable[bytes] = self._wsgi(environ, start_response)  # type: ignore[arg-type]
        body = b"".join(chunks)
        return Response(body, *started[-1])

    def _clean_environ(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> dict[str, Any]:
        """Replacements for what a2wsgi cannot handle: invalid bytes in a URL, truncated bodies."""
        path = wsgi_environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace").encode().decode("latin-1")
        query = quote(wsgi_environ.get("QUERY_STRING", ""), safe="%&=+:/?@!$'()*,;~[]-._", encoding="latin-1")
        body = self._read_body(wsgi_environ, host_grant)
        return {
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_PORT": str(wsgi_environ.get("REMOTE_PORT") or 0),
            "wsgi.input": BytesIO(body),
            # Keep the announced length of a body that is too large: the application refuses it by that.
            "CONTENT_LENGTH": str(len(body))
            if body or not self._is_too_large(wsgi_environ)
            else wsgi_environ["CONTENT_LENGTH"],
        }

    def _read_body(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> bytes:
        """Read the body of a client that may write, or a small MCP message; keep nothing else in memory."""
        if (
            host_grant is None
            or not (host_grant.can_write or _is_mcp_message(wsgi_environ))
            or self._is_too_large(wsgi_environ)
        ):
            return b""
        length = _get_content_length(wsgi_environ)
        if length is None and not wsgi_environ.get("wsgi.input_terminated"):
            return b""
        # One byte over the limit is enough for a refusal.
        data: bytes = wsgi_environ["wsgi.input"].read(self._body_bytes + 1 if length is None else length)
        return data

    def _is_too_large(self, wsgi_environ: dict[str, Any]) -> bool:
        return (_get_content_length(wsgi_environ) or 0) > self._body_bytes


def _is_mcp_message(wsgi_environ: dict[str, Any]) -> bool:
    """Whether this is a small MCP request, which needs a body even to read."""
    is_mcp = (wsgi_environ.get("REQUEST_METHOD"), wsgi_environ.get("PATH_INFO")) == ("POST", "/api/v1/mcp")
    return is_mcp and (_get_content_length(wsgi_environ) or 0) <= MAX_MCP_MESSAGE_BYTES


def _get_content_length(wsgi_environ: dict[str, Any]) -> int | None:
    text = wsgi_environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isdecimal() else None


class _TimeLimitedApp:
    """Adds the host grant to the scope, and responds with 503 after a timeout."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: CallScope, receive: Receive, send: Send) -> None:
        scope = {name: value for name, value in scope.items() if name != "wsgi_environ"} | {
            HOST_GRANT_KEY: scope["wsgi_environ"][HOST_GRANT_KEY]
        }
        is_started = is_closed = False

        async def send_until_closed(message: Message) -> None:
            nonlocal is_started
            if not is_closed:
                is_started = True
                await send(message)

        task = asyncio.ensure_future(self._app(scope, receive, send_until_closed))
        done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        if done:
            await task
            return
        task.cancel()  # a route in a thread runs to its end, but nothing waits for it
        is_closed = True
        if not is_started:
            response = make_error_response(
                503, "too-slow", "The request timed out.", "Try again in a moment.", {"Retry-After": "5"}
            )
            await response(scope, receive, send)


# Notification of Otterwiki about commits of the API, as after a save in Otterwiki


_log = logging.getLogger(__name__)


def notify_otterwiki(current_wiki: CurrentWiki, host_grant: HostGrant) -> None:
    """Call Otterwiki's hooks and push for each commit, in the thread of the request. Errors are only logged."""
    for commit in host_grant.commits:
        files = [*commit.files, *(moved.new for moved in commit.moved)]
        _call_safely(lambda files: plugin_manager.hook.repository_changed(changed_files=files), files)
        _call_safely(_push_repository)
        _call_safely(_notify_page_change, current_wiki, host_grant, commit)


def _notify_page_change(current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent) -> None:
    hook, to_display_path = plugin_manager.hook, host_grant.path_style.to_display_path
    author, message = (commit.author.name, commit.author.email), commit.message
    if commit.kind is ChangeKind.SAVED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files)
    elif commit.kind is ChangeKind.DELETED:
        hook.page_deleted(pagepath=to_display_path(commit.path), author=author, message=message)
    elif commit.kind is ChangeKind.RENAMED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files[1:])
        sub_pages = [(get_page_path(moved.old), get_page_path(moved.new)) for moved in commit.moved if moved.is_page]
        for old, new in [(commit.path, commit.new_path), *sub_pages]:
            hook.page_renamed(
                old_pagepath=to_display_path(old), new_pagepath=to_display_path(new), author=author, message=message
            )


def _notify_page_saved(
    current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent, files: Sequence[str]
) -> None:
    pages = current_wiki.application.service.get_handle(current_wiki.wiki.slug).pages
    for path in map(get_page_path, files):
        plugin_manager.hook.page_saved(
            pagepath=host_grant.path_style.to_display_path(path),
            content=pages.read(path).content,
            author=(commit.author.name, commit.author.email),
            message=commit.message,
        )


def _push_repository() -> None:
    from otterwiki.repomgmt import get_repo_manager  # noqa: PLC0415 - Otterwiki loads this after its plugins

    manager = get_repo_manager()
    if manager:
        manager.auto_push_if_enabled()


def _call_safely(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - hooks may raise anything; the commit exists already
        _log.exception("a hook failed after a commit of the API")


# The Flask view: Otterwiki determines the user and the permissions, the routes of the HTTP API respond


_ALLOWED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FORM_MEDIA_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_MIN_KEY_CHARS = 16
"""Minimum length of a shared key that cannot be guessed."""
_PUBLIC_PATHS = ("/api/v1/health", "/api/v1/openapi.json")
"""Paths that contain no wiki data."""


def register(app: Flask, runtime: PluginRuntime) -> None:
    """Add the API to Otterwiki."""
    from otterwiki.server import csrf  # noqa: PLC0415 - that module is still loading when this is called

    shared_key = SharedKey.from_environment(app.config, os.environ)
    if 0 < len(shared_key.token) < _MIN_KEY_CHARS:
        _log.warning("OTTERWIKI_API_KEY is short enough to be guessed: use at least %d characters", _MIN_KEY_CHARS)
    api = OtterwikiApi(runtime, shared_key)
    blueprint = Blueprint("wikiholt_api", __name__, url_prefix="/api/v1")
    for rule in ("/", "/<path:rest>"):
        blueprint.add_url_rule(
            rule, f"all{len(rule)}", api.handle_request, methods=_ALLOWED_METHODS, provide_automatic_options=False
        )
    # Requests with a key need no CSRF token; the view checks it for the others.
    csrf.exempt(blueprint)
    app.register_blueprint(blueprint)


class OtterwikiApi:
    """Responds to API requests for the wiki of each request."""

    def __init__(self, runtime: PluginRuntime, shared_key: SharedKey) -> None:
        self._runtime = runtime
        self._shared_key = shared_key
        self._lock = Lock()
        self._bridge_cache: tuple[Application, AsgiBridge] | None = None

    def handle_request(self, rest: str = "") -> Response:  # noqa: ARG002 - the bridge uses the full path
        try:
            return self._respond()
        except WikiholtError as error:
            return _convert_response(make_problem_response(error))
        except Exception:  # noqa: BLE001 - the client gets a response without details, the log gets the traceback
            _log.exception("API request failed")
            return _convert_response(make_internal_error_response())

    def _respond(self) -> Response:
        try:
            application = self._runtime.application
            if request.path in _PUBLIC_PATHS:
                return self._get_bridge(application).call(request.environ, None)
            current_wiki = self._runtime.get_current_wiki()
        except WikiholtError as error:
            # The client gets no details, which may contain paths.
            log_once("API unavailable", error)
            hint = "The log of Otterwiki says why."
            return _convert_response(
                make_error_response(503, "not-set-up", "Search is not set up correctly in this wiki.", hint)
            )
        host_grant = build_host_grant(current_wiki, self._shared_key)
        if host_grant.key is None and host_grant.can_write:
            require_csrf_token()
        environ = dict(request.environ)
        if request.mimetype in _FORM_MEDIA_TYPES:  # the CSRF check has read the form, and the API accepts no forms
            environ["CONTENT_LENGTH"] = "0"
        bridge = self._get_bridge(current_wiki.application)
        response = call_for_legacy_clients(environ, lambda adapted: bridge.call(adapted, host_grant))
        notify_otterwiki(current_wiki, host_grant)
        return response

    def _get_bridge(self, application: Application) -> AsgiBridge:
        """Return the bridge of this process; create it for a new application, such as after a fork."""
        cached = self._bridge_cache
        if cached is None or cached[0] is not application:
            with self._lock:
                cached = self._bridge_cache
                if cached is None or cached[0] is not application:
                    bridge = AsgiBridge(create_host_app(application), application.settings.limit_body_bytes)
                    self._bridge_cache = cached = (application, bridge)
        return cached[1]


def _convert_response(response: Built) -> Response:
    return Response(bytes(response.body), response.status_code, list(response.headers.items()))
