"""The command line over a real PostgreSQL server."""

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from tests.support.postgres_server import PostgresServer
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.index.postgres import move
from wikiholt.interfaces.cli.main import main

pytestmark = pytest.mark.model


@pytest.fixture
def run(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandRunner:
    monkeypatch.setenv("WIKIHOLT_STORE", database)
    return CommandRunner(tmp_path / "data", capsys)


@pytest.fixture(scope="module")
def untouched(pg: PostgresServer) -> Iterator[str]:
    """A database for tests that change nothing."""
    address = pg.create_database()
    yield address
    pg.drop_database(address)


def parse_document(run: CommandRunner, *arguments: str) -> Any:
    return run(*arguments, "--json").parse()


def test_one_setting_makes_every_command_work_over_postgresql(
    pg: PostgresServer, database: str, run: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"Backups.md": "# Backups\n\nCopies of every disk are taken at midnight.", "Tea.md": "# Tea\n"})
    assert run("add", "night", str(repository.path))[0] == 0
    assert parse_document(run, "sync", "night")["added"] == 2
    assert parse_document(run, "search", "-w", "night", "restoring lost data")["results"][0]["path"] == "Backups"
    assert parse_document(run, "status", "night")["stale"] is False
    assert parse_document(run, "reindex", "night")["rebuilt"] is True
    assert parse_document(run, "backup", "night")["pages"] == 2
    assert parse_document(run, "restore", "night")["pages"] == 2

    other = pg.create_database()
    secret = conninfo.conninfo_to_dict(other)["password"]
    monkeypatch.setattr("sys.stdin", io.StringIO(other + "\n"))
    _, out, err = run("database", "add", "east", "-")
    assert "Added east" in out
    assert parse_document(run, "move", "night", "--to", "east", "--dry-run")["wikis"][0]["outcome"] == "moved"
    assert parse_document(run, "move", "night", "--to", "east")["wikis"] == [{"wiki": "night", "outcome": "moved"}]
    assert parse_document(run, "move", "night", "--to", "east")["wikis"] == [{"wiki": "night", "outcome": "there"}]
    document = {database["name"]: database for database in parse_document(run, "database", "list")["databases"]}
    assert (document["east"]["wikis"], document["home"]["wikis"]) == (1, 0)
    refused = run("database", "remove", "east")
    assert (refused[0], "there are wikis on east" in refused[2]) == (4, True)
    assert parse_document(run, "search", "-w", "night", "restoring lost data")["results"][0]["path"] == "Backups"
    assert parse_document(run, "move", "--all", "--from", "east", "--to", "home")["wikis"][0]["outcome"] == "moved"
    code, doctor_output, _ = run("doctor")
    assert code == 0
    outputs = [out, err, doctor_output, *run("database", "list"), *run("settings")]
    assert str(secret) not in "".join(map(str, outputs))
    assert run("database", "remove", "east")[0] == 0

    assert run("remove", "night", "--yes")[0] == 0
    assert not list(tmp_path.glob("data/scratch/*"))
    with psycopg.connect(database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'w!_%' ESCAPE '!'"
        ).fetchone() == (0,)
    pg.drop_database(other)


INVALID_COMMANDS = [
    (("database", "add", "No Good", "postgresql://a:hush@/x"), 2, "invalid database name"),
    (("database", "add", "home", "postgresql://a:hush@/x"), 2, "invalid database name"),
    (("database", "add", "west", "mysql://a:hush@/x"), 2, "not the address"),
    (("database", "add", "west", "postgresql://a:hush@127.0.0.1:1/x"), 7, "cannot be reached"),
    (("database", "add", "west", "postgresql://a:hush@/x", "--weight", "0"), 2, "weight"),
    (("database", "remove", "nowhere"), 2, "no database is called nowhere"),
    (("database", "remove", "home"), 2, "the home database cannot be removed"),
    (("database", "close", "nowhere"), 2, "no database is called"),
    (("move", "--to", "home"), 2, "Name the wikis to move"),
    (("move", "night", "--all", "--to", "home"), 2, "Name the wikis to move"),
    (("move", "night", "--to", "nowhere"), 2, "there is no database nowhere"),
    (("move", "night", "--to", "home"), 3, "There is no wiki 'night'"),
    (("move", "--all", "--to", "mysql://a:hush@/x"), 2, "not the address of a PostgreSQL database"),
    (("move", "--all", "--to", "postgresql://a:hush@127.0.0.1:1/x"), 7, "cannot be reached"),
    (("move", "--all", "--to", "home"), 2, "not another store"),
]


def test_invalid_arguments_are_rejected_and_change_nothing(
    untouched: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WIKIHOLT_STORE", untouched)
    run = CommandRunner(tmp_path / "data", capsys)
    before = parse_document(run, "database", "list")
    for arguments, code, message in INVALID_COMMANDS:
        exit_code, out, err = run(*arguments)
        assert (exit_code, out) == (code, ""), arguments
        assert message in err
        assert "hint: " in err
        assert "hush" not in err
    assert parse_document(run, "database", "list") == before


def test_a_move_says_where_the_pages_of_created_wikis_stay(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = CommandRunner(tmp_path / "data", capsys)
    assert run("create", "memo")[0] == 0
    moved = run("move", "--all", "--to", database)
    assert moved[0] == 0
    assert f"set repositories.directory: the pages of created wikis are in {tmp_path}" in moved[1]


def test_a_database_closed_to_new_wikis_is_skipped(pg: PostgresServer, run: CommandRunner, tmp_path: Path) -> None:
    other = pg.create_database()
    repository = Repository(tmp_path / "wiki")
    repository.commit({"a.md": "# A\n"})
    assert parse_document(run, "database", "add", "east", other)["name"] == "east"
    assert parse_document(run, "database", "close", "home") == {"name": "home", "open": False}
    assert run("add", "one", str(repository.path))[0] == 0
    assert parse_document(run, "sync", "one")["added"] == 1
    document = {
        database["name"]: database["wikis"] for database in parse_document(run, "database", "list")["databases"]
    }
    assert document == {"home": 0, "east": 1}
    assert parse_document(run, "database", "open", "home") == {"name": "home", "open": True}
    pg.drop_database(other)
    doctor = run("doctor")
    assert (doctor[0], "✗ database east: " in doctor[1]) == (10, True)
    assert run("status", "one")[0] == 0, "a wiki with an error is listed with its error"


def test_a_database_has_one_name_and_a_new_address_must_reach_its_wikis(
    pg: PostgresServer, run: CommandRunner, database: str, tmp_path: Path
) -> None:
    other, third = pg.create_database(), pg.create_database()
    assert parse_document(run, "database", "add", "east", other)["name"] == "east"
    for address in (f"{database}&connect_timeout=9", other.replace("postgresql:", "postgres:")):
        refused = run("database", "add", "twin", address)
        assert (refused[0], "that is the database" in refused[2]) == (2, True)
    assert parse_document(run, "database", "add", "east", other, "--weight", "2")["weight"] == 2.0
    parse_document(run, "database", "close", "home")
    repository = Repository(tmp_path / "wiki")
    repository.commit({"a.md": "# A\n"})
    run("add", "one", str(repository.path))
    assert parse_document(run, "sync", "one")["added"] == 1
    refused = run("database", "add", "east", third)
    assert (refused[0], "not in that database" in refused[2]) == (2, True)
    assert parse_document(run, "status", "one")["pages"] == 1
    for address in (other, third):
        pg.drop_database(address)


def test_orphaned_indexes_and_interrupted_moves_are_reported_and_removed(
    pg: PostgresServer, run: CommandRunner, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"a.md": "# A\n"})
    assert run("add", "one", str(repository.path))[0] == 0
    parse_document(run, "sync")
    lost = "ofnowikiatall"
    with closing(build_service(load_settings(tmp_path / "data", overrides={"store": database}))) as service:
        service.components.store.set_note(lost, "health", "", create=True)
    other = pg.create_database()
    parse_document(run, "database", "add", "east", other)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(move, "_verify_copy", killed)
        assert run("move", "one", "--to", "east")[0] == 130
    doctor = run("doctor")
    assert (doctor[0], f"belong to no wiki: {lost}" in doctor[1], "unfinished moves: 1" in doctor[1]) == (
        10,
        True,
        True,
    )
    swept = parse_document(run, "database", "sweep")
    assert (f"w_{lost}" in "".join(swept["removed"]), len(swept["moves_finished"])) == (True, 1)
    assert parse_document(run, "database", "sweep") == {"removed": [], "moves_finished": []}
    assert parse_document(run, "status", "one")["pages"] == 1
    assert parse_document(run, "move", "one", "--to", "east")["wikis"][0]["outcome"] == "moved"
    assert run("doctor")[0] == 0
    pg.drop_database(other)


def test_without_a_database_the_commands_say_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WIKIHOLT_STORE", raising=False)
    for command in (["database", "list"], ["move", "night", "--to", "east"]):
        assert main(["--data", str(tmp_path / "data"), *command]) == 2
        assert "there are no databases" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_missing_driver_error_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIKIHOLT_STORE", "postgresql://a:hush@/x")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(["--data", str(tmp_path / "data"), "list"]) == 9
    err = capsys.readouterr().err
    assert "the extra postgres" in err
    assert "hush" not in err


def test_the_past_is_searched_in_files_beside_the_database(run: CommandRunner, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"Tea.md": "# Tea\n\nGreen tea steeps for two minutes.\n", "Home.md": "# Home\n\nWelcome.\n"})
    repository.run_git("tag", "v1")
    repository.commit({"Tea.md": None}, "No tea")
    assert run("add", "night", str(repository.path))[0] == 0
    found = parse_document(run, "search", "-w", "night", "how long does tea steep", "--at", "v1")["results"][0]
    assert (found["path"], found["now"]["removed"]["message"]) == ("Tea", "No tea")
    assert list((tmp_path / "data").rglob("past/*/*/g000001.sqlite"))
    (view,) = parse_document(run, "past", "night")["views"]
    assert view["complete"]
    assert run("verify-isolation", "night")[0] == 0
    assert run("remove", "night", "--yes")[0] == 0
    assert not list((tmp_path / "data").rglob("past"))
