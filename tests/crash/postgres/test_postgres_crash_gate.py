"""Rounds of the crash test with PostgreSQL, and checks that it finds injected bugs.

The long form is `make gate`; `python -m tests.crash --store postgres --seed S --round N` repeats one round.
"""

from pathlib import Path

import psycopg
import pytest

from tests.crash.postgres.leftovers import find_leftovers
from tests.crash.postgres.postgres_bugs import POSTGRES_BUGS
from tests.crash.test_crash_gate import run_gate
from tests.isolation.postgres.postgres_backend import DatabaseRows, PostgresBackend
from tests.support.postgres_server import PostgresServer
from tests.support.tiers import choose

ROUNDS, SEED = choose(15, 8), 8
"""8 rounds have each failure, 15 each operation."""
_CAUGHT_BY = {
    "role stays": ("remove", "rows", "1", "left behind: ['role w_"),
}
"""Operation, failure, rounds and message of the bugs that every round finds, independent of timing."""


@pytest.mark.timeout(1800)
def test_after_any_failure_of_nodes_or_database_the_next_start_serves_and_one_sync_repairs_the_index() -> None:
    done = run_gate("--store", "postgres", "--rounds", str(ROUNDS), "--seed", str(SEED), "--each", "--quiet")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert f"{ROUNDS} rounds, 0 faults" in done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", _CAUGHT_BY)
def test_the_crash_test_finds_a_bug_injected_into_the_store(bug: str) -> None:
    operation, failure, rounds, fault = _CAUGHT_BY[bug]
    options = ("--rounds", rounds, "--seed", "3", "--bug", bug, "--operation", operation, "--failure", failure)
    done = run_gate("--store", "postgres", *options)
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-3000:]
    assert fault in done.stdout


def test_every_expected_bug_can_be_injected() -> None:
    assert set(_CAUGHT_BY) <= set(POSTGRES_BUGS)


def test_the_crash_test_finds_leftovers(pg: PostgresServer, tmp_path: Path, database: str) -> None:
    backend = PostgresBackend(tmp_path / "data", database)
    service = backend.open_service()
    assert service.list_wikis() == []
    service.close()
    before = set(find_leftovers({"home": database}, {}))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA w_stray")
        db.execute("CREATE ROLE w_stray_role")
        db.execute("SELECT lo_from_bytea(0, 'left')")
        found = set(find_leftovers({"home": database}, {})) - before
        db.execute("DROP ROLE w_stray_role")
    assert found == {"home: schema w_stray of no wiki", "role w_stray_role", "home: large objects"}
    assert ("0", "w_stray") in DatabaseRows([database]).list_schemas()
