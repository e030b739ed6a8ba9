"""`wikiholt serve`: all wikis behind one address, kept at their HEAD until a signal ends it."""

import errno
import json
import logging
import resource
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import FrameType

import uvicorn

from wikiholt.app.bootstrap import Application, open_application
from wikiholt.app.settings.definitions import Settings
from wikiholt.errors import Busy, DatabaseUnavailable, InvalidSetting, InvalidSource, ModelError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.http.request_context import is_loopback
from wikiholt.interfaces.http.timeouts import TimeoutProtocol

_log = logging.getLogger(__name__)

_SHUTDOWN_TIMEOUT_S = 5
"""Seconds that requests under way have to end."""
_MAX_OPEN_FILES = 8192
_STOP_TIMEOUT_S = 30.0
"""Seconds that syncs under way have to finish the batch in hand."""


def run_serve(arguments: Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then end in good order with 0."""
    roots = [_check_root(path) for path in arguments.directories]
    _raise_file_limit()
    farm = open_application(settings, roots)
    try:
        with suppress(DatabaseUnavailable):  # it is waited for
            farm.service.list_wikis()  # a registry that is lost or damaged is an error now rather than at each request
        _require_keys(farm)
        with _open_listener(settings.serve_host, settings.serve_port) as listener:
            _run_server(farm, listener, lambda: _print_address(listener, as_json=arguments.json))
    finally:
        farm.service.close()
    return 0


def _run_server(application: Application, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    server = _Server(
        _build_config(application),
        on_ready,
        on_exit=lambda: Thread(target=application.scheduler.stop, args=(0,)).start(),
    )
    # uvicorn hands a signal on to whoever listened before it; this one also hears those that come before it listens.
    before = {number: signal.signal(number, server.handle_early_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    application.scheduler.start()
    Thread(target=_load_model, args=(application,), name="load-model", daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        if not application.scheduler.stop(_STOP_TIMEOUT_S):
            _log.warning("a sync or fetch was left in the middle; what it committed is kept")
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """uvicorn that says when it listens and when it is about to end, and hears a signal that comes before either."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_exit = on_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._on_exit()

    def handle_early_signal(self, _: int, __: FrameType | None) -> None:
        self.should_exit = True


def _build_config(application: Application) -> uvicorn.Config:
    proxies = application.settings.serve_trusted_proxies
    return uvicorn.Config(
        create_app(application),
        access_log=False,  # what people search for is not to be logged
        log_config=None,
        http=TimeoutProtocol,
        loop="asyncio",  # whatever other packages bring along
        ws="none",
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
    )


def _check_root(path: Path) -> Path:
    """A directory of wikis; raises InvalidSource where it cannot be one."""
    root = path.resolve()
    if not root.is_dir():
        raise InvalidSource(f"There is no directory {path}.", hint="Give the directory that holds the repositories.")
    if (root / ".git").exists() or ((root / "HEAD").exists() and (root / "objects").is_dir()):
        raise InvalidSource(
            f"{path} is a repository itself.",
            hint="Give the directory that holds it, or register it with `wikiholt add` and serve without a directory.",
        )
    return root


def _raise_file_limit() -> None:
    """Have as many files open as are of use and may be: how many wikis are kept open goes by that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _require_keys(application: Application) -> None:
    host = application.settings.serve_host
    if not is_loopback(host) and not application.service.registry.keys.has_any():
        raise InvalidSetting(
            f"Listening on {host} would open every wiki to whoever can reach this machine: there is no key yet.",
            hint="Create one first: wikiholt key create --operator",
        )


def _open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens; raises Busy when the port is taken."""
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        listener = socket.create_server((bare, port), family=family, backlog=2048)
        # asyncio sets this by itself only where the socket names its protocol; without it the body of an answer waits
        # 40 ms for the acknowledgement of its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        taken = getattr(error, "errno", 0) == errno.EADDRINUSE
        kind = Busy if taken else InvalidSetting
        raise kind(
            f"{host} port {port} cannot be listened on: {reason}.",
            hint="Stop what listens there, or choose another with --port." if taken else "Check --host and --port.",
        ) from error


def _print_address(listener: socket.socket, *, as_json: bool) -> None:
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    if as_json:
        sys.stdout.write(json.dumps({"listening": address, "host": host, "port": port}) + "\n")
    else:
        output.print_lines([f"Wikiholt listens on {address}"])
    sys.stdout.flush()


def _load_model(application: Application) -> None:
    """Load the model before the first search needs it; without it there is search by word."""
    try:
        application.service.components.embedder()
    except ModelError as error:
        _log.error("%s (%s)", error.message, error.hint)
