"""Failures of running processes that use PostgreSQL, and of PostgreSQL itself."""

import shutil
import signal
import time
from pathlib import Path
from random import Random

from tests.crash.child_process import TIMEOUT_S, UNEXPECTED_ERROR, ChildChannel, ChildProcess, search_until
from tests.crash.crash_round import FailureOutcome
from tests.crash.fault_injection import InjectedFault
from tests.crash.operations import SERVE, run_operation
from tests.crash.postgres.postgres_operations import (
    LEASE_S,
    LEASED_OPERATIONS,
    POSTGRES_OPERATIONS,
    make_postgres_context,
)
from tests.crash.postgres.round_server import RestorableServer
from tests.crash.postgres.statement_faults import CRASH, SESSIONS, StatementFaultInjector
from tests.crash.random_edits import make_random_edits
from tests.crash.server_process import run_server, start_clients
from tests.support.git_repository import Repository
from tests.support.services import build_test_service
from tests.support.wait import wait_up_to

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
"""Failures during which a request may get the error that the database is unavailable."""
_DURATIONS_S = {"publish": 0.03, "back up": 0.4, "restore": 0.6, "restore registry": 0.15, "remove": 0.2, SERVE: 4.0}
_SERVED_STEPS = 1200
_CONCURRENT_PROBABILITY = 0.5


def can_fail(kind: str, operation: str) -> bool:
    """Whether this failure is possible during this operation."""
    if kind == WRITER_ASLEEP:
        return operation in LEASED_OPERATIONS
    return kind in POSTGRES_FAILURES


class PostgresFailure:
    """The failure of one round. There are two nodes with separate directories and the same `store`."""

    def __init__(
        self, kind: str, operation: str, directory: Path, scratch: Path, server: RestorableServer, rng: Random
    ) -> None:
        self.kind, self.operation = kind, operation
        self._directory, self._scratch, self._server, self._rng = directory, scratch, server, rng
        self._stop = scratch / "stop"
        self._stop.unlink(missing_ok=True)

    @property
    def subject(self) -> str:
        return "victim" if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].subject

    def run_processes(self, tokens: dict[str, str], operator: str, number: int) -> FailureOutcome:
        """Run a searcher, the writer and sometimes another process, cause the failure, and collect the results."""
        outcome, page_prefix, seed = FailureOutcome(), f"n{number}", self._rng.random()
        shared = sorted(tokens)
        writer_tokens, other_tokens = ({token: tokens[token] for token in half} for half in (shared[:2], shared[2:]))
        searcher = ChildProcess(
            self._scratch / "searcher",
            lambda _: search_until(self._get_node_directory("other"), self.subject, self._stop),
        )
        writer = ChildProcess(
            self._scratch / "writer",
            lambda channel: self._run_writer(channel, writer_tokens, f"{page_prefix}a", Random(seed)),
        )
        concurrent = self._start_concurrent(other_tokens, operator, page_prefix, outcome, writer, Random(seed + 1))
        self._cause_failure(outcome, writer, [searcher, *([concurrent] if concurrent else [])])
        ended = self._wait_for_writer(writer)
        self._server.restart_if_down()
        self._stop.touch()
        children = {"writer": (writer, ended), "searcher": (searcher, searcher.wait())}
        if concurrent:
            children["concurrent"] = (concurrent, concurrent.wait())
        self._collect_messages(outcome, children)
        return outcome

    def _get_node_directory(self, name: str) -> Path:
        return self._directory / name

    def _run_writer(self, channel: ChildChannel, tokens: dict[str, str], page_prefix: str, rng: Random) -> object:
        """Run the process that is to fail."""
        window = None if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].window
        StatementFaultInjector(channel, self._choose_fault(rng), window, self._server.pid, self._server.get_dsn())
        if self.operation == SERVE:
            return run_server(
                self._get_node_directory("data"), "fake", 0.02, self._scratch / "address", self._scratch / "log"
            )
        context = make_postgres_context(
            self.operation,
            self._get_node_directory("data"),
            self._get_node_directory("bystander"),
            page_prefix,
            rng,
            channel,
            tokens,
        )
        return run_operation(self.operation, context, POSTGRES_OPERATIONS)

    def _choose_fault(self, rng: Random) -> InjectedFault:
        steps = _SERVED_STEPS if self.operation == SERVE else POSTGRES_OPERATIONS[self.operation].steps
        kind = {KILL_STEP: "kill", SERVER_CRASH: CRASH, SESSIONS_ENDED: SESSIONS}.get(self.kind, "")
        return InjectedFault(kind, rng.randrange(1, steps) if kind else 0)

    def _start_concurrent(
        self,
        tokens: dict[str, str],
        operator: str,
        page_prefix: str,
        outcome: FailureOutcome,
        writer: ChildProcess,
        rng: Random,
    ) -> ChildProcess | None:
        """Start another node on the same wikis: clients of a service, or a command."""
        if self.operation == SERVE:
            outcome.concurrent_operation = "clients"
            return start_clients(self._scratch, operator, self._stop, rng, f"{page_prefix}b")
        if rng.random() > _CONCURRENT_PROBABILITY or self.kind == WRITER_ASLEEP:
            return None
        outcome.concurrent_operation = name = rng.choice(POSTGRES_OPERATIONS[self.operation].concurrent)

        def run_concurrently(channel: ChildChannel) -> object:
            spare = self._get_node_directory("bystander")
            context = make_postgres_context(
                name, self._get_node_directory("other"), spare, f"{page_prefix}b", rng, channel, tokens
            )
            return run_operation(name, context, POSTGRES_OPERATIONS)

        return ChildProcess(self._scratch / "concurrent", run_concurrently)

    def _cause_failure(self, outcome: FailureOutcome, writer: ChildProcess, others: list[ChildProcess]) -> None:
        """Wait for the moment of a failure that comes from outside, and cause it."""
        if self.kind in (SERVER_CRASH, SESSIONS_ENDED):
            wait_up_to(
                lambda: self._server.has_crashed or writer.has_ended() or self._have_clients_left(others), TIMEOUT_S
            )
            if self._server.has_crashed:
                time.sleep(self._rng.choice((0.0, 0.3, 1.2)))
                self._server.restart_if_down()
            return
        if self.kind in (KILL_STEP, ROW_DAMAGE):
            if self.operation == SERVE:
                wait_up_to(lambda: self._have_clients_left(others) or writer.has_ended(), TIMEOUT_S)
            return
        wait_up_to(lambda: writer.channel.has_entered or writer.has_ended(), TIMEOUT_S)
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
        """Whether the clients of a service have ended; False without a service."""
        return self.operation == SERVE and others[-1].has_ended()

    def _suspend_writer(self, outcome: FailureOutcome, writer: ChildProcess) -> None:
        """Suspend the node for longer than its lease, sync a newer revision on another node, and resume the first."""
        if writer.has_ended():
            return
        writer.send_signal(signal.SIGSTOP)
        try:
            time.sleep(LEASE_S)
            repository = Repository(self._directory / "victim")
            make_random_edits(repository, self._rng)
            taken = ChildProcess(
                self._scratch / "takeover", lambda _: _sync_on_node(self._get_node_directory("other"), self.operation)
            ).wait()
            if taken["outcome"] == "done" and isinstance(taken.get("value"), str):
                outcome.lost_lease = str(taken["value"])
            else:
                outcome.faults.append(f"another node could not take over: {taken.get('trace', taken)}")
        finally:
            writer.send_signal(signal.SIGCONT)

    def _wait_for_writer(self, writer: ChildProcess) -> dict[str, object]:
        if self.operation == SERVE and not writer.has_ended():
            self._stop.touch()
            writer.send_signal(signal.SIGTERM)
        return writer.wait()

    def _collect_messages(
        self, result: FailureOutcome, children: dict[str, tuple[ChildProcess, dict[str, object]]]
    ) -> None:
        for name, (child, ended) in children.items():
            result.messages.append([line for line in child.channel.receive_all() if line[0] in ("begin", "done")])
            ending = str(ended["outcome"])
            if self.operation == SERVE and name == "writer" and ended.get("trace") == "ended by SIGTERM":
                ending = "ended early"  # it was stopped before it listened
            if name == "writer":
                result.outcome, result.hit_window = ending, ending == "killed" and child.channel.is_inside
            elif name == "searcher" and isinstance(value := ended.get("value"), dict):
                result.searches = value
            if ending == UNEXPECTED_ERROR:
                log = (self._scratch / "log").read_text().strip()[-6000:] if self.operation == SERVE else ""
                result.faults.append(f"{name}: {ended.get('trace', ended)}\n{log}".strip())
            child.channel.close()
        if self.kind not in SERVER_FAILURES and result.searches.get("database-unavailable"):
            result.faults.append("the database did not fail, but a search reported it as unavailable")


def _sync_on_node(node: Path, operation: str) -> str:
    service = build_test_service(node, POSTGRES_OPERATIONS[operation].model)
    revision = service.get_handle("victim").sync().revision
    service.close()
    return revision


def copy_template(template: Path, directory: Path) -> None:
    """Copy the directories of a round: repositories and the data of two nodes."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(template, directory)
