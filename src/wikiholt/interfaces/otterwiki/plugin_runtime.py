"""Whether this process serves the wiki itself, or has loaded it only for others to come."""

import atexit
import concurrent.futures.thread  # noqa: F401 - its own end must be registered before ours, to come after it
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Condition, RLock, Thread
from types import FrameType
from typing import Any

import click
from flask import Flask

from wikiholt.app.bootstrap import Application, open_application
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import WikiholtError, WikiNotFound
from wikiholt.interfaces.otterwiki.plugin_config import PluginConfig
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar, WikiResolver, is_in_request
from wikiholt.wikis.access import Grant
from wikiholt.wikis.session import WikiSession

_log = logging.getLogger(__name__)


def is_prefork_master() -> bool:
    """Whether threads had better not be started while the wiki is loaded: it is loaded to be forked, or for a command.

    gunicorn with --preload, and uWSGI unless told otherwise, load it once and fork workers, which inherit no threads.
    """
    return _is_uwsgi_master() or _is_gunicorn_master() or _is_cli_command()


def register_after_fork(callback: Callable[[], None]) -> None:
    """Have `begin` called in every process that is forked from this one, perhaps twice."""
    os.register_at_fork(after_in_child=callback)
    uwsgi = _load_uwsgi()
    if uwsgi is None:
        return
    # uWSGI forks without telling Python; it has one hook of its own.
    before: Callable[[], None] | None = getattr(uwsgi, "post_fork_hook", None)

    def on_fork() -> None:
        if before is not None:
            before()
        callback()

    uwsgi.post_fork_hook = on_fork
    if not getattr(uwsgi, "has_threads", True):
        _log.warning(
            "Wikiholt: uWSGI runs without threads, so that the index follows only while pages are being served. "
            "Set enable-threads = true in its configuration."
        )


def _load_uwsgi() -> Any:
    """What uWSGI tells the programs it runs; None elsewhere."""
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
    """Whether this is one of Flask's or Otterwiki's commands, other than to run the wiki."""
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name not in ("run", "gunicorn", "waitress-serve")


# A bell that hooks ring: what follows is done in a thread of its own, a moment later, so that no save waits.


_DEBOUNCE_S = 0.05
"""Seconds in which the answer to who saved is on its way, and further rings count as one."""


class Debouncer:
    """Calls `answer` for each place that was rung for; may be rung from any thread, in microseconds."""

    def __init__(self, callback: Callable[[WikiLocation], None]) -> None:
        self._callback = callback
        self._pending: dict[WikiLocation, None] = {}
        self._changed = Condition()
        self._stopping = False
        self._thread: Thread | None = None

    def notify(self, locations: Iterable[WikiLocation]) -> None:
        with self._changed:
            self._pending.update(dict.fromkeys(locations))
            if self._thread is None and not self._stopping:
                self._thread = Thread(target=self._run, name="wikiholt-bell", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, timeout: float) -> None:
        """Answer no more; what is being answered is waited for, so long."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while rung := self._take_pending():
            for place in rung:
                try:
                    self._callback(place)
                except Exception:  # noqa: BLE001 - the next one is to be answered all the same
                    _log.exception("a fault of Wikiholt's own")

    def _take_pending(self) -> list[WikiLocation]:
        """What was rung for, a moment after it was; nothing once the bell stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping)
            self._changed.wait_for(lambda: self._stopping, _DEBOUNCE_S)
            rung, self._pending = self._pending, {}
            return [] if self._stopping else list(rung)


# Wikiholt in a process of Otterwiki: one farm over all wikis that requests are about, kept by threads of its own. A
# process that loads the wiki only to fork workers starts no threads; each worker has a farm and a keeper of its own.
# The lock of each index lets one of them write, and the others see what it committed.


_STOP_TIMEOUT_S = 4.0
"""Seconds that syncs under way have to finish the batch in hand; servers kill workers that take much longer."""

_UNKNOWN_LOCATION = WikiLocation("", is_certain=False)
"""Rung for where no wiki can be told yet: those that are registered are looked after all the same."""


@dataclass(frozen=True, slots=True)
class CurrentWiki:
    """The wiki of the request being handled; whether who asks may see it has yet to be found out."""

    wiki: Wiki
    application: Application

    def open_session(self, scope: Scope, key: Key | None = None) -> WikiSession:
        """The wiki, opened with a right that the caller has made sure of."""
        handle = self.application.service.get_handle(self.wiki.slug)
        if handle.wiki.id != self.wiki.id:  # another wiki has taken the slug at this very moment
            raise WikiNotFound("The wiki is not there any more.", hint="Try again.")
        self.application.scheduler.touch(self.wiki.id)
        grant = Grant(self.wiki, scope, key)
        return WikiSession(grant, handle, self.application.settings.search_fresh_timeout, self.application.scheduler)


class _RunningApplication:
    """What one process has open."""

    def __init__(self, application: Application, hide: str | None) -> None:
        self.application = application
        self.registrar = WikiRegistrar(application.service, hide)


class PluginRuntime:
    """One a process. Making one starts nothing; every method may be called from any thread."""

    def __init__(self, app: Flask) -> None:
        # A farm may change the configuration with every request: what it was at the start counts.
        self.config = PluginConfig.from_environment(app.config, os.environ)
        self.options = self.config.options
        self._resolver = WikiResolver(self.options.resolver)
        self._is_prefork_master = is_prefork_master()
        self._reset()
        register_after_fork(self._after_fork)
        _register_at_exit(self._stop)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = RLock()
        self._running: _RunningApplication | None = None
        self._debouncer = Debouncer(self._notify_scheduler)
        self._logged_messages: set[str] = set()

    def _after_fork(self) -> None:
        """In a child process: what the parent had open is the parent's. A worker begins, whoever else is forked not."""
        if self._pid == os.getpid():
            return
        self._reset()
        if self._is_prefork_master:
            self._is_prefork_master = False
            try:
                self.start()
            except Exception:  # noqa: BLE001 - the worker is to serve the wiki all the same
                _log.exception("Wikiholt could not begin")

    @property
    def application(self) -> Application:
        """The farm of this process; who asks first opens it and starts its keeper. Raises WikiholtError."""
        return self._get_running().application

    def start(self) -> None:
        """Take up the wiki that Otterwiki was started with, in the background, unless that is for workers to do."""
        if not self._is_prefork_master:
            self._debouncer.notify(self._resolver.find_outside_request() or [_UNKNOWN_LOCATION])

    def get_current_wiki(self) -> CurrentWiki:
        """The wiki of the request being handled, registered when it is first seen; raises WikiholtError."""
        running = self._get_running()
        return CurrentWiki(running.registrar.get_or_register(self._resolver.resolve_request()), running.application)

    def on_page_viewed(self) -> None:
        """A page of the wiki is being shown: if it is the first of this wiki in this process, its index is looked at.

        Takes microseconds.
        """
        place, running = self._resolver.resolve_request(), self._running
        if running is None or not running.registrar.is_known(place):
            self._debouncer.notify([place])

    def notify_changed(self) -> None:
        """Something was committed: its index is to follow. Takes microseconds, whatever there is to be done."""
        self._debouncer.notify(
            [self._resolver.resolve_request()] if is_in_request() else self._resolver.find_outside_request()
        )

    def _notify_scheduler(self, location: WikiLocation) -> None:
        try:
            running = self._get_running()
            if location.is_certain or running.registrar.is_known(location):
                running.application.scheduler.notify_changed(running.registrar.get_or_register(location).id)
        except WikiholtError as error:
            self._log_once(error)

    def _get_running(self) -> _RunningApplication:
        running = self._running
        if running is None:
            with self._lock:
                running = self._running or self._open_application()
        return running

    def _open_application(self) -> _RunningApplication:
        farm = open_application(self.config.load_settings())
        farm.service.list_wikis()  # a registry that cannot be read is an error now rather than later
        farm.scheduler.start()
        self._running = _RunningApplication(farm, self.options.hide)
        return self._running

    def _log_once(self, error: WikiholtError) -> None:
        """Say why an index does not follow, once for each reason."""
        if error.message not in self._logged_messages:
            self._logged_messages.add(error.message)
            _log.error("Wikiholt: the index does not follow the wiki: %s (%s)", error.message, error.hint)

    def _stop(self) -> None:
        running = self._running
        if running is not None and self._pid == os.getpid():
            self._debouncer.stop(_STOP_TIMEOUT_S)
            running.application.scheduler.stop(_STOP_TIMEOUT_S)
            running.application.service.close()


def _register_at_exit(callback: Callable[[], None]) -> None:
    """Have this called when the process ends, while threads can still finish what they are at.

    What is registered with atexit comes too late for that: pools of threads take no more work by then.
    """
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    register(callback)
