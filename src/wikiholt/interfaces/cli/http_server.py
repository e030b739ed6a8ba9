"""The processes of `wikiholt serve` that serve: one with everything, or a scheduler and workers below a supervisor.

uvicorn waits without limit for a complete request with a head of any size, on as many connections as the process may
have open files. A timeout and two limits protect it from slow clients that hold many connections, and from large heads.
"""

import asyncio
import logging
import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from struct import Struct
from threading import Event, Thread
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from wikiholt.api.bootstrap import Application, WorkerParts, open_application, raise_file_limit
from wikiholt.api.settings.definitions import Settings
from wikiholt.errors import DatabaseUnavailable, InvalidSetting, ModelError, WikiholtError
from wikiholt.interfaces.cli.background import hold_lock, stop_background
from wikiholt.interfaces.cli.listeners import (
    BACKLOG,
    offer_owner_link,
    open_listener,
    open_local_listener,
    print_address,
)
from wikiholt.interfaces.cli.serve_command import log_start, report_progress
from wikiholt.interfaces.cli.supervisor import (
    ALIVE,
    ALIVE_INTERVAL_S,
    BUCKETS_FILE,
    COUNTERS_FILE,
    DRAIN,
    DRAIN_LIMIT_S,
    LISTENS,
    WARM,
    ChildRole,
    ChildSpec,
)
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.http.local_owner import OWNER_KEY, SOCKET_NAME
from wikiholt.interfaces.http.metrics import ServiceMetrics, SharedMetrics, make_process_collectors, make_publisher
from wikiholt.interfaces.http.request_context import is_loopback
from wikiholt.interfaces.http.sign_in import PeerMiddleware
from wikiholt.sync.nodes import SchedulerLink, handle_worker_requests, publish_counters
from wikiholt.wikis.rate_limit import BucketTable

REQUEST_TIMEOUT_S = 60.0
"""Maximum time in which a request, head and body, must arrive."""
MAX_CONNECTIONS = 2048
MAX_HEAD_BYTES = 65_536
_MAX_FIELDS = 256
_MAX_WAITING_REQUESTS = 16
"""How many requests of a connection may wait for the answer to an earlier one."""
_PEER_CREDENTIALS = Struct("3i")
_FILES_PER_CONNECTION = 4
"""A connection needs one; the others are for indexes and git."""


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with a request timeout, a connection limit, and a limit on the head of a request."""

    request_timeout_s = REQUEST_TIMEOUT_S
    max_connections = MAX_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None
    _is_in_head = True
    _kept_bytes = 0
    """What has been received of an incomplete head, or of the fields after a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = self.max_connections if files < 0 else min(self.max_connections, files // _FILES_PER_CONNECTION)
        connection = transport.get_extra_info("socket")
        is_local = connection.family == socket.AF_UNIX
        self.app_state = {**self.app_state, OWNER_KEY: is_local}
        if len(self.connections) > limit or (is_local and get_peer_user(connection) != os.geteuid()):
            transport.abort()
        else:
            self._update_deadline()

    def data_received(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        super().data_received(data)
        if self._kept_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
        self._update_deadline()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore fields after a body in chunks: a proxy that sets or removes headers may let them pass."""
        if self._is_in_head:
            if len(self.headers) >= _MAX_FIELDS:
                raise ValueError("the head has too many fields")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Raises ValueError, which is answered with 400, for what the parser accepts and this server does not."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise ValueError("the request does not name one host")
        if len(self.pipeline) >= _MAX_WAITING_REQUESTS:
            raise ValueError("too many requests at once")
        self._is_in_head, self._kept_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._kept_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._update_deadline()

    def _update_deadline(self) -> None:
        """Run the timer only while the client has still to send data."""
        last: RequestResponseCycle | None = self.cycle
        is_waiting = not self.transport.is_closing() and (last is None or last.more_body or last.response_complete)
        if is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.request_timeout_s, self.transport.close)
        elif not is_waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: any client could fill the log with it."""


def get_peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    user: int = _PEER_CREDENTIALS.unpack(credentials)[1]
    return user


# The server process


_log = logging.getLogger(__name__)

_SHUTDOWN_TIMEOUT_S = 5
"""How long running requests have to finish."""
STOP_TIMEOUT_S = 30.0
"""How long running syncs have to finish their current batch."""
_LAST_CONNECTIONS_S = 0.5
_MAX_LAST_CONNECTIONS_S = 10.0
"""How long a process that no longer accepts connections waits for requests on those it has: at least, and at most while
there are any. Clients close most of them after the next response, and uvicorn closes idle ones after 5 s."""


def serve(settings: Settings, roots: Sequence[Path], *, as_json: bool) -> None:
    """Serve until SIGTERM or SIGINT, then shut down cleanly."""
    raise_file_limit()
    stop_background(settings.data)
    application = open_application(settings, roots)
    try:
        check_service(application, roots, as_json=as_json)
        with (
            open_listener(settings.serve_host, settings.serve_port) as listener,
            open_local_listener(settings.data / SOCKET_NAME) as local_listeners,
            offer_owner_link(settings, listener) as owner_link,
            nullcontext() if as_json else report_progress(application.scheduler.get_progress),
        ):
            server = Server(build_config(application))
            server.catch_signals()
            application.scheduler.start()
            Thread(target=load_model, args=(application,), name="load-model", daemon=True).start()
            try:
                print_address(listener, owner_link, as_json=as_json)
                server.run([listener, *local_listeners])
            finally:
                _stop_scheduler(application)
    finally:
        application.service.close()


_IDLE_POLL_S = 1.0


def serve_in_background(settings: Settings) -> None:
    """Answer commands at the Unix socket until nobody has searched for a while, or the socket is gone."""
    with hold_lock(settings) as is_only:
        if not is_only:
            return
        raise_file_limit()
        application = open_application(settings, on_demand=True)
        path = settings.data / SOCKET_NAME
        try:
            with open_local_listener(path) as listeners:
                if not listeners:
                    return
                server = Server(build_config(application))
                server.catch_signals()
                application.scheduler.start()
                Thread(target=load_model, args=(application,), name="load-model", daemon=True).start()
                Thread(target=_resume_pending, args=(application,), name="pending", daemon=True).start()
                Thread(target=_end_when_idle, args=(server, application, path), name="idle", daemon=True).start()
                try:
                    server.run(listeners)
                finally:
                    _stop_scheduler(application)
        finally:
            application.service.close()


def _resume_pending(application: Application) -> None:
    """Have the wikis synced that a command left before all pages were embedded."""
    for wiki in application.service.list_wikis():
        with suppress(WikiholtError):
            handle = application.service.get_background_handle(wiki.slug)
            if handle.get_indexed_revision(words_only=True) and not handle.get_indexed_revision():
                application.scheduler.touch(wiki.id)


def _end_when_idle(server: "Server", application: Application, path: Path) -> None:
    """End the server when it has had nothing to do for a while, or when another one has taken its socket."""
    limit_s, inode = application.settings.search_keep_warm * 60, _read_inode(path)
    requests, used_at = 0, time.monotonic()
    while not server.should_exit:
        time.sleep(_IDLE_POLL_S)
        answered = server.server_state.total_requests
        if answered != requests or application.scheduler.get_progress().running:
            requests, used_at = answered, time.monotonic()
        is_own = inode is not None and _read_inode(path) == inode
        if not is_own or time.monotonic() - used_at > limit_s:
            server.should_exit = True


def _read_inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def check_service(application: Application, roots: Sequence[Path], *, as_json: bool) -> None:
    """Fail now, not at each request, if the registry is missing or damaged, or if keys are missing."""
    with suppress(DatabaseUnavailable):  # the service waits for it
        wikis = len(application.service.list_wikis())
        if not as_json:
            log_start(wikis, str(application.settings.data), roots)
    host, settings = application.settings.serve_host, application.settings
    has_sign_in = bool(settings.people_proxy_user_header or settings.people_oidc_issuer)
    if not is_loopback(host) and not has_sign_in and not application.service.registry.keys.has_any():
        raise InvalidSetting(
            f"Listening on {host} would expose every wiki to the network, because no key exists yet.",
            hint="Create one first: wikiholt key create --operator",
        )


def _stop_scheduler(application: Application) -> None:
    if not application.scheduler.stop(STOP_TIMEOUT_S):
        _log.warning("a sync or fetch was interrupted; pages indexed so far are kept")


class Server(uvicorn.Server):
    """A uvicorn server that can end without losing a request."""

    _is_draining = False

    def catch_signals(self) -> None:
        """End at a signal. uvicorn has handlers of its own, but only while it serves, and calls these afterwards."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _, __: setattr(self, "should_exit", True))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # uvicorn has set another one

    def drain(self, limit_s: float) -> None:
        """Stop accepting connections, and end when all requests are answered. Safe to call from any thread."""
        self.config.timeout_graceful_shutdown = int(limit_s)
        self._is_draining = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """When draining, first wait for the last requests of idle connections: uvicorn closes these at once, although
        a client may be about to send one. Each response tells its client to open another connection, which another
        process accepts."""
        if self._is_draining:
            for server in self.servers:
                server.close()
            self.server_state.default_headers.append((b"connection", b"close"))
            await asyncio.sleep(_LAST_CONNECTIONS_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wait_for_connections(), _MAX_LAST_CONNECTIONS_S)
        await super().shutdown(sockets)

    async def _wait_for_connections(self) -> None:
        while self.server_state.connections:
            await asyncio.sleep(0.02)


def build_config(application: Application, metrics: ServiceMetrics | None = None, **options: Any) -> uvicorn.Config:
    """The configuration of the server."""
    return uvicorn.Config(
        add_proxy_headers(create_app(application, metrics), application.settings.serve_trusted_proxies),
        access_log=False,  # searches must not be logged
        log_config=None,
        http=TimeoutProtocol,
        loop="asyncio",  # regardless of installed packages
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
        # asyncio accepts this many connections at once, also after an error. One at a time gives other workers their
        # share of many.
        backlog=1,
        **options,
    )


def add_proxy_headers(app: ASGIApp, proxies: Sequence[str]) -> ASGIApp:
    """Apply the X-Forwarded headers of trusted proxies, as uvicorn does, but keep the address of the connection."""
    return PeerMiddleware(ProxyHeadersMiddleware(app, list(proxies))) if proxies else app  # type: ignore[arg-type]


def load_model(application: Application) -> None:
    """Load the model before the first search needs it. Without a model, searches use keywords only."""
    try:
        application.service.load_embedder()
    except ModelError as error:
        _log.error("%s (%s)", error.message, error.hint)


# The child processes of a supervisor: workers, which answer requests, and the scheduler.


_PUBLISH_INTERVAL_S = 0.5
"""Seconds between two looks at the counters of the scheduler."""


def run_child(settings: Settings, roots: Sequence[Path], spec: ChildSpec, *, as_json: bool) -> None:
    """Run as a child of the supervisor until a signal, or until the supervisor ends."""
    raise_file_limit()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor decides what it means
    control = socket.socket(fileno=spec.control)
    if spec.role == ChildRole.SCHEDULER:
        _run_scheduler(settings, roots, spec, control, as_json=as_json)
    else:
        _run_worker(settings, roots, spec, control)


def _run_worker(settings: Settings, roots: Sequence[Path], spec: ChildSpec, control: socket.socket) -> None:
    directory = Path(spec.directory)
    link = SchedulerLink(spec.pipe, directory / COUNTERS_FILE)
    parts = WorkerParts(link, BucketTable(directory / BUCKETS_FILE), link.get_counters)
    application = open_application(settings, roots, worker=parts)
    metrics = SharedMetrics(directory, spec.name)

    async def report_alive() -> None:
        _report(control, ALIVE)

    config = build_config(application, metrics, callback_notify=report_alive, timeout_notify=ALIVE_INTERVAL_S)
    server = Server(config)
    server.catch_signals()

    def warm_up() -> None:
        load_model(application)
        _report(control, WARM)

    _watch_supervisor(
        control, directory, lambda: server.drain(DRAIN_LIMIT_S), lambda: os.kill(os.getpid(), signal.SIGTERM)
    )
    metrics.publisher.start()
    Thread(target=warm_up, name="load-model", daemon=True).start()
    _report(control, LISTENS)
    try:
        server.run([socket.socket(fileno=file) for file in spec.listeners])
    finally:
        application.service.close()
        metrics.publisher.close()


def _run_scheduler(
    settings: Settings, roots: Sequence[Path], spec: ChildSpec, control: socket.socket, *, as_json: bool
) -> None:
    directory = Path(spec.directory)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _, __: stop.set())
    application = open_application(settings, roots, publishes_state=True)
    scheduler = application.scheduler
    publisher = make_publisher(directory, spec.name, make_process_collectors(application.service))
    try:
        check_service(application, roots, as_json=as_json)
        _watch_supervisor(control, directory, stop.set, stop.set)
        scheduler.start()
        Thread(target=handle_worker_requests, args=(spec.pipe, scheduler), name="worker-requests", daemon=True).start()
        publisher.start()
        _report(control, LISTENS)
        with nullcontext() if as_json else report_progress(scheduler.get_progress):
            published = None
            # Without a time limit, a signal that arrives just before the wait would not be noticed.
            while not stop.wait(_PUBLISH_INTERVAL_S):
                if (counters := scheduler.get_counters()) != published:
                    publish_counters(directory / COUNTERS_FILE, counters)
                    published = counters
                _report(control, ALIVE)
        _stop_scheduler(application)
        publisher.close()
    finally:
        application.service.close()


def _report(control: socket.socket, state: bytes) -> None:
    with suppress(OSError):  # the supervisor has ended, or does not read
        control.send(state, socket.MSG_DONTWAIT)


def _watch_supervisor(
    control: socket.socket, directory: Path, drain: Callable[[], None], end: Callable[[], None]
) -> None:
    """Drain when the supervisor asks for it, and end when it has ended."""

    def watch() -> None:
        with suppress(ConnectionResetError):  # it ended before it had read every report
            while received := control.recv(16):
                if DRAIN in received:
                    drain()
        _log.error("the supervisor has ended; this process ends too")
        shutil.rmtree(directory, ignore_errors=True)
        end()

    Thread(target=watch, name="supervisor", daemon=True).start()
