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
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.otterwiki.bell import Bell
from wikiholt.surfaces.otterwiki.config import Config
from wikiholt.surfaces.otterwiki.enrolling import Enrolment
from wikiholt.surfaces.otterwiki.forking import call_in_children, stands_by
from wikiholt.surfaces.otterwiki.resolving import Place, Resolver, in_request
from wikiholt.wiring import Farm, open_farm

_LOG = logging.getLogger(__name__)

_PATIENCE = 4.0
"""Seconds that syncs under way have to finish the batch in hand; servers kill workers that take much longer."""

_NOWHERE = Place("", certain=False)
"""Rung for where no wiki can be told yet: those that are registered are looked after all the same."""


@dataclass(frozen=True, slots=True)
class Here:
    """The wiki of the request being handled; whether who asks may see it has yet to be found out."""

    wiki: Wiki
    farm: Farm

    def open(self, scope: Scope, key: Key | None = None) -> OpenWiki:
        """The wiki, opened with a right that the caller has made sure of."""
        handle = self.farm.service.wiki(self.wiki.slug)
        if handle.wiki.id != self.wiki.id:  # another wiki has taken the slug at this very moment
            raise WikiNotFound("The wiki is not there any more.", hint="Try again.")
        self.farm.keeper.asked(self.wiki.id)
        grant = Grant(self.wiki, scope, key)
        return OpenWiki(grant, handle, self.farm.settings.search_fresh_timeout, self.farm.keeper)


class _Running:
    """What one process has open."""

    def __init__(self, farm: Farm, hide: str | None) -> None:
        self.farm = farm
        self.wikis = Enrolment(farm.service, hide)


class Host:
    """One a process. Making one starts nothing; every method may be called from any thread."""

    def __init__(self, app: Flask) -> None:
        # A farm may change the configuration with every request: what it was at the start counts.
        self.config = Config.of(app.config, os.environ)
        self.options = self.config.options
        self._resolver = Resolver(self.options.resolver)
        self._stood_by = stands_by()
        self._anew()
        call_in_children(self._forked)
        _at_exit(self._end)

    def _anew(self) -> None:
        self._pid = os.getpid()
        self._lock = RLock()
        self._running: _Running | None = None
        self._bell = Bell(self._follow)
        self._told: set[str] = set()

    def _forked(self) -> None:
        """In a child process: what the parent had open is the parent's. A worker begins, whoever else is forked not."""
        if self._pid == os.getpid():
            return
        self._anew()
        if self._stood_by:
            self._stood_by = False
            try:
                self.begin()
            except Exception:  # noqa: BLE001 - the worker is to serve the wiki all the same
                _LOG.exception("Wikiholt could not begin")

    @property
    def farm(self) -> Farm:
        """The farm of this process; who asks first opens it and starts its keeper. Raises WikiholtError."""
        return self._run().farm

    def begin(self) -> None:
        """Take up the wiki that Otterwiki was started with, in the background, unless that is for workers to do."""
        if not self._stood_by:
            self._bell.ring(self._resolver.elsewhere() or [_NOWHERE])

    def here(self) -> Here:
        """The wiki of the request being handled, registered when it is first seen; raises WikiholtError."""
        running = self._run()
        return Here(running.wikis.wiki(self._resolver.here()), running.farm)

    def met(self) -> None:
        """A page of the wiki is being shown: if it is the first of this wiki in this process, its index is looked at.

        Takes microseconds.
        """
        place, running = self._resolver.here(), self._running
        if running is None or not running.wikis.knows(place):
            self._bell.ring([place])

    def wake(self) -> None:
        """Something was committed: its index is to follow. Takes microseconds, whatever there is to be done."""
        self._bell.ring([self._resolver.here()] if in_request() else self._resolver.elsewhere())

    def _follow(self, place: Place) -> None:
        try:
            running = self._run()
            if place.certain or running.wikis.knows(place):
                running.farm.keeper.wake(running.wikis.wiki(place).id)
        except WikiholtError as error:
            self._tell(error)

    def _run(self) -> _Running:
        running = self._running
        if running is None:
            with self._lock:
                running = self._running or self._opened()
        return running

    def _opened(self) -> _Running:
        farm = open_farm(self.config.settings())
        farm.service.wikis()  # a registry that cannot be read is an error now rather than later
        farm.keeper.start()
        self._running = _Running(farm, self.options.hide)
        return self._running

    def _tell(self, error: WikiholtError) -> None:
        """Say why an index does not follow, once for each reason."""
        if error.message not in self._told:
            self._told.add(error.message)
            _LOG.error("Wikiholt: the index does not follow the wiki: %s (%s)", error.message, error.hint)

    def _end(self) -> None:
        running = self._running
        if running is not None and self._pid == os.getpid():
            self._bell.stop(_PATIENCE)
            running.farm.keeper.stop(_PATIENCE)
            running.farm.service.close()


def _at_exit(end: Callable[[], None]) -> None:
    """Have this called when the process ends, while threads can still finish what they are at.

    What is registered with atexit comes too late for that: pools of threads take no more work by then.
    """
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    register(end)
