"""Runs a soak: creates the wikis, starts service and visitors, restarts and measures by plan, compares."""

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.many_wikis.repositories import SmallPage
from bench.soak.client import Ledger, Session
from bench.soak.disk import check_files
from bench.soak.final_checks import run_final_checks
from bench.soak.growth import Point, compute_trends
from bench.soak.operator import ImpatientClient, Operator
from bench.soak.outcome import SoakOutcome, read_log
from bench.soak.plan import Plan, Step
from bench.soak.process import ServiceProcess
from bench.soak.pushers import Pusher, SilentPusher
from bench.soak.readers import Reader
from bench.soak.visitor import NOT_YET, Gate, SharedState, Visitor
from bench.soak.wikis import SoakWiki, create_wikis, register_wikis
from bench.soak.writers import Writer
from wikiholt.api.bootstrap import open_service

_GUESTS = 4
_WARM_READERS = 5
_TIMEOUT_S = 240.0


class Soak:
    """One soak in one directory."""

    def __init__(self, plan: Plan, home: Path, pages: Sequence[SmallPage], command: Sequence[str]) -> None:
        self._plan, self._pages = plan, pages
        self._data, self._log = home / "data", home / "serve.log"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        names = [f"wiki-{number:03d}" for number in range(plan.wikis)]
        self._wikis = create_wikis(pages, home / "wikis", names, plan.seed)
        guests = create_wikis(pages, home / "guests", [f"guest-{number}" for number in range(_GUESTS)], plan.seed + 1)
        operator = register_wikis(self._data, self._wikis)
        settings = {"SYNC_INTERVAL": plan.interval, "BACKUP_KEEP": plan.backups_kept, "BACKUP_INTERVAL": 60}
        settings |= {"CHECK_INTERVAL": 120, "LIMIT_ADDRESS_PER_MINUTE": 0}
        self._service = ServiceProcess(
            [*command, "--data", str(self._data), "serve", "--json", str(home / "wikis")],
            {f"WIKIHOLT_{name}": str(value) for name, value in settings.items()},
            self._log,
        )
        self._gate, ledger = Gate(), Ledger()
        clones = home / "clones"
        clones.mkdir()
        self._state = SharedState(plan, self._service, ledger, self._gate, self._wikis, guests, pages, operator, clones)
        self._outcome = SoakOutcome(plan, ledger, self._service)

    def run(self) -> SoakOutcome:
        """Run all steps; the service is stopped in any case."""
        self._log.touch()
        self._service.start()
        try:
            self._wait_until_indexed()
            visitors = self._make_visitors()
            for visitor in visitors:
                visitor.thread.start()
            self._run_steps()
            self._measure()
            self._gate.stop()
            for visitor in visitors:
                visitor.thread.join(60)
            self._stop()
        finally:
            self._service.kill()
        return self._finish()

    def _make_visitors(self) -> list[Visitor]:
        plan, scene = self._plan, self._state
        kinds = [(Reader, plan.readers), (Writer, plan.writers), (Pusher, plan.waking), (SilentPusher, plan.silent)]
        kinds += [(Operator, 1), (ImpatientClient, 1)]
        return [kind(scene, f"{kind.__name__[0].lower()}{n}") for kind, count in kinds for n in range(count)]

    def _run_steps(self) -> None:
        ledger = self._outcome.ledger
        began = ledger.began = time.monotonic()
        self._gate.open()
        paused = 0.0
        for at, step in self._plan.make_steps():
            # The plan's clock stops during a measurement.
            time.sleep(max(0.0, at + paused - (time.monotonic() - began)))
            print(f"{time.monotonic() - began:.0f} s: {step}", file=sys.stderr, flush=True)
            if step in (Step.MEASURE, Step.WARM):
                then = time.monotonic()
                self._measure() if step is Step.MEASURE else self._warm()
                paused += time.monotonic() - then
                self._gate.open()
            elif fault := self._service.restart(signal.Signals[step]):
                ledger.add_fault(fault)
            if not self._service.is_running():
                raise RuntimeError("the service ended unexpectedly; see its log")
        self._outcome.lasted = time.monotonic() - began

    def _warm(self) -> None:
        """Open all connections of every wiki: up to three for searches and one for syncs."""
        self._gate.close(_TIMEOUT_S)
        readers = [Reader(self._state, f"warm{number}") for number in range(_WARM_READERS)]
        writer = Writer(self._state, "warmw")
        with ThreadPoolExecutor(_WARM_READERS) as pool:
            for wiki in self._wikis:
                writer.touch(wiki)
                for _ in range(3):
                    list(pool.map(lambda reader, wiki=wiki: reader.search(wiki, wiki.canary, "hybrid"), readers))
        for visitor in (*readers, writer):
            visitor.session.close()

    def _measure(self) -> None:
        """Measure process and files while idle, with every index at HEAD and every wiki searched once."""
        ledger = self._outcome.ledger
        if not self._gate.close(_TIMEOUT_S):
            ledger.add_fault("visitors did not become idle")
        chunks = self._wait_until_settled()
        figures = self._service.read_resources()
        disk = check_files(self._data, self._read_ids(), self._plan.backups_kept)
        self._outcome.unexpected.update(disk.unexpected)
        figures |= {
            "files": float(sum(disk.files[kind] for kind in ("index", "log", "cache", "registry"))),
            "index kB a chunk": (disk.bytes["index"] + disk.bytes["log"]) / 1024 / chunks,
            "cache kB a chunk": disk.bytes["cache"] / 1024 / chunks,
            "registry kB": disk.bytes["registry"] / 1024,
            "chunks": float(chunks),
            "index MB": disk.bytes["index"] / 2**20,
            "backup files": float(disk.files["backup"]),
            "backup MB": disk.bytes["backup"] / 2**20,
        }
        self._outcome.points.append(Point(self._service.life, time.monotonic() - ledger.began, figures))

    def _read_ids(self) -> set[str]:
        service = open_service(self._data)
        try:
            return {wiki.id for wiki in service.list_wikis()}
        finally:
            service.close()

    def _wait_until_indexed(self) -> None:
        began = time.monotonic()
        self._wait_until_settled(_TIMEOUT_S + 2 * self._plan.wikis)
        self._outcome.ledger.add_explained(f"indexed from scratch in {time.monotonic() - began:.0f} s")

    def _wait_until_settled(self, timeout: float = _TIMEOUT_S) -> int:
        """Wait until no wiki is stale, syncing or queued; returns the total number of chunks."""
        session, total = Session(self._service, self._outcome.ledger), 0
        until = time.monotonic() + timeout
        for wiki in self._wikis:
            while not (chunks := self._count_settled_chunks(session, wiki)):
                if time.monotonic() > until:
                    self._outcome.ledger.add_fault(f"{wiki.slug} did not reach its HEAD within {timeout:.0f} s")
                    break
                time.sleep(0.1)
            total += chunks
        session.close()
        return total

    def _count_settled_chunks(self, session: Session, wiki: SoakWiki) -> int:
        reply = session.send("status", wiki, "GET", "/api/v1/status", key=wiki.admin_key, allows=NOT_YET)
        if reply.status != 200:
            return 0
        document = reply.document
        at_rest = not (document["stale"] or document["activity"] or document["waiting"] or document["error"])
        if at_rest:
            self._search_once(session, wiki)
        return int(document["chunks"] or 0) if at_rest else 0

    def _search_once(self, session: Session, wiki: SoakWiki) -> None:
        """Search, so that every wiki is in the same state at each point: recently searched, caches loaded."""
        session.send("search hybrid", wiki, "GET", "/api/v1/search", key=wiki.read_key, query={"q": wiki.canary})

    def _stop(self) -> None:
        began = time.monotonic()
        code = self._service.stop()
        self._service.ends.append(("SIGTERM at the end", time.monotonic() - began, 0.0))
        if code:
            self._outcome.ledger.add_fault(f"SIGTERM at the end: exit code {code}")

    def _finish(self) -> SoakOutcome:
        outcome = self._outcome
        outcome.log = read_log(self._log)
        outcome.trends = compute_trends(outcome.points)
        outcome.ending = run_final_checks(self._data, self._wikis, self._log)
        return outcome
