"""How a blow falls on processes at work over PostgreSQL, or on PostgreSQL under them."""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash.child_process import TIMEOUT_S, UNEXPECTED_ERROR, ChildChannel, ChildProcess, Messages, search_until
from tests.crash.fault_injection import InjectedFault
from tests.crash.operations import SERVE
from tests.crash.postgres.postgres_operations import (
    LEASE_S,
    LEASED_OPERATIONS,
    POSTGRES_OPERATIONS,
    make_postgres_context,
    run_postgres_operation,
)
from tests.crash.postgres.round_server import RestorableServer
from tests.crash.postgres.statement_faults import CRASH, SESSIONS, StatementFaultInjector
from tests.crash.random_edits import make_random_edits
from tests.crash.server_process import RandomClient, run_random_client, run_server
from tests.support.git_repository import Repository
from tests.support.services import build_test_service

KILL_STEP, KILL_MOMENT, KILL_ALL = "kill at a step", "kill at a moment", "kill all"
SERVER_CRASH, SESSIONS_ENDED, SERVER_AWAY, WRITER_ASLEEP, ROW_DAMAGE = (
    "server crash",
    "sessions ended",
    "server away",
    "asleep",
    "rows",
)
POSTGRES_FAILURES = (
    *[KILL_STEP] * 4,
    *[KILL_MOMENT] * 2,
    KILL_ALL,
    *[SERVER_CRASH] * 3,
    *[SESSIONS_ENDED] * 2,
    SERVER_AWAY,
    *[WRITER_ASLEEP] * 2,
    *[ROW_DAMAGE] * 3,
)
SERVER_FAILURES = (SERVER_CRASH, SESSIONS_ENDED, SERVER_AWAY)
"""Blows after which whoever asked just then may be told that the database is away."""
_DURATIONS_S = {"publish": 0.03, "back up": 0.4, "restore": 0.6, "restore registry": 0.15, "remove": 0.2, SERVE: 4.0}
_SERVED_STEPS = 1200
_CONCURRENT_PROBABILITY = 0.5


def can_fail(kind: str, operation: str) -> bool:
    """Whether this blow can fall on this deed."""
    if kind == WRITER_ASLEEP:
        return operation in LEASED_OPERATIONS
    return kind in POSTGRES_FAILURES


@dataclass(slots=True)
class PostgresOutcome:
    """What came of the processes that were at work."""

    concurrent_operation: str = ""
    outcome: str = ""
    hit_window: bool = False
    lost_lease: str = ""
    """The revision that another brought the index to while the struck one slept."""
    searches: dict[str, int] = field(default_factory=dict)
    messages: list[Messages] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class PostgresFailure:
    """One blow of one round. There are two nodes, each with a directory of its own; both have the same `store`."""

    def __init__(
        self, kind: str, operation: str, place: Path, scratch: Path, server: RestorableServer, rng: Random
    ) -> None:
        self.kind, self.operation = kind, operation
        self._place, self._scratch, self._server, self._rng = place, scratch, server, rng
        self._stop = scratch / "stop"
        self._stop.unlink(missing_ok=True)

    @property
    def subject(self) -> str:
        return "victim" if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].subject

    def run_processes(self, tokens: dict[str, str], operator: str, number: int) -> PostgresOutcome:
        """Let a searcher, the one to be struck and perhaps another work at once; let the blow fall; hear them."""
        struck, own, seed = PostgresOutcome(), f"n{number}", self._rng.random()
        shared = sorted(tokens)
        mine, theirs = ({token: tokens[token] for token in some} for some in (shared[:2], shared[2:]))
        searcher = ChildProcess(
            self._scratch / "searcher",
            lambda _: search_until(self._get_node_directory("other"), self.subject, self._stop),
        )
        writer = ChildProcess(
            self._scratch / "writer", lambda line: self._run_writer(line, mine, f"{own}a", Random(seed))
        )
        beside = self._start_concurrent(theirs, operator, own, struck, writer, Random(seed + 1))
        self._cause_failure(struck, writer, [searcher, *([beside] if beside else [])])
        ended = self._wait_for_writer(writer)
        self._server.restart_if_down()
        self._stop.touch()
        children = {"writer": (writer, ended), "searcher": (searcher, searcher.wait())}
        if beside:
            children["beside"] = (beside, beside.wait())
        self._collect_messages(struck, children)
        return struck

    def _get_node_directory(self, name: str) -> Path:
        return self._place / name

    def _run_writer(self, channel: ChildChannel, tokens: dict[str, str], page_prefix: str, rng: Random) -> object:
        """The whole life of the process that is to be struck."""
        window = None if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].window
        StatementFaultInjector(channel, self._choose_fault(rng), window, self._server.pid, self._server.get_dsn())
        if self.operation == SERVE:
            return run_server(
                self._get_node_directory("data"), "fake", 0.02, self._scratch / "listens", self._scratch / "log"
            )
        bench = make_postgres_context(
            self.operation,
            self._get_node_directory("data"),
            self._get_node_directory("bystander"),
            page_prefix,
            rng,
            channel,
            tokens,
        )
        return run_postgres_operation(self.operation, bench)

    def _choose_fault(self, rng: Random) -> InjectedFault:
        steps = _SERVED_STEPS if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].steps
        kind = {KILL_STEP: "kill", SERVER_CRASH: CRASH, SESSIONS_ENDED: SESSIONS}.get(self.kind, "")
        return InjectedFault(kind, rng.randrange(1, steps) if kind else 0)

    def _start_concurrent(
        self,
        tokens: dict[str, str],
        operator: str,
        page_prefix: str,
        outcome: PostgresOutcome,
        writer: ChildProcess,
        rng: Random,
    ) -> ChildProcess | None:
        """Another node at work on the same wikis: visitors of a service, or somebody at a terminal."""
        if self.operation == SERVE:
            outcome.concurrent_operation = "visitors"
            (self._scratch / "listens").unlink(missing_ok=True)
            visitor = RandomClient(self._scratch / "listens", operator, self._stop.exists)
            return ChildProcess(
                self._scratch / "beside", lambda line: run_random_client(visitor, rng, line, f"{page_prefix}b")
            )
        if rng.random() > _CONCURRENT_PROBABILITY or self.kind == WRITER_ASLEEP:
            return None
        outcome.concurrent_operation = name = rng.choice(POSTGRES_OPERATIONS[self.operation].concurrent)

        def work(line: ChildChannel) -> object:
            node = self._get_node_directory("other")
            return run_postgres_operation(
                name,
                make_postgres_context(
                    name, node, self._get_node_directory("bystander"), f"{page_prefix}b", rng, line, tokens
                ),
            )

        return ChildProcess(self._scratch / "beside", work)

    def _cause_failure(self, outcome: PostgresOutcome, writer: ChildProcess, others: list[ChildProcess]) -> None:
        """Wait for the moment of a blow that comes from outside, and let it fall."""
        if self.kind in (SERVER_CRASH, SESSIONS_ENDED):
            _wait_until(
                lambda: self._server.has_crashed or writer.has_ended() or self._have_clients_left(others), TIMEOUT_S
            )
            if self._server.has_crashed:
                time.sleep(self._rng.choice((0.0, 0.3, 1.2)))
                self._server.restart_if_down()
            return
        if self.kind in (KILL_STEP, ROW_DAMAGE):
            if self.operation == SERVE:
                _wait_until(lambda: self._have_clients_left(others) or writer.has_ended(), 20)
            return
        _wait_until(lambda: writer.channel.has_entered or writer.has_ended(), 20)
        time.sleep(self._rng.uniform(0, _DURATIONS_S.get(self.operation, 1.0)))
        if self.kind == SERVER_AWAY:
            self._server.stop_for(self._rng.uniform(0.2, 1.2))
        elif self.kind == WRITER_ASLEEP:
            self._suspend_writer(outcome, writer)
        else:
            writer.send_signal(group=self.kind == KILL_ALL)
            for child in others if self.kind == KILL_ALL else ():
                child.send_signal(group=True)

    def _have_clients_left(self, others: list[ChildProcess]) -> bool:
        """Whether the visitors of a service have gone; without any, nothing else ends the waiting."""
        return self.operation == SERVE and others[-1].has_ended()

    def _suspend_writer(self, outcome: PostgresOutcome, writer: ChildProcess) -> None:
        """Stop the node for longer than its lease, have another do newer work meanwhile, and let it go on."""
        if writer.has_ended():
            return
        writer.send_signal(signal.SIGSTOP)
        try:
            time.sleep(LEASE_S)
            repository = Repository(self._place / "victim")
            make_random_edits(repository, self._rng)
            taken = ChildProcess(
                self._scratch / "usurper", lambda _: _sync_on_node(self._get_node_directory("other"), self.operation)
            ).wait()
            if taken["outcome"] == "done" and isinstance(taken.get("value"), str):
                outcome.lost_lease = str(taken["value"])
            else:
                outcome.faults.append(f"while one slept, another could not take over: {taken.get('trace', taken)}")
        finally:
            writer.send_signal(signal.SIGCONT)

    def _wait_for_writer(self, writer: ChildProcess) -> dict[str, object]:
        if self.operation == SERVE and not writer.has_ended():
            self._stop.touch()
            writer.send_signal(signal.SIGTERM)
        return writer.wait()

    def _collect_messages(
        self, result: PostgresOutcome, children: dict[str, tuple[ChildProcess, dict[str, object]]]
    ) -> None:
        for name, (child, ended) in children.items():
            result.messages.append([line for line in child.channel.receive_all() if line[0] in ("begin", "done")])
            outcome = str(ended["outcome"])
            if self.operation == SERVE and name == "writer" and ended.get("trace") == "ended by SIGTERM":
                outcome = "ended early"  # it was told to end before it had begun to listen
            if name == "writer":
                result.outcome, result.hit_window = outcome, outcome == "killed" and child.channel.is_inside
            elif name == "searcher" and isinstance(value := ended.get("value"), dict):
                result.searches = value
            if outcome == UNEXPECTED_ERROR:
                log = (self._scratch / "log").read_text().strip()[-6000:] if self.operation == SERVE else ""
                result.faults.append(f"{name}: {ended.get('trace', ended)}\n{log}".strip())
            child.channel.close()
        if self.kind not in SERVER_FAILURES and result.searches.get("database-away"):
            result.faults.append("nothing befell the database, and a search said that it was away")


def _sync_on_node(node: Path, operation: str) -> str:
    service = build_test_service(node, POSTGRES_OPERATIONS[operation].model)
    revision = service.get_handle("victim").sync().revision
    service.close()
    return revision


def copy_template(template: Path, place: Path) -> None:
    """The directories of a round: repositories, and those of two nodes."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place)


def _wait_until(condition: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
