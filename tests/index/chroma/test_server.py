"""Chroma as an external server: a real one, an unreliable one, and servers that are not Chroma."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.index.chroma.chroma_fixtures import (
    QUERY,
    WIKI_ID,
    ChromaFixture,
    assert_same_as_store,
    get_metric,
    is_helped_by_chroma,
)
from tests.support.chroma_server import RunningChroma
from tests.support.http_server import run_handler
from tests.support.wait import TIMEOUT_S, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningChroma]:
    with RunningChroma(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=TIMEOUT_S) as made:
        yield made


def test_a_server_is_used_and_may_stop_and_restart(
    fixture: ChromaFixture, server: RunningChroma, client: httpx.Client
) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine(path=None, url=server.url, tenant="acme", database="wikis") as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        assert_same_as_store(cache, index)
        server.stop()
        assert assert_same_as_store(cache, index).degraded
        assert "reached" in engine.check()
        server.start()
        wait_until(lambda: is_helped_by_chroma(cache), "the server is back")
        assert_same_as_store(cache, index)
        assert get_metric(engine, "rebuilds") == 1
        assert engine.check() == ""
        listed = client.get(f"{server.url}/api/v2/tenants/acme/databases/wikis/collections").json()
        assert [collection["name"] for collection in listed] == [f"wikiholt_{WIKI_ID}"]
        engine.delete_wiki(WIKI_ID, "one")
        assert client.get(f"{server.url}/api/v2/tenants/acme/databases/wikis/collections").json() == []
        cache.close()


def test_a_foreign_collection_is_never_changed(
    fixture: ChromaFixture, server: RunningChroma, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    base = f"{server.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    theirs = client.post(base, json={"name": "otterwiki_pages_one", "metadata": {"whose": "theirs"}}).json()
    row = {"ids": ["x"], "embeddings": [QUERY.tolist()], "documents": ["theirs"]}
    assert client.post(f"{base}/{theirs['id']}/add", json=row).status_code == 201
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine(path=None, url=server.url, layout="seed") as engine:
        cache = fixture.open_cache(engine)
        assert assert_same_as_store(cache, index).degraded
        assert cache.wait_idle(TIMEOUT_S)
        assert "did not create" in caplog.text
        engine.delete_wiki(WIKI_ID, "one")
        cache.close()
    assert client.get(f"{base}/{theirs['id']}/count").json() == 1
    assert client.get(f"{base}/otterwiki_pages_one").json()["metadata"] == {"whose": "theirs"}


@contextmanager
def run_fake_server(reply: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address of a server that answers every request with `reply`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply(self)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with run_handler(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def _send_response(handler: http.server.BaseHTTPRequestHandler, status: int, content: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def a_web_page(handler: http.server.BaseHTTPRequestHandler) -> None:
    _send_response(handler, 200, b"<html>welcome</html>")


def other_json(handler: http.server.BaseHTTPRequestHandler) -> None:
    _send_response(handler, 200, json.dumps({"ids": "x", "id": 7, "name": None, "metadata": []}).encode())


def a_list_of_lists(handler: http.server.BaseHTTPRequestHandler) -> None:
    _send_response(handler, 200, b"[[[[1]]]]")


def an_error(handler: http.server.BaseHTTPRequestHandler) -> None:
    _send_response(handler, 500, b'{"error": "InternalError", "message": "secret words"}')


def noise(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(bytes(range(256)) * 8)
    handler.close_connection = True


def half_an_answer(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")
    handler.close_connection = True


def drops(handler: http.server.BaseHTTPRequestHandler) -> None:
    """One byte at a time, for longer than any timeout."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    try:
        for _ in range(40):
            handler.wfile.write(b" ")
            threading.Event().wait(0.1)
    except OSError:
        pass
    handler.close_connection = True


REPLIES = [a_web_page, other_json, a_list_of_lists, an_error, noise, half_an_answer, drops]


@pytest.mark.parametrize("reply", REPLIES, ids=[reply.__name__ for reply in REPLIES])
def test_a_server_that_is_not_chroma_is_ignored_and_searches_are_right(
    fixture: ChromaFixture,
    reply: Callable[[http.server.BaseHTTPRequestHandler], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    index = fixture.create_index(WIKI_ID)
    with (
        run_fake_server(reply) as url,
        fixture.open_engine(path=None, url=url, timeout_s=1.0, read_timeout_s=1.0, write_timeout_s=1.0) as engine,
    ):
        cache = fixture.open_cache(engine)
        assert assert_same_as_store(cache, index).degraded
        cache.wait_idle(TIMEOUT_S)
        assert assert_same_as_store(cache, index).degraded
        assert engine.check()
        assert "secret words" not in caplog.text + engine.check()
        assert WIKI_ID not in caplog.text
        engine.delete_wiki(WIKI_ID, "one")
        cache.close()


def test_a_token_is_sent_in_the_headers_of_proxies_and_older_servers(fixture: ChromaFixture) -> None:
    fixture.create_index(WIKI_ID)
    seen: list[tuple[str | None, str | None]] = []

    def reply(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append((handler.headers.get("Authorization"), handler.headers.get("X-Chroma-Token")))
        _send_response(handler, 401, b"{}")

    with (
        run_fake_server(reply) as url,
        fixture.open_engine(path=None, url=url, token="s3cret") as engine,
    ):
        assert "401" in engine.check()
    assert set(seen) == {("Bearer s3cret", "s3cret")}
