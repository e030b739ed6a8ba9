"""A search over PostgreSQL needs few statements, each of which is a round trip to the database."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from tests.support.postgres_registry import is_copied
from tests.support.served_application import serve_application
from tests.support.wait import wait_until

MAX_STATEMENTS = 4


@contextmanager
def counting_statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the statements of requests, each with the role that runs it. The scheduler's threads have other names.

    A pool may open one more connection, or check one that was idle: neither is the cost of a search.
    """
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def record(self: psycopg.Connection[Any], query: Any, *values: Any, **options: Any) -> Any:
        of_pool = "SET search_path" in str(query) or query == "SELECT 1"
        if "AnyIO" in threading.current_thread().name and not of_pool:
            statements.append(f"{self.info.user}: {query}")
        return execute(self, query, *values, **options)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", record)
        yield statements


@pytest.fixture
def client(tmp_path: Path, database: str) -> Iterator[TestClient]:
    limits = {"limit.key_per_minute": 6000, "limit.address_per_minute": 6000}
    with serve_application(tmp_path, {"store": database, **limits}) as served, served.make_client("read") as client:
        wait_until(lambda: is_copied(served.application.service.registry))
        yield client


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "semantic"])
def test_a_search_over_http_needs_few_statements(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("wikiholt.index.postgres.placements._PLACEMENT_TTL_S", 3600.0)
    client.get("/w/alpha/api/v1/search", params={"q": "coffee", "mode": mode})
    for query in ("printer jam behind the flap", "drum worn error", 'the "rear flap" of the printer'):
        with counting_statements(monkeypatch) as statements:
            response = client.get("/w/alpha/api/v1/search", params={"q": query, "mode": mode})
        assert response.json()["results"]
        # A phrase also needs the words of pages that may contain it.
        assert len(statements) <= MAX_STATEMENTS + ('"' in query), statements
        # Only the operator's login reaches the home: registry, keys and rate limits cost no round trip.
        assert not [statement for statement in statements if not statement.startswith("w_")]


def test_a_search_sees_a_change_that_another_connection_made(client: TestClient, database: str) -> None:
    """Nothing that a search remembers outlives the version it was read at."""
    ask = {"q": "descale the machine", "mode": "hybrid"}
    before = client.get("/w/alpha/api/v1/search", params=ask).json()
    with psycopg.connect(database, autocommit=True) as connection:
        for (name,) in connection.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_'").fetchall():
            connection.execute(f"UPDATE {name}.g1_pages SET name = 'Renamed'")
            connection.execute(f"UPDATE {name}.state SET version = version + 1 WHERE number = 1")
    after = client.get("/w/alpha/api/v1/search", params=ask).json()
    assert before["results"][0]["name"] != "Renamed"
    assert after["results"][0]["name"] == "Renamed"
