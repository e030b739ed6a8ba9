"""Runs Wikiholt inside an Otterwiki process: one Application for all wikis of the requests.

A process that loads Otterwiki only to fork workers starts no threads; each worker has its own Application and
scheduler. The write lock of each index lets one of them write, and the others see its commits.
"""

import atexit
import concurrent.futures.thread  # noqa: F401 - its exit handler must be registered before ours, to run after it
import gc
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Condition, Lock, RLock, Thread
from types import FrameType
from typing import Any, NamedTuple

import click
from flask import Flask, g, has_request_context, request

from wikiholt.api.bootstrap import Application, open_application, raise_file_limit
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.errors import WikiholtError
from wikiholt.free_memory import use_one_arena
from wikiholt.interfaces.otterwiki import log_once
from wikiholt.interfaces.otterwiki.plugin_config import PluginConfig
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar, WikiResolver
from wikiholt.wikis.access import Grant
from wikiholt.wikis.session import WikiSession

_log = logging.getLogger(__name__)


def is_prefork_master() -> bool:
    """Whether this process must not start threads: it will fork workers, or it runs a command.

    gunicorn with --preload, and uWSGI by default, load the application once and fork workers, which inherit no threads.
    """
    return _is_uwsgi_master() or _is_gunicorn_master() or _is_cli_command()


def register_after_fork(callback: Callable[[], None]) -> None:
    """Call `callback` in every forked child process, possibly twice."""
    os.register_at_fork(after_in_child=callback)
    uwsgi = _load_uwsgi()
    if uwsgi is None:
        return
    # uWSGI forks without calling Python's fork handlers; it has one hook of its own.
    previous_hook: Callable[[], None] | None = getattr(uwsgi, "post_fork_hook", None)

    def on_fork() -> None:
        if previous_hook is not None:
            previous_hook()
        callback()

    uwsgi.post_fork_hook = on_fork
    if not getattr(uwsgi, "has_threads", True):
        _log.warning(
            "Wikiholt: uWSGI runs without threads, so the index is updated only while uWSGI serves requests. "
            "Set enable-threads = true in its configuration."
        )


def _load_uwsgi() -> Any:
    """The uwsgi module, which exists only inside uWSGI, or None."""
    try:
        return importlib.import_module("uwsgi")
    except ImportError:
        return None


def _is_uwsgi_master() -> bool:
    try:
        return int(_load_uwsgi().worker_id()) == 0
    except AttributeError:
        return False


def _is_gunicorn_master() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "gunicorn.arbiter":
            return frame.f_code.co_name != "spawn_worker"
        frame = frame.f_back
    return False


def _is_cli_command() -> bool:
    """Whether this is a Flask or Otterwiki command that does not run the server."""
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name not in ("run", "gunicorn", "waitress-serve")


# Debouncing: notifications are handled in a thread, so that saving a page does not wait


_DEBOUNCE_S = 0.05
"""Delay before handling, in which the response is sent and further notifications are merged."""
_QUIET_S = 0.05
"""How long after the last save a row of saves counts as ended: programs save the next page within milliseconds."""
_MAX_DELAY_S = 10.0
"""How long a sync waits for saves to end, which it would slow down. A search with `fresh=true` does not wait."""
_WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class RunningWrites:
    """Counts the requests of this process that may save a page. Safe to use from many threads."""

    def __init__(self) -> None:
        self.reset()

    def register(self, app: Flask) -> None:
        app.before_request(self._begin)
        app.teardown_request(self._end)

    def is_busy(self) -> bool:
        """Whether a save is running, or has ended so recently that another may follow."""
        return self._count > 0 or time.monotonic() - self._ended_at < _QUIET_S

    def reset(self) -> None:
        """Forget the requests of the parent process after a fork."""
        self._count = 0
        self._ended_at = -_QUIET_S
        self._lock = Lock()

    def _begin(self) -> None:
        if request.method in _WRITE_METHODS:
            g.wikiholt_is_write = True
            with self._lock:
                self._count += 1

    def _end(self, _: BaseException | None) -> None:
        if g.pop("wikiholt_is_write", False):
            with self._lock:
                self._count -= 1
                self._ended_at = time.monotonic()


class Debouncer:
    """Calls `callback` once for each notified location. `notify` takes microseconds and is safe in all threads."""

    def __init__(self, callback: Callable[[WikiLocation], None], is_busy: Callable[[], bool] = lambda: False) -> None:
        """Callbacks wait until `is_busy` returns false, for a limited time."""
        self._callback = callback
        self._is_busy = is_busy
        self._pending: dict[WikiLocation, None] = {}
        self._changed = Condition()
        self._stopping = False
        self._thread: Thread | None = None

    def notify(self, locations: Iterable[WikiLocation]) -> None:
        with self._changed:
            self._pending.update(dict.fromkeys(locations))
            if self._thread is None and not self._stopping:
                self._thread = Thread(target=self._run, name="wikiholt-debouncer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Stop, and wait up to `timeout_s` seconds for the running callback."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while locations := self._take_pending():
            for location in locations:
                try:
                    self._callback(location)
                except Exception:  # noqa: BLE001 - continue with the next location
                    _log.exception("internal error")

    def _take_pending(self) -> list[WikiLocation]:
        """Wait for notifications and return their locations after the delay; an empty list after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping)
            until = time.monotonic() + _MAX_DELAY_S
            while not self._changed.wait_for(lambda: self._stopping, _DEBOUNCE_S):
                if not self._is_busy() or time.monotonic() > until:
                    break
            pending, self._pending = self._pending, {}
            return [] if self._stopping else list(pending)


# The runtime


_STOP_TIMEOUT_S = 4.0
"""How long running syncs may take to finish their batch; servers kill workers that take much longer."""

_UNKNOWN_LOCATION = WikiLocation("", is_certain=False)
"""Notified if no wiki is known yet, so that the scheduler starts for the registered wikis."""


@dataclass(frozen=True, slots=True)
class CurrentWiki:
    """The wiki of the current request. The caller must check permissions."""

    wiki: Wiki
    application: Application

    def open_session(self, scope: Scope) -> WikiSession:
        """Open the wiki with a scope that the caller has checked. Raises RepositoryReplaced."""
        return self.application.open_session(Grant(self.wiki, scope, None))


class _RunningApplication(NamedTuple):
    """The open application of one process."""

    application: Application
    registrar: WikiRegistrar


class PluginRuntime:
    """Wikiholt in one process. The constructor starts nothing; all methods are safe to use from many threads."""

    def __init__(self, app: Flask) -> None:
        # A host may change the configuration with every request; use the one at the start.
        self.config = PluginConfig.from_environment(app.config, os.environ)
        self._resolver = WikiResolver(self.config.resolver)
        self._is_prefork_master = is_prefork_master()
        use_one_arena()  # a save frees tens of megabytes in its thread
        self._running_writes = RunningWrites()
        self._running_writes.register(app)
        self._reset()
        register_after_fork(self._after_fork)
        _register_at_exit(self._stop)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = RLock()
        self._running: _RunningApplication | None = None
        self._running_writes.reset()
        self._debouncer = Debouncer(self._notify_scheduler, self._running_writes.is_busy)

    def _after_fork(self) -> None:
        """In a child process, drop the state of the parent, and start if the parent is a prefork master."""
        if self._pid == os.getpid():
            return
        self._reset()
        if self._is_prefork_master:
            self._is_prefork_master = False
            try:
                self.start()
            except Exception:  # noqa: BLE001 - the worker must serve Otterwiki in any case
                _log.exception("Wikiholt could not start")

    @property
    def application(self) -> Application:
        """The application of this process; the first access opens it and starts its scheduler. Raises WikiholtError."""
        return self._get_running().application

    def start(self) -> None:
        """Register and sync the wiki of Otterwiki's configuration in the background; do nothing in a prefork master."""
        if not self._is_prefork_master:
            self._debouncer.notify(self._resolver.find_outside_request() or [_UNKNOWN_LOCATION])

    def get_current_wiki(self) -> CurrentWiki:
        """Return the wiki of the current request, and register it if needed. Raises WikiholtError."""
        running = self._get_running()
        return CurrentWiki(running.registrar.get_or_register(self._resolver.resolve_request()), running.application)

    def on_page_viewed(self) -> None:
        """Schedule a sync on the first page view of a wiki in this process. Takes microseconds."""
        location, running = self._resolver.resolve_request(), self._running
        if running is None or not running.registrar.is_known(location):
            self._debouncer.notify([location])

    def notify_changed(self) -> None:
        """Schedule a sync after a commit. Takes microseconds."""
        self._debouncer.notify(
            [self._resolver.resolve_request()] if has_request_context() else self._resolver.find_outside_request()
        )

    def _notify_scheduler(self, location: WikiLocation) -> None:
        try:
            running = self._get_running()
            if location.is_certain or running.registrar.is_known(location):
                running.application.scheduler.notify_changed(running.registrar.get_or_register(location).id)
        except WikiholtError as error:
            log_once("the index is not updated", error)

    def _get_running(self) -> _RunningApplication:
        running = self._running
        if running is None:
            with self._lock:
                running = self._running or self._open_application()
        return running

    def _open_application(self) -> _RunningApplication:
        raise_file_limit()
        application = open_application(self.config.load_settings())
        application.service.list_wikis()  # fail now if the registry cannot be read
        application.scheduler.start()
        registrar = WikiRegistrar(application.service, self.config.hide, self.config.dialect)
        self._running = _RunningApplication(application, registrar)
        # A save creates many objects and so starts collections, which must not walk through Wikiholt's modules.
        gc.freeze()
        return self._running

    def _stop(self) -> None:
        running = self._running
        if running is not None and self._pid == os.getpid():
            self._debouncer.stop(_STOP_TIMEOUT_S)
            running.application.scheduler.stop(_STOP_TIMEOUT_S)
            running.application.service.close()


def _register_at_exit(callback: Callable[[], None]) -> None:
    """Call `callback` at exit while threads can still finish their work.

    atexit handlers run too late for that: thread pools accept no more work then.
    """
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    register(callback)
