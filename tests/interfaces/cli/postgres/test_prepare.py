"""`wikiholt database prepare`: a real server runs the printed SQL, and the login can then set up the database."""

import secrets
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.postgres_server import PostgresServer


def run_psql_input(pg: PostgresServer, lines: list[str], role: str, password: str) -> None:
    """Do what psql does with these lines, with this answer to its question for the password."""
    connection = psycopg.connect(pg.get_dsn(), autocommit=True)
    for line in lines:
        if line.startswith("\\connect "):
            connection.close()
            name = line.removeprefix("\\connect ")[1:-1].replace('""', '"')
            connection = psycopg.connect(pg.get_dsn(quote(name, safe="")), autocommit=True)
        elif line.startswith("\\password "):
            statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(statement.format(sql.Identifier(role), sql.Literal(password)))
        elif not line.startswith("--"):
            connection.execute(line)
    connection.close()


def test_the_printed_sql_creates_what_wikiholt_needs(
    pg: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    role, database, password = f"op-{secrets.token_hex(4)}", f'Odd "{secrets.token_hex(4)}"', secrets.token_hex(8)
    address = pg.get_dsn(quote(database, safe=""), role, password)
    monkeypatch.setenv("WIKIHOLT_STORE", address)
    run = CommandRunner(tmp_path / "data", capsys)
    printed = run("database", "prepare", "--sql", "--json").parse()["sql"]
    assert not any(password in line for line in printed)
    assert run("database", "prepare", "--sql").out.splitlines() == printed
    try:
        run_psql_input(pg, printed, role, password)
        (home,) = run("database", "prepare", "--json").parse()["databases"]
        assert (home["name"], home["wikis"]) == ("home", 0)
    finally:
        pg.drop_database(address)


def test_without_a_database_setting_there_is_nothing_to_prepare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = CommandRunner(tmp_path / "data", capsys)("database", "prepare", "--sql")
    assert code
    assert "store" in err
