"""The crash test with PostgreSQL: rounds of random operations and random failures, then checks at the next start.

Every round starts from the same files of the server and of two nodes. A seed and a number repeat it, except for
failures at a time.
"""

import shutil
import time
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.crash.acks import Acks
from tests.crash.child_process import ChildProcess
from tests.crash.crash_round import CrashRound, FailureOutcome, pair_each
from tests.crash.injected_bugs import inject_bug
from tests.crash.operations import SERVE
from tests.crash.postgres.postgres_failures import (
    POSTGRES_FAILURES,
    ROW_DAMAGE,
    PostgresFailure,
    can_fail,
    copy_template,
)
from tests.crash.postgres.postgres_operations import HOME, LEASE_S, POSTGRES_OPERATIONS, SECOND
from tests.crash.postgres.postgres_recovery import PostgresRecoveryCase, check_postgres_recovery
from tests.crash.postgres.round_server import RestorableServer
from tests.crash.postgres.row_damage import damage_rows
from tests.crash.random_edits import create_pages, make_random_edits
from tests.crash.recovery import RecoveryCase
from tests.crash.seed_data import create_seed_data
from tests.isolation.postgres.postgres_backend import DatabaseRows, write_settings
from tests.support.git_repository import Repository
from tests.support.services import build_test_service

_OPERATIONS = (*POSTGRES_OPERATIONS, "sync", "reindex", "move", "remove", SERVE)
_SERVE_PROBABILITY = 0.12


class PostgresCrashGate:
    """All rounds of one seed, with one server."""

    def __init__(self, directory: Path, server: RestorableServer, seed: int, *, pages: int = 24, bug: str = "") -> None:
        self._seed, self._bug, self._server = seed, bug, server
        self._template, self._round, self._scratch = (directory / name for name in ("template", "round", "scratch"))
        self._scratch.mkdir(parents=True)
        self._addresses = {HOME: server.create_database(), SECOND: server.create_database()}
        backups = f'"{self._round / "data" / "backups"}"'
        for node in ("data", "other"):
            settings = {"postgres__lease": LEASE_S, "lock__timeout": 30, "backup__directory": backups}
            write_settings(self._round / node, self._addresses[HOME], **settings)
        made = ChildProcess(self._scratch / "made", lambda _: self._make_template(Random(seed), pages)).wait()
        value = made.get("value")
        assert isinstance(value, dict), made.get("trace", made)
        self._ids: dict[str, str] = value["ids"]
        self._tokens: dict[str, str] = value["tokens"]
        self._revoked, self._operator = str(value["revoked"]), str(value["operator"])
        server.save_state()
        shutil.copytree(self._round, self._template)

    def _make_template(self, rng: Random, pages: int) -> dict[str, object]:
        """Three wikis on two databases, with every kind of data."""
        for slug, count in (("victim", pages), ("bystander", 6), ("upstream", 8)):
            create_pages(Repository(self._round / slug), rng, count)
        service = build_test_service(self._round / "data")
        assert service.components.databases is not None
        service.components.databases.add(SECOND, self._addresses[SECOND], 1.0)
        return create_seed_data(service, self._round)

    @staticmethod
    def pair_each(count: int) -> list[tuple[str, str]]:
        """Operations and failures of rounds in which each occurs as early as possible."""
        return pair_each(_OPERATIONS, POSTGRES_FAILURES, can_fail, count)

    def run_round(self, number: int, only_operation: str = "", only_failure: str = "") -> CrashRound:
        """Run one complete round."""
        began, rng = time.monotonic(), Random(f"{self._seed}/{number}")
        operation, kind = only_operation or rng.choice(_OPERATIONS), only_failure or rng.choice(POSTGRES_FAILURES)
        while not can_fail(kind, operation):
            operation, kind = only_operation or rng.choice(_OPERATIONS), only_failure or rng.choice(POSTGRES_FAILURES)
        subject = "victim" if operation == SERVE else POSTGRES_OPERATIONS[operation].subject
        by_service = rng.random() < _SERVE_PROBABILITY and subject == "victim" and operation != "other model"
        round_ = CrashRound(number, operation, kind, served=operation == SERVE or by_service)
        expected = Acks({**self._ids}, dict.fromkeys((*self._tokens, self._operator), True) | {self._revoked: False})
        try:
            self._server.restore_state()
            copy_template(self._template, self._round)
            round_.changes = make_random_edits(
                Repository(self._round / ("victim" if subject == "victim" else "upstream")), rng
            )
            before = self._read_other_wikis(subject, round_)
            outcome = self._run_failure(
                PostgresFailure(kind, operation, self._round, self._scratch, self._server, rng), round_, expected
            )
            if kind == ROW_DAMAGE:
                round_.damage = self._damage_rows(subject, rng, number)
            self._check_recovery(round_, expected, subject, outcome)
            if not round_.fault and self._read_other_wikis(subject, round_) != before:
                round_.add_fault("rows of another wiki have changed")
            if not round_.fault and subject == "victim":
                expected.check_pages(Repository(self._round / "victim"))
        except AssertionError as error:
            round_.add_fault(str(error))
        round_.seconds = time.monotonic() - began
        return round_

    def _read_other_wikis(self, subject: str, round_: CrashRound) -> dict[str, str]:
        """All rows of the wikis that the round does not use. A service writes notes."""
        rows, found = DatabaseRows(list(self._addresses.values())), {}
        for slug, wiki_id in self._ids.items():
            for table, content in rows.read_schema(f"w_{wiki_id}").items() if slug != subject else ():
                has_notes = round_.served and table.endswith(".state")
                kept = [row for row in content if not has_notes or str(row[1]).startswith("#")]
                found[table] = sha256(repr(sorted(kept, key=repr)).encode()).hexdigest()
        return found

    def _run_failure(self, failure: PostgresFailure, round_: CrashRound, expected: Acks) -> FailureOutcome:
        inject_bug(self._bug)
        outcome = failure.run_processes(self._tokens, self._operator, round_.number)
        inject_bug("")
        round_.record(outcome, expected, failure.subject)
        return outcome

    def _damage_rows(self, subject: str, rng: Random, round_number: int) -> list[str]:
        """Damage rows in the database of the wiki."""
        schema = f"w_{self._ids[subject]}"
        for address in self._addresses.values():
            if any(name.endswith(".state") for name in DatabaseRows([address]).read_schema(schema)):
                return damage_rows(address, schema, rng, round_number)
        return []

    def _check_recovery(self, round_: CrashRound, expected: Acks, subject: str, outcome: FailureOutcome) -> None:
        """Check the next start in a separate process, because it may crash."""
        model = POSTGRES_OPERATIONS[round_.operation].model if round_.operation in POSTGRES_OPERATIONS else "fake"
        case = RecoveryCase(self._round / "data", self._scratch, subject, model, expected, self._operator)
        case.served = round_.served
        postgres_case = PostgresRecoveryCase(case, self._addresses, round_.damage, outcome.lost_lease)
        if self._bug:  # what it leaves behind does not disappear
            postgres_case.cleanup_timeout_s = LEASE_S
        result = ChildProcess(self._scratch / "recovery", lambda _: check_postgres_recovery(postgres_case)).wait()
        value = result.get("value")
        if isinstance(value, dict):
            round_.registry, round_.search_outcome = value["registry"], value["search_outcome"]
            round_.recovery_path, round_.recovery_seconds = value["recovery_path"], value["seconds"]
        else:
            round_.add_fault(f"recovery: {result.get('trace') or result.get('at') or result}")
