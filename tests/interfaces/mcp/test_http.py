"""MCP over HTTP: authentication, host names, rate limits, both versions, concurrent calls, disconnects."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from fastapi.testclient import TestClient
from mcp.client.client import Client
from mcp_types import CallToolResult

from tests.interfaces.mcp.mcp_client import Agent, call_tool, get_document, make_message, run_over_http
from tests.support.git_repository import Repository
from tests.support.served_application import UNLIMITED, ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedApplication, str]]:
    """A local server before its first key."""
    with serve_application(tmp_path_factory.mktemp("keyless"), keys=False) as served, run_server(served.app) as base:
        yield served, base


HTTP = httpx.Client(verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))


def post_message(url: str, method: str = "tools/list", **headers: str) -> httpx.Response:
    body, usual = make_message(method)
    return HTTP.post(url, content=body, headers={**usual, **headers})


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_both_protocol_versions_work(served: ServedApplication, base: str, mode: str, version: str) -> None:
    async def work(client: Client) -> str:
        assert client.protocol_version == version
        assert client.server_info is not None
        assert client.server_info.name == "wikiholt"
        assert client.server_info.title == "Wikiholt: alpha"
        assert "Start with search" in (client.instructions or "")
        assert (await client.list_tools()).tools
        result = await client.call_tool("search", {"query": "coffee"})
        assert isinstance(result, CallToolResult)
        return str(get_document(result)["results"][0]["id"])

    for url in (f"{base}/mcp", f"{base}/w/alpha/mcp"):
        assert run_over_http(url, served.tokens["read"], work, mode=mode) == "Coffee"


def test_a_request_is_authenticated_before_its_body_is_read(served: ServedApplication, base: str) -> None:
    for headers, status in [
        ({}, 401),
        ({"Authorization": "Bearer wh_no_such"}, 401),
        ({"Authorization": "Basic x"}, 401),
    ]:
        for url in (f"{base}/mcp", f"{base}/w/alpha/mcp", f"{base}/w/no-such/mcp"):
            for body in (b"", b"{", b"[" * 50_000, b"x" * 300_000):
                answer = HTTP.post(url, content=body, headers=headers)
                assert answer.status_code == status
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.json()["code"] == "unauthorized"


def test_other_methods_and_invalid_messages_are_rejected(served: ServedApplication, base: str) -> None:
    key = {"Authorization": f"Bearer {served.tokens['read']}"}
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        assert HTTP.request(method, f"{base}/mcp", headers=key).status_code == 405
    _, usual = make_message("tools/list")
    for body in (b"", b"{", b"null", b"[]", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b"[" * 100_000, b'{"id":1,"method":5}'):
        for version in ({}, {"MCP-Protocol-Version": "2025-11-25"}, {"MCP-Protocol-Version": "1999-01-01"}):
            answer = HTTP.post(f"{base}/mcp", content=body, headers={**usual, **key, **version})
            assert 400 <= answer.status_code < 500, (body[:20], version, answer.status_code)
    big = HTTP.post(f"{base}/mcp", content=b"x" * 300_000, headers={**usual, **key})
    assert big.status_code == 413


def test_a_public_wiki_is_read_without_a_key_and_never_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("public")) as own, run_server(own.app) as base:
        own.application.service.configure("beta", {"public": "true"})
        url = f"{base}/w/beta/mcp"
        assert get_document(call_tool(url, None, "read_page", path="Home"))["title"] == "Beta"
        assert call_tool(url, None, "write_page", path="Mine", content="x").is_error
        assert post_message(f"{base}/w/alpha/mcp").status_code == 401


def test_dns_rebinding_from_other_origins_is_rejected(keyless: tuple[ServedApplication, str]) -> None:
    _, base = keyless
    url, port = f"{base}/w/alpha/mcp", urlsplit(base).port
    assert post_message(url).status_code == 200
    assert post_message(url, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status_code == 200
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"},
        {"Host": f"localhost.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port}"},  # not the host of the request
    ):
        for method in ("tools/list", "server/discover"):
            assert post_message(url, method, **headers).status_code == 403, headers


def test_an_allowed_origin_may_call(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"serve.cors_origins": ["https://app.example"]}
    with serve_application(tmp_path_factory.mktemp("cors"), settings) as own, run_server(own.app) as base:
        key = {"Authorization": f"Bearer {own.tokens['read']}"}
        answer = post_message(f"{base}/mcp", Origin="https://app.example", **key)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        preflight_headers = {
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-method,mcp-name",
        }
        assert HTTP.options(f"{base}/mcp", headers=preflight_headers).status_code == 200
        assert post_message(f"{base}/mcp", Origin="https://other.example", **key).status_code == 403


def test_agents_are_rate_limited_like_other_clients(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        serve_application(tmp_path_factory.mktemp("limits"), {"limit.key_per_minute": 1}) as own,
        run_server(own.app) as base,
    ):
        own.stop_refilling()
        key = {"Authorization": f"Bearer {own.tokens['read']}"}
        answers = [post_message(f"{base}/mcp", **key) for _ in range(40)]
        assert answers[0].status_code == 200
        assert "ratelimit" in answers[0].headers
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert post_message(f"{base}/mcp", Authorization=f"Bearer {own.tokens['other']}").status_code == 200


@pytest.mark.slow
def test_a_hundred_calls_at_once_are_all_answered(reader: Agent) -> None:
    async def work(client: Client) -> list[Any]:
        answers: list[Any] = []

        async def call(tool: str, arguments: dict[str, Any]) -> None:
            answers.append(await client.call_tool(tool, arguments))

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(call, "search", {"query": f"printer {number}"})
                tasks.start_soon(call, "read_page", {"paths": ["Coffee"]})
        return answers

    answers = run_over_http(reader.url, reader.token, work)
    assert [answer.is_error for answer in answers] == [False] * 100


def test_a_client_that_disconnects_leaves_a_complete_write_or_none(
    served: ServedApplication, base: str, writer: Agent
) -> None:
    host = urlsplit(base)
    body, headers = make_message(
        "tools/call", {"name": "append_to_page", "arguments": {"path": "Left", "text": "a line"}}
    )
    served.alpha.commit({"Left.md": "# Left\n"})
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head += f"Authorization: Bearer {served.tokens['write']}\r\nHost: {host.netloc}\r\nContent-Length: {len(body)}\r\n"

    def leave(share: float) -> None:
        with socket.create_connection((host.hostname or "", host.port or 0), timeout=60) as connection:
            request = f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode()
            connection.sendall(request[: int(len(request) * share)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(leave, [0.3, 0.6, 0.95, 1.0] * 4))
    writer.get("append_to_page", path="Left", text="the last")
    lines = writer.get("read_page", path="Left")["content"].splitlines()
    assert lines[0] == "# Left"
    assert lines.count("the last") == 1
    assert set(lines[1:]) <= {"a line", "the last"}


class BlockedEmbedder(FakeEmbedder):
    """A model that blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.released = threading.Event(), threading.Event()

    def embed_passages(self, texts: object) -> FloatArray:
        self.started.set()
        assert self.released.wait(2 * TIMEOUT_S)
        return super().embed_passages(texts)  # type: ignore[arg-type]


def test_the_handshake_does_not_wait_for_the_first_indexing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("large")
    repository = Repository(place / "alpha")
    repository.commit({f"Page {number}.md": f"# Page {number}\n\nvalve {number}\n" for number in range(300)})
    settings = load_settings(place / "data", overrides={**UNLIMITED, "search.fresh_timeout": 0.5})
    service, model = build_service(settings), BlockedEmbedder()
    service.components = replace(service.components, embedder=lambda: model)
    application = open_application(settings, service=service)
    service.add("alpha", str(repository.path), {})
    application.scheduler.start()
    try:
        with run_server(create_app(application)) as base:
            wait_until(model.started.is_set)
            agent = Agent(f"{base}/mcp", None)
            # All pages are found by their words meanwhile.
            found = agent.get("search", query="valve")
            assert any(note.startswith("search by meaning: ") for note in found["notes"])
            assert "nothing_relevant" not in found
            assert agent.get("list_pages", limit=1)["total"] == 300
            assert "valve 7" in agent.get("read_page", path="Page 7")["content"]
            model.released.set()
            wait_until(lambda: "notes" not in agent.get("search", query="valve"))
    finally:
        model.released.set()
        assert application.scheduler.stop(TIMEOUT_S)
        service.close()


def test_a_revoked_key_is_rejected_from_the_next_message(served: ServedApplication, base: str) -> None:
    registry = served.application.service.registry
    key, token = registry.keys.create(registry.get("alpha").id, Scope.READ, "brief")
    assert post_message(f"{base}/mcp", Authorization=f"Bearer {token}").status_code == 200
    registry.keys.revoke(key.id)
    assert post_message(f"{base}/mcp", Authorization=f"Bearer {token}").status_code == 401


def test_without_the_extra_the_service_runs_without_the_mcp_route(
    served: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("wikiholt.interfaces.http.app.importlib.util.find_spec", lambda _: None)
        app = create_app(served.application)
    client = TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {served.tokens['read']}"})
    assert client.post("/mcp", json={}).status_code == 404
    assert client.get("/api/v1/search", params={"q": "coffee"}).status_code == 200


def test_metrics_name_the_route_and_no_wiki(served: ServedApplication, base: str) -> None:
    post_message(f"{base}/w/alpha/mcp", Authorization=f"Bearer {served.tokens['read']}")
    text = HTTP.get(f"{base}/metrics", headers={"Authorization": f"Bearer {served.tokens['operator']}"}).text
    assert 'route="/mcp"' in text
    assert "alpha" not in text
