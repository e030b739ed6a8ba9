"""Wikiholt in a process of Otterwiki: one farm over all wikis that requests are about, kept by threads of its own.

A process that only loads the wiki to fork workers starts none of them; each worker has its own farm and keeper. The
writer lock of each index lets one of them write, and the others see what it committed.
"""

import atexit
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Condition, RLock, Thread

from flask import Flask

from wikiholt.access import Grant
from wikiholt.errors import WikiholtError, WikiNotFound
from wikiholt.model import Key, Scope, Wiki
from wikiholt.registry.slugs import propose_slug
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.otterwiki import config
from wikiholt.surfaces.otterwiki.resolving import Place, Resolver, in_request
from wikiholt.wiring import Farm, open_farm

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Here:
    """The wiki of the request being handled; who asks has yet to be found allowed."""

    wiki: Wiki
    farm: Farm

    def open(self, scope: Scope, key: Key | None = None) -> OpenWiki:
        """The wiki opened with a right that the caller has made sure of."""
        self.farm.keeper.asked(self.wiki.id)
        handle = self.farm.service.wiki(self.wiki.slug)
        if handle.wiki.id != self.wiki.id:
            raise WikiNotFound("The wiki is not there any more.", hint="Try again.")
        return OpenWiki(Grant(self.wiki, scope, key), handle, self.farm.settings.search_fresh_timeout, self.farm.keeper)


class Host:
    """One a process. Making one does nothing; every method may be called from any thread."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self.options = config.options(app.config, os.environ)
        self._resolver = Resolver(self.options.resolver)
        self._anew()
        os.register_at_fork(after_in_child=self._anew)

    def _anew(self) -> None:
        """As nothing were open: what a parent process had open is its own."""
        self._lock = RLock()
        self._farm: Farm | None = None
        self._wikis: dict[str, Wiki] = {}
        self._bell: Bell | None = None

    @property
    def farm(self) -> Farm:
        """The farm of this process, opened and its keeper started by whoever asks first; raises WikiholtError."""
        farm = self._farm
        if farm is None:
            with self._lock:
                farm = self._farm or self._open()
        return farm

    def begin(self) -> None:
        """Take up the wiki that Otterwiki was started with, in the background."""
        self._ring(self._resolver.elsewhere())

    def here(self) -> Here:
        """The wiki of the request being handled, registered when it is first seen; raises WikiholtError."""
        return Here(self._wiki(self._resolver.here()), self.farm)

    def wake(self) -> None:
        """Something was committed: have the index follow soon. Takes microseconds, whatever there is to be done."""
        self._ring([self._resolver.here()] if in_request() else self._resolver.elsewhere())

    def _ring(self, places: list[Place]) -> None:
        with self._lock:
            if self._bell is None:
                self._bell = Bell(self._woken)
        self._bell.ring(places)

    def _woken(self, place: Place) -> None:
        farm = self.farm
        farm.keeper.wake(self._wiki(place).id)

    def _open(self) -> Farm:
        farm = open_farm(config.settings(self._app.config, os.environ))
        farm.keeper.start()
        atexit.register(self._close, farm, os.getpid())
        self._farm = farm
        return farm

    @staticmethod
    def _close(farm: Farm, pid: int) -> None:
        if pid == os.getpid():
            farm.keeper.stop(10)
            farm.service.close()

    def _wiki(self, place: Place) -> Wiki:
        known = self._wikis.get(place.path)
        if known is not None:
            try:
                return self.farm.service.registry.by_id(known.id)
            except WikiNotFound:
                pass  # it was removed; who uses it has it registered again
        with self._lock:
            wiki = self._wikis[place.path] = self._registered(place)
        return wiki

    def _registered(self, place: Place) -> Wiki:
        service = self.farm.service
        for slug in _slugs(place):
            try:
                wiki = service.registry.get(slug)
            except WikiNotFound:
                wiki = service.add(slug, place.path, {"anchors": "otterwiki", "url": "/{path}"})
            if wiki.source == place.path:
                return wiki
        raise WikiholtError("This wiki's name is another's already.", hint="Have the resolver give it another slug.")


def _slugs(place: Place) -> list[str]:
    """What the wiki may be called, the best first."""
    if place.slug:
        return [place.slug]
    path = Path(place.path)
    name = path.parent.name if path.name in ("repository", "repo", "wiki") and path.parent.name else path.name
    return [propose_slug(name), propose_slug(f"{name[:50]}-{sha256(place.path.encode()).hexdigest()[:8]}")]


class Bell:
    """Wakes wikis from a thread of its own, a moment after it was rung, so that no save waits."""

    def __init__(self, wake: Callable[[Place], None]) -> None:
        self._wake = wake
        self._rung: set[Place] = set()
        self._changed = Condition()
        Thread(target=self._run, name="wikiholt-bell", daemon=True).start()

    def ring(self, places: list[Place]) -> None:
        with self._changed:
            self._rung.update(places)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rung)
                rung, self._rung = self._rung, set()
            for place in rung:
                try:
                    self._wake(place)
                except Exception as error:  # noqa: BLE001 - the next one is to be woken all the same
                    _LOG.error("the index does not follow: %s", error)
