"""Isolation over HTTP with indexes, registry and keys in PostgreSQL: the same wikis, the same requests."""

from collections.abc import Iterator

import pytest

from tests.isolation import test_isolation_http as sqlite_tests
from tests.isolation.http_cases import RequestBuilder
from tests.isolation.http_environment import ServedEnvironment
from tests.isolation.http_gate import LeakDetector
from tests.isolation.http_load import run_load
from tests.isolation.postgres.postgres_backend import PostgresBackend
from tests.isolation.test_isolation_http import _quiet_clients, base, builder, detector
from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S

__all__ = ["_quiet_clients", "base", "builder", "detector"]

BATCH_COUNT = 6

test_every_route_returns_the_content_of_the_own_wiki = sqlite_tests.test_every_route_returns_the_content_of_the_own_wiki


@pytest.fixture(scope="module")
def env(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironment]:
    directory, address = tmp_path_factory.mktemp("pgserved"), pg.create_database()
    made = ServedEnvironment(directory, PostgresBackend(directory / "data", address, postgres__connections=8))
    made.application.scheduler.start()
    yield made
    assert made.application.scheduler.stop(TIMEOUT_S)
    made.application.service.close()
    pg.drop_database(address)


def test_no_response_contains_content_of_a_wiki_the_caller_may_not_read(
    env: ServedEnvironment, detector: LeakDetector, builder: RequestBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    run_load(env, detector, builder, caplog, BATCH_COUNT)
    assert detector.statuses[200] >= 100
    assert detector.leaks == []


test_the_command_line_shows_only_the_wiki_it_is_called_for = (
    sqlite_tests.test_the_command_line_shows_only_the_wiki_it_is_called_for
)
test_metrics_name_no_wiki = sqlite_tests.test_metrics_name_no_wiki
test_a_missing_wiki_and_a_forbidden_wiki_get_the_same_response = (
    sqlite_tests.test_a_missing_wiki_and_a_forbidden_wiki_get_the_same_response
)
