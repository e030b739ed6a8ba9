"""`wikiholt serve --workers 2`: the workers behave like one process."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

import httpx
import pytest

from tests.support.git_repository import Repository
from tests.support.wait import wait_until
from tests.support.worker_service import WORKERS, WorkerService, make_worker_service
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.wiki import Scope

PAGES = {
    "garden": {"Home.md": "# Home\n\nThe cat sleeps on the sofa.\n"},
    "office": {"Home.md": "# Home\n\nThe bank is closed.\n"},
}
_CALL = {"jsonrpc": "2.0", "id": 1}
_MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerService]:
    # A key has 20 requests, and hardly any more while the tests run.
    with make_worker_service(tmp_path_factory.mktemp("workers"), PAGES, **{"limit.key_per_minute": 1}) as created:
        created.start()
        yield created
        assert created.stop() == 0


def make_key(service: WorkerService, slug: str) -> str:
    """Create a key, which has not been used, and return its name."""
    with closing(open_service(service.data)) as wikis:
        name = f"{slug}-{len(service.tokens)}"
        _, service.tokens[name] = wikis.registry.keys.create(wikis.registry.get(slug).id, Scope.WRITE, name)
    return name


@pytest.fixture(autouse=True)
def unused_operator_key(service: WorkerService) -> None:
    """Give every test an operator key of its own: it is limited too, and counters are read until they are right."""
    with closing(open_service(service.data)) as wikis:
        _, service.tokens["operator"] = wikis.registry.keys.create(None, Scope.ADMIN, "operator")


def call_mcp(service: WorkerService, key: str, method: str, **params: object) -> httpx.Response:
    headers = {**_MCP_HEADERS, "Authorization": f"Bearer {service.tokens[key]}"}
    return httpx.post(
        f"{service.url}/w/garden/mcp", json={**_CALL, "method": method, "params": params}, headers=headers, timeout=120
    )


def test_a_write_through_one_worker_is_seen_by_the_next_search_through_the_other(service: WorkerService) -> None:
    first, second = service.list_workers()
    key = make_key(service, "garden")
    with service.only(first):
        response = service.send("PUT", "/w/garden/api/v1/pages/Couch", key, {"content": "A couch named quoll.\n"})
        assert response.status_code == 201, response.text
    with service.only(second):
        assert service.find("garden", "quoll", at_least=response.json()["revision"]) == ["Couch"]
    with service.only(second):
        response = service.send("PUT", "/w/garden/api/v1/pages/Den", key, {"content": "A den of a wombat.\n"})
        assert response.status_code == 201, response.text
    with service.only(first):
        assert service.find("garden", "wombat", fresh="true") == ["Den"]


def test_all_workers_together_answer_as_many_requests_of_a_key_as_the_limit_allows(service: WorkerService) -> None:
    key = make_key(service, "garden")
    statuses, began = [], time.monotonic()
    for worker in service.list_workers():
        with service.only(worker):
            statuses += [service.send("GET", "/w/garden/api/v1/pages", key).status_code for _ in range(12)]
    minutes = int((time.monotonic() - began) / 60)
    assert 20 <= statuses.count(200) <= 21 + minutes
    assert 429 in statuses


def test_agents_use_any_worker(service: WorkerService) -> None:
    first, second = service.list_workers()
    key = make_key(service, "garden")
    info = {"name": "test", "version": "1"}
    with service.only(first):
        opened = call_mcp(service, key, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        assert opened.status_code == 200, opened.text
        assert "mcp-session-id" not in opened.headers
    with service.only(second):
        page = {"path": "Agent", "content": "Written for a numbat."}
        written = call_mcp(service, key, "tools/call", name="write_page", arguments=page)
        assert not written.json()["result"]["isError"], written.text
    with service.only(first):
        found = call_mcp(service, key, "tools/call", name="search", arguments={"query": "numbat"})
        assert "Agent" in found.text


def test_metrics_are_the_sum_of_all_workers(service: WorkerService) -> None:
    for number, worker in enumerate(service.list_workers()):
        with service.only(worker):
            for _ in range(3 + number):
                assert service.send("GET", "/w/office/api/v1/orphans").status_code == 200
    # No other test uses this route. A request is counted after its response was sent.
    name = 'wikiholt_request_seconds_count{route="/api/v1/orphans"}'
    wait_until(lambda: service.read_counter(name) == 3 + 4)
    for worker in service.list_workers():
        with service.only(worker):
            wait_until(lambda: service.read_counter(name) == 3 + 4)
    wait_until(lambda: service.read_counter("wikiholt_scheduler_wikis") == 2)  # another test may have removed one
    assert service.send("GET", "/readyz").json()["indexes"] == {"repairing": 0, "broken": 0}


def test_the_state_of_a_wiki_is_known_to_workers(service: WorkerService) -> None:
    repository = Repository(service.data.parent / "empty").path
    response = service.send("POST", "/api/v1/wikis", "operator", {"slug": "empty", "source": str(repository)})
    assert response.status_code == 201, response.text
    wait_until(lambda: service.send("GET", "/w/empty/api/v1/search?q=x").json()["code"] == "no-commits")
    assert service.send("DELETE", "/api/v1/wikis/empty", "operator").status_code == 200


def test_sighup_replaces_all_processes_and_no_request_fails(service: WorkerService) -> None:
    before = set(service.list_children())
    requests_before = service.read_counter("wikiholt_requests_total")
    stop = Event()

    def search_until_stopped() -> int:
        number = 0
        while not stop.wait(0.02):  # the processes that start need the CPU more
            assert service.find("garden", "sofa") == ["Home"]
            number += 1
        return number

    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(search_until_stopped) for _ in range(2)]
        try:
            assert service.process is not None
            service.process.send_signal(signal.SIGHUP)
            # Three processes start one after the other.
            wait_until(lambda: not before & set(service.list_children()), seconds=240)
            service.wait_for_workers()
        finally:
            stop.set()
        sent = sum(client.result() for client in clients)
    # A request is counted after its response was sent.
    wait_until(lambda: service.read_counter("wikiholt_requests_total") >= requests_before + sent)
    assert len(service.list_workers()) == WORKERS


def test_a_port_in_use_ends_the_service_with_an_error(service: WorkerService) -> None:
    other = WorkerService(service.data, service.settings)
    with pytest.raises(AssertionError, match="port"):
        other.start(service.url.rsplit(":", 1)[1])
    assert other.process is not None
    assert other.process.wait(120) == 4
