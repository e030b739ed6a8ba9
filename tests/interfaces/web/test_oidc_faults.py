"""An OpenID provider that does not answer, or answers with claims that it should not send."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey

from tests.interfaces.http.test_server import RunningServer
from tests.support.http_server import run_handler
from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.interfaces.web import oidc, sign_in_view

CLIENT_ID = "wikiholt"
STRANGERS = 60
KEY = OKPKey.generate_key("Ed25519", {"kid": "1"})


REQUEST = b"GET /oidc-sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def make_settings(issuer: str) -> dict[str, object]:
    rules = ["editors=alpha:write", "*=beta:read"]
    return {"people.oidc_issuer": issuer, "people.oidc_client_id": CLIENT_ID, "people.groups": rules}


class SilentProvider:
    """A provider that accepts connections and answers none."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.issuer = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        with suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def silent() -> Iterator[SilentProvider]:
    with ExitStack() as stack:
        provider = SilentProvider()
        stack.callback(provider.close)
        yield provider


@pytest.mark.slow
def test_strangers_who_wait_for_a_silent_provider_delay_no_search(
    silent: SilentProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", TIMEOUT_S)
    with serve_application(tmp_path, make_settings(silent.issuer)) as served, ThreadPoolExecutor(STRANGERS) as pool:
        running = RunningServer(served)
        strangers = [pool.submit(running.send_raw, REQUEST) for _ in range(STRANGERS)]
        wait_until(lambda: silent.connections)
        try:
            for path in ("/w/alpha/api/v1/search?q=printer", "/w/alpha/api/v1/pages/Home") * 5:
                url = f"http://127.0.0.1:{running.port}{path}"
                headers = {"Authorization": f"Bearer {served.tokens['read']}"}
                assert httpx.get(url, headers=headers, timeout=30).status_code == 200
            assert not any(stranger.done() for stranger in strangers)
            assert len(silent.connections) == 1
        finally:
            silent.close()
        assert {stranger.result().split(b" ", 2)[1] for stranger in strangers} == {b"503"}
        assert running.stop()


def test_a_silent_provider_is_asked_again_only_after_a_pause(
    silent: SilentProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", 0.2)
    with serve_application(tmp_path, make_settings(silent.issuer)) as served:
        client = served.make_client()
        for _ in range(5):
            response = client.get("/oidc-sign-in", headers={"Accept": "text/html"})
            assert response.status_code == 503
            assert "Try again later, or use a key" in response.text
        assert len(silent.connections) == 1
        monkeypatch.setattr(oidc, "_MIN_REFETCH_INTERVAL_S", 0.0)
        assert client.get("/oidc-sign-in").status_code == 503
        assert len(silent.connections) == 2


@pytest.mark.slow
def test_only_some_sign_ins_wait_for_the_provider(
    silent: SilentProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", TIMEOUT_S)
    settings = make_settings(silent.issuer) | {"limit.waiting_requests": 3}
    with serve_application(tmp_path, settings) as served, ThreadPoolExecutor(STRANGERS) as pool:
        running = RunningServer(served)
        accepted = sign_in_view._PROVIDER_THREADS + 3
        strangers = [pool.submit(running.send_raw, REQUEST) for _ in range(accepted + 5)]
        wait_until(lambda: sum(stranger.done() for stranger in strangers) >= 5)
        refused = [stranger.result() for stranger in strangers if stranger.done()]
        assert len(refused) == 5
        assert all(b"503 Service Unavailable" in response for response in refused)
        silent.close()
        assert running.stop()


# Claims


@contextmanager
def run_provider(claims: dict[str, Any]) -> Iterator[str]:
    """A provider whose ID tokens contain `claims` besides those that are necessary. Returns the issuer."""

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            jwks = {"keys": [KEY.as_dict(private=False)]}
            endpoints = {f"{name}_endpoint": f"{issuer}/{name}" for name in ("authorization", "token")}
            self._reply(jwks if self.path == "/jwks" else {"issuer": issuer, "jwks_uri": f"{issuer}/jwks"} | endpoints)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            now = int(time.time())
            needed = {"iss": issuer, "aud": CLIENT_ID, "sub": "ada", "iat": now, "exp": now + 600}
            token = jwt.encode(
                {"alg": "Ed25519", "kid": "1"},
                needed | {"nonce": form["code"][0]} | claims,
                KEY,
                algorithms=["Ed25519"],
            )
            self._reply({"token_type": "Bearer", "access_token": "a", "id_token": token})

        def _reply(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with run_handler(Provider) as port:
        issuer = f"http://127.0.0.1:{port}"
        yield issuer


def sign_in(served: ServedApplication) -> tuple[httpx.Client, httpx.Response]:
    client = served.make_client()
    started = client.get("/oidc-sign-in", follow_redirects=False)
    query = parse_qs(urlsplit(started.headers["location"]).query)
    back = {"state": query["state"][0], "code": query["nonce"][0]}
    return client, client.get("/oidc-callback", params=back, follow_redirects=False)


@pytest.mark.parametrize("groups", [None, 7, {"editors": True}, True], ids=str)
def test_a_person_whose_groups_are_no_list_has_none(tmp_path: Path, groups: object) -> None:
    with (
        run_provider({"groups": groups}) as issuer,
        serve_application(tmp_path, make_settings(issuer)) as served,
    ):
        client, response = sign_in(served)
        assert response.status_code == 303, response.text
        assert client.get("/api/v1/me").json()["groups"] == []
        assert client.get("/w/beta/api/v1/pages/Home").status_code == 200
        assert client.get("/w/alpha/api/v1/pages/Home").status_code == 403


@pytest.mark.parametrize("subject", ["", " ", None, 7], ids=repr)
def test_a_token_that_names_nobody_signs_nobody_in(tmp_path: Path, subject: object) -> None:
    claims = {"sub": subject, "groups": ["editors"]}
    with run_provider(claims) as issuer, serve_application(tmp_path, make_settings(issuer)) as served:
        client, response = sign_in(served)
        assert response.status_code == 403
        assert client.get("/api/v1/me").json()["kind"] == "anonymous"
