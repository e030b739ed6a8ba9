"""How a blow falls on processes at work over PostgreSQL, or on PostgreSQL under them."""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from farm import product
from gate_server import Visitor, serve, visit
from git_repository import Repository
from hindrances import Hindrance
from history import go_on
from pg_deeds import ALONE_WITH_ITS_LEASE, LEASE, PG_DEEDS, SERVE, bench_on, do_pg
from pg_hindrances import CRASH, SESSIONS, HinderedInDatabase
from pg_rounds import RoundServer
from processes import ESCAPED, PATIENCE, Child, Line, Told, search_until

KILL_STEP, KILL_MOMENT, KILL_ALL = "kill at a step", "kill at a moment", "kill all"
CRASHED, ENDED, AWAY, ASLEEP, ROWS = "server crash", "sessions ended", "server away", "asleep", "rows"
PG_BLOWS = (
    *[KILL_STEP] * 4,
    *[KILL_MOMENT] * 2,
    KILL_ALL,
    *[CRASHED] * 3,
    *[ENDED] * 2,
    AWAY,
    *[ASLEEP] * 2,
    *[ROWS] * 3,
)
ON_THE_SERVER = (CRASHED, ENDED, AWAY)
"""Blows after which whoever asked just then may be told that the database is away."""
_SPANS = {"publish": 0.03, "back up": 0.4, "restore": 0.6, "restore registry": 0.15, "remove": 0.2, SERVE: 4.0}
_SERVED_STEPS = 1200
_BESIDE = 0.5


def fits(kind: str, deed: str) -> bool:
    """Whether this blow can fall on this deed."""
    if kind == ASLEEP:
        return deed in ALONE_WITH_ITS_LEASE
    return kind in PG_BLOWS


@dataclass(slots=True)
class PgStruck:
    """What came of the processes that were at work."""

    beside: str = ""
    outcome: str = ""
    hit: bool = False
    overtaken: str = ""
    """The revision that another brought the index to while the struck one slept."""
    searches: dict[str, int] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class PgBlow:
    """One blow of one round. There are two nodes, each with a directory of its own; both have the same `store`."""

    def __init__(self, kind: str, deed: str, place: Path, scratch: Path, server: RoundServer, rng: Random) -> None:
        self.kind, self.deed = kind, deed
        self._place, self._scratch, self._server, self._rng = place, scratch, server, rng
        self._stop = scratch / "stop"
        self._stop.unlink(missing_ok=True)

    @property
    def subject(self) -> str:
        return "victim" if self.deed == SERVE else PG_DEEDS[self.deed].subject

    def strike(self, tokens: dict[str, str], operator: str, number: int) -> PgStruck:
        """Let a searcher, the one to be struck and perhaps another work at once; let the blow fall; hear them."""
        struck, own, seed = PgStruck(), f"n{number}", self._rng.random()
        shared = sorted(tokens)
        mine, theirs = ({token: tokens[token] for token in some} for some in (shared[:2], shared[2:]))
        searcher = Child(
            self._scratch / "searcher", lambda _: search_until(self._node("other"), self.subject, self._stop)
        )
        writer = Child(self._scratch / "writer", lambda line: self._work(line, mine, f"{own}a", Random(seed)))
        beside = self._beside(theirs, operator, own, struck, writer, Random(seed + 1))
        self._fall(struck, writer, [searcher, *([beside] if beside else [])])
        ended = self._end(writer)
        self._server.revive()
        self._stop.touch()
        children = {"writer": (writer, ended), "searcher": (searcher, searcher.join())}
        if beside:
            children["beside"] = (beside, beside.join())
        self._hear(struck, children)
        return struck

    def _node(self, name: str) -> Path:
        return self._place / name

    def _work(self, line: Line, tokens: dict[str, str], own: str, rng: Random) -> object:
        """The whole life of the process that is to be struck."""
        window = None if self.deed == SERVE else PG_DEEDS[self.deed].window
        HinderedInDatabase(line, self._hindrance(rng), window, self._server.pid, self._server.dsn())
        if self.deed == SERVE:
            return serve(self._node("data"), "fake", 0.02, self._scratch / "listens", self._scratch / "log")
        bench = bench_on(self.deed, self._node("data"), self._node("bystander"), own, rng, line, tokens)
        return do_pg(self.deed, bench)

    def _hindrance(self, rng: Random) -> Hindrance:
        steps = _SERVED_STEPS if self.deed == SERVE else PG_DEEDS[self.deed].steps
        kind = {KILL_STEP: "kill", CRASHED: CRASH, ENDED: SESSIONS}.get(self.kind, "")
        return Hindrance(kind, rng.randrange(1, steps) if kind else 0)

    def _beside(
        self, tokens: dict[str, str], operator: str, own: str, struck: PgStruck, writer: Child, rng: Random
    ) -> Child | None:
        """Another node at work on the same wikis: visitors of a service, or somebody at a terminal."""
        if self.deed == SERVE:
            struck.beside = "visitors"
            (self._scratch / "listens").unlink(missing_ok=True)
            visitor = Visitor(self._scratch / "listens", operator, self._stop.exists)
            return Child(self._scratch / "beside", lambda line: visit(visitor, rng, line, f"{own}b"))
        if rng.random() > _BESIDE or self.kind == ASLEEP:
            return None
        struck.beside = name = rng.choice(PG_DEEDS[self.deed].beside)

        def work(line: Line) -> object:
            node = self._node("other")
            return do_pg(name, bench_on(name, node, self._node("bystander"), f"{own}b", rng, line, tokens))

        return Child(self._scratch / "beside", work)

    def _fall(self, struck: PgStruck, writer: Child, others: list[Child]) -> None:
        """Wait for the moment of a blow that comes from outside, and let it fall."""
        if self.kind in (CRASHED, ENDED):
            _wait(lambda: self._server.gone or writer.poll() or self._over(others), PATIENCE)
            if self._server.gone:
                time.sleep(self._rng.choice((0.0, 0.3, 1.2)))
                self._server.revive()
            return
        if self.kind in (KILL_STEP, ROWS):
            if self.deed == SERVE:
                _wait(lambda: self._over(others) or writer.poll(), 20)
            return
        _wait(lambda: writer.line.entered or writer.poll(), 20)
        time.sleep(self._rng.uniform(0, _SPANS.get(self.deed, 1.0)))
        if self.kind == AWAY:
            self._server.go_away(self._rng.uniform(0.2, 1.2))
        elif self.kind == ASLEEP:
            self._sleep(struck, writer)
        else:
            writer.kill(group=self.kind == KILL_ALL)
            for child in others if self.kind == KILL_ALL else ():
                child.kill(group=True)

    def _over(self, others: list[Child]) -> bool:
        """Whether the visitors of a service have gone; without any, nothing else ends the waiting."""
        return self.deed == SERVE and others[-1].poll()

    def _sleep(self, struck: PgStruck, writer: Child) -> None:
        """Stop the node for longer than its lease, have another do newer work meanwhile, and let it go on."""
        if writer.poll():
            return
        writer.kill(signal.SIGSTOP)
        try:
            time.sleep(LEASE)
            repository = Repository(self._place / "victim")
            go_on(repository, self._rng)
            taken = Child(self._scratch / "usurper", lambda _: _sync_as(self._node("other"), self.deed)).join()
            if taken["outcome"] == "done" and isinstance(taken.get("value"), str):
                struck.overtaken = str(taken["value"])
            else:
                struck.faults.append(f"while one slept, another could not take over: {taken.get('trace', taken)}")
        finally:
            writer.kill(signal.SIGCONT)

    def _end(self, writer: Child) -> dict[str, object]:
        if self.deed == SERVE and not writer.poll():
            self._stop.touch()
            writer.kill(signal.SIGTERM)
        return writer.join()

    def _hear(self, struck: PgStruck, children: dict[str, tuple[Child, dict[str, object]]]) -> None:
        for name, (child, ended) in children.items():
            struck.told.append([line for line in child.line.heard() if line[0] in ("begin", "done")])
            outcome = str(ended["outcome"])
            if self.deed == SERVE and name == "writer" and ended.get("trace") == "ended by SIGTERM":
                outcome = "ended early"  # it was told to end before it had begun to listen
            if name == "writer":
                struck.outcome, struck.hit = outcome, outcome == "killed" and child.line.inside
            elif name == "searcher" and isinstance(value := ended.get("value"), dict):
                struck.searches = value
            if outcome == ESCAPED:
                log = (self._scratch / "log").read_text().strip()[-6000:] if self.deed == SERVE else ""
                struck.faults.append(f"{name}: {ended.get('trace', ended)}\n{log}".strip())
            child.line.close()
        if self.kind not in ON_THE_SERVER and struck.searches.get("database-away"):
            struck.faults.append("nothing befell the database, and a search said that it was away")


def _sync_as(node: Path, deed: str) -> str:
    service = product(node, PG_DEEDS[deed].model)
    revision = service.wiki("victim").sync().revision
    service.close()
    return revision


def lay_out(template: Path, place: Path) -> None:
    """The directories of a round: repositories, and those of two nodes."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place)


def _wait(condition: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
