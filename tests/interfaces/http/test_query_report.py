"""The query report over HTTP: admins see the report of their own wiki only."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Send
from starlette.types import Scope as CallScope

from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.request_context import HOST_GRANT_KEY, HostGrant
from wikiholt.interfaces.mcp.tools import get_tools
from wikiholt.wikis.access import Grant
from wikiholt.wikis.session import WikiSession


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """Two wikis with a query log; beta turns its log off."""
    with serve_application(tmp_path_factory.mktemp("logged"), {"queries.log": True}) as served:
        served.application.service.configure("beta", {"log_queries": "false"})
        yield served


def wait_for_records(served: ServedApplication, count: int) -> None:
    writer = served.application.service.components.query_log_writer
    assert writer is not None
    wait_until(lambda: writer.written >= count)


def test_an_admin_sees_queries_and_unfound_pages(logged: ServedApplication) -> None:
    reader = logged.make_client("read")
    for query, n in (("drum", 1), ("Drum ", 1), ("0x6100", 1), ("nosuchword", 1)):
        assert reader.get("/api/v1/search", params={"q": query, "n": n, "mode": "keyword"}).status_code == 200
    assert reader.get("/api/v1/similar", params={"path": "Home"}).status_code == 200
    assert reader.get("/find", params={"q": "printer"}).status_code in (200, 401)
    logged.make_client("other").get("/api/v1/search", params={"q": "betacanary"})
    wait_for_records(logged, 4)
    answer = logged.make_client("admin").get("/api/v1/report", params={"days": 7, "limit": 5})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    document = answer.json()
    assert document["wiki"] == "alpha"
    assert document["logging"] is True
    assert document["searches"] + document["unfinished"] >= 4
    assert "nosuchword" in [record["query"] for record in document["without_result"]]
    assert document["pages"]["indexed"] == 3
    assert document["pages"]["found_most"][0]["path"] == "Equipment/Printer"
    assert {"Coffee", "Home"} >= set(document["pages"]["never_found"])
    assert "betacanary" not in answer.text
    for token in logged.tokens.values():
        assert token not in answer.text


def test_without_a_query_log_the_answer_says_how_to_turn_it_on(logged: ServedApplication) -> None:
    answer = logged.make_client("other").get("/api/v1/report")
    assert (answer.status_code, answer.json()["code"]) == (404, "no-query-log")
    assert "log_queries=true" in answer.json()["hint"]


def test_every_interface_is_logged_by_its_name(logged: ServedApplication) -> None:
    service = logged.application.service
    handle = service.get_handle("alpha")
    assert service.components.query_log_writer is not None
    admitted = HostGrant(handle.wiki, frozenset({Scope.READ}), Author("Gil", "gil@example.org"))
    inside = create_host_app(logged.application)

    async def host(scope: CallScope, receive: Receive, send: Send) -> None:
        await inside({**scope, HOST_GRANT_KEY: admitted}, receive, send)

    assert TestClient(host).get("/api/v1/search", params={"q": "asked in otterwiki"}).status_code == 200
    opened = WikiSession(Grant(handle.wiki, Scope.READ, None), handle, TIMEOUT_S, logged.application.scheduler)
    tool = get_tools()["search"]
    tool.run(opened, tool.parse({"query": "asked by an agent"}, 1000))
    logged.make_client("read").get("/api/v1/semantic-search", params={"q": "asked over http"})
    log = service.components.query_log_writer.open_log(handle.wiki.id)

    def read_ways() -> dict[str, str]:
        content = log.read(0)
        records = content.records if content else ()
        return {record.query: record.interface for record in records if record.query.startswith("asked ")}

    # Not the number of records: those of other tests may still be written.
    ways = wait_until(lambda: found if len(found := read_ways()) == 3 else None)
    assert ways == {"asked in otterwiki": "otterwiki", "asked by an agent": "mcp", "asked over http": "http"}
    assert "Gil" not in repr(log.read(0))


def test_metrics_count_log_records_and_contain_no_names(logged: ServedApplication) -> None:
    logged.make_client("read").get("/api/v1/search", params={"q": "unheardofword"})
    wait_for_records(logged, 1)
    metrics = logged.make_client("operator").get("/metrics").text
    assert "wikiholt_queries_written_total" in metrics
    assert "wikiholt_queries_lost_total 0.0" in metrics
    assert "unheardofword" not in metrics
    assert "alpha" not in metrics
    registry = create_host_app(logged.application).state.metrics.registry
    assert "wikiholt_queries_written" in {family.name for family in registry.collect()}
