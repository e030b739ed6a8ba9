"""Wikiholt in a process of Otterwiki: one farm over all wikis that requests are about, kept by threads of its own.

A process that loads the wiki only to fork workers starts no threads; each worker has a farm and a keeper of its own.
The lock of each index lets one of them write, and the others see what it committed.
"""

import atexit
import concurrent.futures.thread  # noqa: F401 - its own end must be registered before ours, to come after it
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

from flask import Flask

from wikiholt.access import Grant
from wikiholt.errors import WikiholtError, WikiNotFound
from wikiholt.model import Key, Scope, Wiki
from wikiholt.surfaces.http.visits import WikiSession
from wikiholt.surfaces.otterwiki.bell import Debouncer
from wikiholt.surfaces.otterwiki.config import PluginConfig
from wikiholt.surfaces.otterwiki.enrolling import WikiRegistrar
from wikiholt.surfaces.otterwiki.forking import register_after_fork, is_prefork_master
from wikiholt.surfaces.otterwiki.resolving import WikiLocation, WikiResolver, is_in_request
from wikiholt.wiring import Application, open_application

_log = logging.getLogger(__name__)

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
        self._debouncer.notify([self._resolver.resolve_request()] if is_in_request() else self._resolver.find_outside_request())

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
