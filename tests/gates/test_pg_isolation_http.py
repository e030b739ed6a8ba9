"""The isolation gate over HTTP with indexes, registry and keys in PostgreSQL: the same farm, the same requests."""

from collections.abc import Iterator

import pytest
import test_isolation_http as embedded
from http_cases import Writer
from http_farm import ServedFarm
from http_gate import Gate
from pg_ground import InPostgres
from pg_server import PgServer
from test_isolation_http import _quiet_clients, base, gate, writer

__all__ = ["_quiet_clients", "base", "gate", "writer"]

BATCHES = 6

test_every_wiki_reads_its_own_on_every_route = embedded.test_every_wiki_reads_its_own_on_every_route


@pytest.fixture(scope="module")
def farm(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFarm]:
    place, address = tmp_path_factory.mktemp("pgserved"), pg.new_database()
    made = ServedFarm(place, InPostgres(place / "data", address, postgres__connections=8))
    made.farm.keeper.start()
    yield made
    assert made.farm.keeper.stop(60)
    made.farm.service.close()
    pg.drop_database(address)


def test_no_request_of_anybody_is_told_of_a_wiki_that_is_not_theirs(
    farm: ServedFarm, gate: Gate, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    embedded.storm(farm, gate, writer, caplog, BATCHES)
    assert gate.statuses[200] >= 100
    assert gate.leaks == []


test_the_command_line_tells_of_the_one_wiki_it_is_asked_about = (
    embedded.test_the_command_line_tells_of_the_one_wiki_it_is_asked_about
)
test_figures_name_no_wiki = embedded.test_figures_name_no_wiki
test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike = (
    embedded.test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike
)
