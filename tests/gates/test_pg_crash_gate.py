"""The crash gate on PostgreSQL as a test: some rounds of it, and whether it can fail at all.

The long form is `make gate`; `python tests/gates --store postgres --seed S --round N` plays one round again.
"""

from pathlib import Path

import psycopg
import pytest
from pg_ground import InPostgres, Rows
from pg_left import left_behind
from pg_planted import PG_BUGS
from pg_server import PgServer
from test_crash_gate import play

ROUNDS, SEED = 10, 8
_CAUGHT = {
    "role stays": ("remove", "rows", "1", "left behind: ['role w_"),
}
"""Deed, blow, rounds and what is said; of the bugs there are, those that every round finds, whatever the time."""


@pytest.mark.timeout(1800)
def test_whatever_happens_to_nodes_or_database_the_next_start_serves_and_one_sync_makes_it_whole() -> None:
    done = play("--store", "postgres", "--rounds", str(ROUNDS), "--seed", str(SEED), "--quiet")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert f"{ROUNDS} rounds, 0 faults" in done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", _CAUGHT)
def test_the_gate_catches_a_bug_that_was_planted_in_the_store(bug: str) -> None:
    deed, blow, rounds, fault = _CAUGHT[bug]
    options = ("--rounds", rounds, "--seed", "3", "--bug", bug, "--deed", deed, "--blow", blow)
    done = play("--store", "postgres", *options)
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-3000:]
    assert fault in done.stdout


def test_every_planted_bug_can_be_planted() -> None:
    assert set(_CAUGHT) <= set(PG_BUGS)


def test_the_gate_sees_what_is_left_behind(pg: PgServer, tmp_path: Path, database: str) -> None:
    ground = InPostgres(tmp_path / "data", database)
    service = ground.open()
    assert service.wikis() == []
    service.close()
    before = set(left_behind({"home": database}, {}, aside=False))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA w_stray")
        db.execute("CREATE ROLE w_stray_role")
        db.execute("SELECT lo_from_bytea(0, 'left')")
        found = set(left_behind({"home": database}, {}, aside=False)) - before
        db.execute("DROP ROLE w_stray_role")
    assert found == {"home: schema w_stray of no wiki", "role w_stray_role", "home: large objects"}
    assert ("0", "w_stray") in Rows([database]).schemas()
