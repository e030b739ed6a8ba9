"""The report of queries over HTTP: for admins of the wiki, of their own wiki alone."""

import time
from collections.abc import Iterator

import pytest
from served_farm import Served, served
from starlette.testclient import TestClient
from starlette.types import Receive, Send
from starlette.types import Scope as CallScope

from wikiholt.access import Grant
from wikiholt.model import Author, Scope
from wikiholt.surfaces.http.admission import ADMISSION, Admission
from wikiholt.surfaces.http.app import create_guest_app
from wikiholt.surfaces.http.counting import Asking
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp import finding
from wikiholt.surfaces.mcp.arguments import Search as AgentSearch


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A farm whose searches are written down; of beta's, by its own setting, not."""
    with served(tmp_path_factory.mktemp("logged"), {"queries.log": True}) as found:
        found.farm.service.configure("beta", {"log_queries": "false"})
        yield found


def written(farm: Served, count: int) -> None:
    end = time.monotonic() + 60
    scribe = farm.farm.service.workshop.scribe
    assert scribe is not None
    while scribe.written < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_admin_sees_what_was_searched_for_and_which_pages_nobody_finds(logged: Served) -> None:
    reader = logged.client("read")
    for query, n in (("drum", 1), ("Drum ", 1), ("0x6100", 1), ("nosuchword", 1)):
        assert reader.get("/api/v1/search", params={"q": query, "n": n, "mode": "keyword"}).status_code == 200
    assert reader.get("/api/v1/similar", params={"path": "Home"}).status_code == 200
    assert reader.get("/find", params={"q": "printer"}).status_code in (200, 401)
    logged.client("other").get("/api/v1/search", params={"q": "betacanary"})
    written(logged, 4)
    answer = logged.client("admin").get("/api/v1/report", params={"days": 7, "limit": 5})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert found["wiki"] == "alpha"
    assert found["logging"] is True
    assert found["searches"] + found["beginnings"] >= 4
    assert "nosuchword" in [each["query"] for each in found["without_result"]]
    assert found["pages"]["indexed"] == 3
    assert found["pages"]["found_most"][0]["path"] == "Equipment/Printer"
    assert {"Coffee", "Home"} >= set(found["pages"]["never_found"])
    assert "betacanary" not in answer.text
    for token in logged.tokens.values():
        assert token not in answer.text


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("read", 403), ("write", 403), ("other", 403)])
def test_who_is_no_admin_of_the_wiki_is_refused(logged: Served, key: str | None, status: int) -> None:
    answer = logged.client(key).get("/w/alpha/api/v1/report")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_where_nothing_is_written_down_the_answer_says_how_to_turn_it_on(logged: Served) -> None:
    answer = logged.client("other").get("/api/v1/report")
    assert (answer.status_code, answer.json()["code"]) == (404, "no-query-log")
    assert "log_queries=true" in answer.json()["hint"]


@pytest.mark.parametrize("params", [{"days": "-1"}, {"days": "1e1"}, {"limit": "1001"}, {"limit": ""}, {"since": "7d"}])
def test_what_makes_no_sense_is_refused(logged: Served, params: dict[str, str]) -> None:
    assert logged.client("admin").get("/api/v1/report", params=params).status_code == 422


def test_each_way_of_searching_is_written_down_by_its_name(logged: Served) -> None:
    service = logged.farm.service
    handle = service.wiki("alpha")
    assert service.workshop.scribe is not None
    before = service.workshop.scribe.written
    admitted = Admission(handle.wiki, frozenset({Scope.READ}), Author("Gil", "gil@example.org"))
    inside = create_guest_app(logged.farm)

    async def host(scope: CallScope, receive: Receive, send: Send) -> None:
        await inside({**scope, ADMISSION: admitted}, receive, send)

    assert TestClient(host).get("/api/v1/search", params={"q": "asked in otterwiki"}).status_code == 200
    opened = OpenWiki(Grant(handle.wiki, Scope.READ, None), handle, 1.0, logged.farm.keeper)
    finding.search(opened, AgentSearch(query="asked by an agent"), 1000)
    logged.client("read").get("/api/v1/semantic-search", params={"q": "asked over http"})
    written(logged, before + 3)
    found = service.workshop.scribe.log_of(handle.wiki.id).read(0)
    assert found is not None
    ways = {each.query: each.surface for each in found.searches if each.query.startswith("asked ")}
    assert ways == {"asked in otterwiki": "otterwiki", "asked by an agent": "mcp", "asked over http": "http"}
    assert "Gil" not in repr(found)


def test_metrics_count_what_was_written_and_name_nothing(logged: Served) -> None:
    logged.client("read").get("/api/v1/search", params={"q": "unheardofword"})
    written(logged, 1)
    figures = logged.client("operator").get("/metrics").text
    assert "wikiholt_queries_written_total" in figures
    assert "wikiholt_queries_lost_total 0.0" in figures
    assert "unheardofword" not in figures
    assert "alpha" not in figures
    assert any(
        isinstance(each, Asking) for each in create_guest_app(logged.farm).state.metrics.registry._collector_to_names
    )
