"""The isolation gate over HTTP with indexes, registry and keys in PostgreSQL: the same farm, the same requests."""

from collections.abc import Iterator

import pytest

from tests.isolation import test_isolation_http as embedded
from tests.isolation.http_cases import RequestBuilder
from tests.isolation.http_farm import ServedFarm
from tests.isolation.http_gate import LeakDetector
from tests.isolation.postgres.postgres_backend import PostgresBackend
from tests.isolation.test_isolation_http import _quiet_clients, base, gate, writer
from tests.support.postgres_server import PostgresServer

__all__ = ["_quiet_clients", "base", "gate", "writer"]

BATCH_COUNT = 6

test_every_wiki_reads_its_own_on_every_route = embedded.test_every_wiki_reads_its_own_on_every_route


@pytest.fixture(scope="module")
def farm(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFarm]:
    place, address = tmp_path_factory.mktemp("pgserved"), pg.create_database()
    made = ServedFarm(place, PostgresBackend(place / "data", address, postgres__connections=8))
    made.application.scheduler.start()
    yield made
    assert made.application.scheduler.stop(60)
    made.application.service.close()
    pg.drop_database(address)


def test_no_request_of_anybody_is_told_of_a_wiki_that_is_not_theirs(
    farm: ServedFarm, gate: LeakDetector, writer: RequestBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    embedded.run_load(farm, gate, writer, caplog, BATCH_COUNT)
    assert gate.statuses[200] >= 100
    assert gate.leaks == []


test_the_command_line_tells_of_the_one_wiki_it_is_asked_about = (
    embedded.test_the_command_line_tells_of_the_one_wiki_it_is_asked_about
)
test_figures_name_no_wiki = embedded.test_figures_name_no_wiki
test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike = (
    embedded.test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike
)
