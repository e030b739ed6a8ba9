"""One background worker for all collections of a process: keeps Chroma running, brings one collection after another.

One at a time, so that a collection which kills Chroma is known by that. After a failure it waits, longer each time,
up to a minute; while it waits, searches answer exactly and nobody waits for anything.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

from wikiholt.cachefile.worker import Abandoned
from wikiholt.errors import MissingExtra, WikiholtError
from wikiholt.vectors.chroma.api import Api
from wikiholt.vectors.chroma.faults import ChromaAway, ChromaRefused, NotOurs, OthersAtWork
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.host import Host

_LOG = logging.getLogger(__name__)

LONGEST = 60.0
_SOON = 0.5
_WELL_AFTER = 120.0
"""Seconds without a failure after which earlier ones are forgotten."""
_RENEW_EVERY = 600.0
_LEAVING = 5.0
_LATER = 600.0
"""Seconds after which a collection is tried again that was refused over and over."""


class Charge(Protocol):
    """A cache whose collection is looked after."""

    def bring(self, api: Api, incarnation: str, stop: Callable[[], bool]) -> None: ...

    def lost(self) -> None: ...

    def behind(self) -> bool: ...


class Caretaker:
    """Looks after the collections of one process."""

    def __init__(
        self,
        host: Host,
        api: Api,
        figures: Figures,
        *,
        known: Callable[[], Iterable[str]],
        begin: Callable[[Api], None] = lambda _: None,
        heartbeat: float = 15.0,
    ) -> None:
        """`begin` is called when Chroma is reached again; `heartbeat` is how long it may be silent."""
        self.host = host
        self.api = api
        self.figures = figures
        self.known = known
        self._begin = begin
        self._heartbeat = heartbeat
        self.trouble = ""
        """Why Chroma is not to be had, in words for the operator; empty while it is."""
        self._failures = 0
        self._failed_at = 0.0
        self._refusals = 0
        self._renewed_at = -_RENEW_EVERY
        self._reached = ""
        self._due: dict[Charge, float] = {}
        self._told: WeakSet[Charge] = WeakSet()
        self._refused_to: WeakKeyDictionary[Charge, int] = WeakKeyDictionary()
        self._begin_process()

    def _begin_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._current: Charge | None = None
        self._busy: Charge | None = None
        self._stopping = False

    @property
    def up(self) -> bool:
        return not self.trouble and bool(self._reached)

    def want(self, charge: Charge) -> None:
        """Have this collection brought soon; returns at once."""
        if self._process != os.getpid():
            self._due = {}
            self._begin_process()
        with self._changed:
            if self._stopping:
                return
            self._due.setdefault(charge, 0.0)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wikiholt-chroma", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, charge: Charge, timeout: float | None) -> bool:
        """Wait until it has been brought or has failed; whether that was in time. Nobody waits during a pause."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._at_work(charge), timeout)

    def leave(self, charge: Charge) -> None:
        """Look after it no more; what is being done for it is left at the next step, which is awaited a while."""
        with self._changed:
            self._due.pop(charge, None)
            if self._current is charge:
                self._current = None
            self._changed.wait_for(lambda: self._busy is not charge, _LEAVING)

    def close(self) -> None:
        with self._changed:
            self._stopping, self._due, thread = True, {}, self._thread
            self._changed.notify_all()
        if thread is not None and self._process == os.getpid():
            thread.join(10.0)

    def _at_work(self, charge: Charge) -> bool:
        waiting = charge in self._due and self._due[charge] <= time.monotonic() + 2 * _SOON and not self._pause()
        return not self._stopping and (self._current is charge or waiting)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while (charge := self._next()) is not None:
            again: float | None = LONGEST
            try:
                again = self._tended(charge)
            except Exception:  # noqa: BLE001 - a fault met with one collection must not end the thread that serves all
                if self._current is charge:  # otherwise it was closed in the middle
                    _LOG.exception("a fault of Wikiholt's own")
            with self._changed:
                self._busy = None
                if self._current is charge:
                    self._current = None
                    if again is not None:
                        self._due[charge] = time.monotonic() + again
                self._changed.notify_all()

    def _next(self) -> Charge | None:
        """The next collection that is due; None when it is time to end."""
        with self._changed:
            while not self._stopping:
                now, pause = time.monotonic(), self._pause()
                due = [(at, charge) for charge, at in self._due.items() if at <= now]
                if due and not pause:
                    _, self._current = min(due, key=lambda each: each[0])
                    del self._due[self._current]
                    self._busy = self._current
                    return self._current
                soonest = min((at - now for at in self._due.values()), default=None)
                self._changed.wait(pause or soonest)
            return None

    def _pause(self) -> float:
        """Seconds until Chroma is tried again."""
        if not self._failures:
            return 0.0
        return max(0.0, self._failed_at + min(LONGEST, _SOON * 2.0 ** (self._failures - 1)) - time.monotonic())

    def _tended(self, charge: Charge) -> float | None:
        """Bring one collection; returns in how many seconds to do so again, if at all."""
        try:
            incarnation = self._reach()
            charge.bring(self.api, incarnation, lambda: self._stopping or self._current is not charge)
            self._went_well()
            self._refused_to.pop(charge, None)
            return 0.0 if charge.behind() else None
        except Abandoned:
            return None
        except OthersAtWork:
            return _SOON
        except (ChromaAway, MissingExtra) as error:
            charge.lost()
            self._away(error)
            return 0.0
        except ChromaRefused as refusal:
            charge.lost()
            self._refused_to[charge] = self._refused_to.get(charge, 0) + 1
            return self._refused(refusal) or min(_LATER, _SOON * 2.0 ** self._refused_to[charge])
        except (WikiholtError, OSError) as error:
            charge.lost()
            if isinstance(error, NotOurs) and charge not in self._told:
                self._told.add(charge)
                _LOG.error("%s (%s)", error.message, error.hint)
            return LONGEST

    def begin_again(self) -> None:
        """Have `begin` called once more when Chroma is next reached."""
        self._reached = ""

    def _reach(self) -> str:
        """Have Chroma run and answer; returns which incarnation of it does."""
        try:
            self.host.start()
        except NotOurs as error:
            self.trouble = error.message
            raise
        try:
            incarnation = self.api.heartbeat(self._heartbeat)
        except ChromaRefused as refusal:
            raise ChromaAway(refusal.message) from refusal
        if self._reached != f"{incarnation}.":
            if self._reached:
                self._failed()  # it has ended since, and has been started again: not too often
            self.api.prepare()
            self._begin(self.api)
            self._reached = f"{incarnation}."
        return incarnation

    def _went_well(self) -> None:
        self.trouble, self._refusals = "", 0

    def _failed(self) -> None:
        now = time.monotonic()
        self._failures = 1 if now - self._failed_at > _WELL_AFTER else self._failures + 1
        self._failed_at = now

    def _away(self, error: WikiholtError) -> None:
        if not self.trouble:
            _LOG.warning("Chroma is away; exact search answers meanwhile: %s", error.message)
        self.trouble, self._reached = error.message, ""
        self._failed()
        self.figures.add("timeouts" if isinstance(error, ChromaAway) and error.hung else "failures")
        if isinstance(error, ChromaAway) and error.hung:
            self.host.kill()

    def _refused(self, refusal: ChromaRefused) -> float | None:
        """A collection that could not even be filled anew; where everything fails, our own directory is renewed."""
        self.figures.add("failures")
        self._refusals += 1
        _LOG.warning("a collection of Chroma's cannot be used; exact search answers meanwhile: %s", refusal.message)
        broken = self.host.own and refusal.answered == 500 and self._refusals >= 2
        if not broken or time.monotonic() - self._renewed_at < _RENEW_EVERY:
            return None
        self._renewed_at, self._refusals, self._reached = time.monotonic(), 0, ""
        _LOG.warning("Chroma's directory is damaged: it is set aside, and every collection is filled anew")
        self.figures.add("renewals")
        try:
            self.api.renew()
        except (ChromaAway, ChromaRefused):
            self.host.kill()
        return _SOON
