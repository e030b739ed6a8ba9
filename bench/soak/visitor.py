"""A visitor of a soak: a thread, a connection, and a gate that pauses it between two actions."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.many_wikis.repositories import SmallPage
from bench.soak.client import Ledger, Session
from bench.soak.plan import Plan
from bench.soak.process import ServiceProcess
from bench.soak.wikis import SoakWiki

NOT_YET = {"index-missing": "not indexed yet", "nothing-indexed": "not indexed yet"}
_TIMEOUT_S = 60.0


class Gate:
    """Starts, pauses and ends visitors."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open, self._over, self._inside = False, False, 0

    def enter(self) -> bool:
        """Wait until it is open; False at the end of the soak."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._over)
            self._inside += not self._over
            return not self._over

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self, timeout: float) -> bool:
        """Pause all visitors, and wait until they are idle."""
        with self._changed:
            self._open = False
            return self._changed.wait_for(lambda: not self._inside, timeout)

    def stop(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def is_paused(self) -> bool:
        return not self._open


@dataclass(frozen=True, slots=True)
class SharedState:
    """Shared state of visitors."""

    plan: Plan
    service: ServiceProcess
    ledger: Ledger
    gate: Gate
    wikis: Sequence[SoakWiki]
    guests: Sequence[SoakWiki]
    pages: Sequence[SmallPage]
    operator: str
    clones: Path


class Visitor:
    """Repeats the same kind of action at a bounded rate."""

    rests = 1.0
    """Pause between two actions, as a multiple of the plan's rest."""

    def __init__(self, shared: SharedState, name: str) -> None:
        self.state = shared
        self.name = name
        self.ledger = shared.ledger
        self.rng = random.Random(f"{shared.plan.seed} {name}")
        self.session = Session(shared.service, shared.ledger)
        self._marks = 0
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def do_action(self) -> None:
        raise NotImplementedError

    def make_mark(self) -> str:
        """A word that is unique in all wikis."""
        self._marks += 1
        return f"merk{self.name}x{self._marks}x"

    def search(self, wiki: SoakWiki, query: str, mode: str, **others: str) -> list[str] | None:
        """The paths of the hits; None if there was no answer, or if it is not of the newest commit."""
        parameters = {"q": query, "mode": mode} | others
        fresh = "fresh" in others
        reply = self.session.send(
            f"search {mode}{' fresh' if fresh else ''}",
            wiki,
            "GET",
            "/api/v1/search",
            key=wiki.read_key,
            query=parameters,
        )
        if reply.status != 200:
            return None
        self.ledger.add_latency(f"{mode} fresh" if fresh else mode, reply)
        document = reply.document
        if document["degraded"]:
            notes = "; ".join(document["notes"])
            self.ledger.add_explained(f"degraded: {notes}")
        if fresh and document["stale"]:
            self.ledger.add_explained("fresh=true answered stale")
            return None
        return [hit["path"] for hit in document["results"]]

    def wait_until_found(self, wiki: SoakWiki, path: str, mark: str, kind: str) -> None:
        """Measure how long it takes from now until a search by the mark finds the page."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < _TIMEOUT_S + self.state.plan.interval:
            found = self.search(wiki, mark, "keyword")
            if found is not None and path in found:
                away = self.state.service.has_been_away(began)
                self.ledger.add_freshness(f"{kind}, across a restart" if away else kind, time.monotonic() - began)
                return
            time.sleep(0.03 if waited < 3 else 0.15)
        self.ledger.add_fault(f"{kind}: {path} of {wiki.slug} was not found within {waited:.0f} s")

    def _run(self) -> None:
        while self.state.gate.enter():
            try:
                self.do_action()
            except Exception as error:  # noqa: BLE001 - a crashed visitor is a fault
                self.ledger.add_fault(f"{self.name} failed: {type(error).__name__}: {error}")
            finally:
                if self.state.gate.is_paused:
                    self.session.close()
                self.state.gate.leave()
            time.sleep(self.state.plan.think * self.rests * self.rng.uniform(0.5, 1.5))
