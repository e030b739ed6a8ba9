"""`wikiholt serve` as a process: discovery, serving and shutdown, with the real model, real git and real HTTP."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from tests.support.fork_server import ForkedPopen
from tests.support.git_repository import Repository
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import open_application, open_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Busy, InvalidSetting
from wikiholt.interfaces.cli import http_server
from wikiholt.interfaces.cli.listeners import open_listener
from wikiholt.interfaces.cli.main import main

WORDS = "beans climb poles peas like early frost sage wants sun and dry soil while mint will take every bed it finds"
PAGE_COUNT = choose(1500, 400)
"""Enough for a signal to arrive before all pages are indexed."""


class ServeProcess:
    """A running `wikiholt serve`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        self.url = str(json.loads(line)["listening"])

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=TIMEOUT_S)

    def can_find(self, slug: str, query: str, path: str) -> bool:
        response = self.get(f"w/{slug}/api/v1/search?q={query}")
        return response.status_code == 200 and path in [hit["path"] for hit in response.json()["results"]]

    def stop(self, number: int) -> int:
        """Send a signal, wait for the process to exit and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@contextmanager
def run_serve(data: Path, *arguments: str) -> Iterator[ServeProcess]:
    settings = ["--set", "discover.interval=1", "--set", "sync.interval=1", "--set", "sync.slice=1"]
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(data), *settings]
    command += ["serve", "--json", "--port", "0", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
    with ForkedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield ServeProcess(process)
        finally:
            if process.poll() is None:
                process.kill()


def make_pages(count: int) -> dict[str, str | bytes | None]:
    return {f"Bed {n}.md": f"# Bed {n}\n\nIn bed {n} {WORDS}, {n} of them.\n" for n in range(count)}


@pytest.mark.model
def test_new_and_changed_repositories_are_served_until_a_signal_stops_the_server(tmp_path: Path) -> None:
    wikis = tmp_path / "wikis"
    garden = Repository(wikis / "garden")
    garden.commit({"Beans.md": "# Beans\n\nClimbing beans want poles.\n"})
    with run_serve(tmp_path / "data", str(wikis)) as service:
        wait_until(lambda: service.can_find("garden", "supports for legumes", "Beans"))
        garden.commit({"Sage.md": "# Sage\n\nDry soil and sun.\n"})
        wait_until(lambda: service.can_find("garden", "dry soil", "Sage"))
        Repository(wikis / "kitchen").commit({"Soup.md": "# Soup\n\nPeas, mint, stock.\n"})
        wait_until(lambda: service.can_find("kitchen", "peas and mint", "Soup"))
        assert service.stop(signal.SIGTERM) == 0
    with run_serve(tmp_path / "data") as service:
        assert service.can_find(
            "kitchen", "peas and mint", "Soup"
        )  # registered: found at once, without the directory argument
        assert service.stop(signal.SIGINT) == 0
        assert service.process.stderr is not None
        assert service.process.stderr.read() == ""


@pytest.mark.model
@pytest.mark.parametrize("kind", ["repository", "directory"])
def test_one_repository_or_one_directory_of_pages_is_served_as_one_wiki(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "My Garden"
    place.mkdir()
    if kind == "repository":
        Repository(place).commit({"Beans.md": "# Beans\n\nClimbing beans want poles.\n"})
    else:
        (place / "Beans.md").write_text("# Beans\n\nClimbing beans want poles.\n")
    with run_serve(tmp_path / "data", str(place)) as service:
        wait_until(lambda: service.can_find("my-garden", "beans", "Beans"))
        (place / "Peas.md").write_text("# Peas\n\nSow early.\n")
        if kind == "directory":
            wait_until(lambda: service.can_find("my-garden", "sow early", "Peas"))
            assert service.get("w/my-garden/api/v1/status").json()["watched"] is True
        assert service.stop(signal.SIGTERM) == 0
        assert service.process.stderr is not None
        assert service.process.stderr.read() == ""


@pytest.mark.model
def test_a_signal_during_the_first_sync_stops_cleanly_and_the_next_start_continues(tmp_path: Path) -> None:
    wikis, data = tmp_path / "wikis", tmp_path / "data"
    Repository(wikis / "large").commit(make_pages(PAGE_COUNT))

    def count_embedded() -> float:
        service = open_service(data)
        try:
            state = service.get_handle("large").get_status().state if service.registry.list_wikis() else None
            return state.pages * state.embedded_share if state else 0
        finally:
            service.close()

    with run_serve(data, str(wikis)) as service:
        wait_until(lambda: service.get("w/large/api/v1/status").status_code == 200)

        def stop_after_a_batch() -> bool:
            """Stop the service if it has indexed a batch. It is suspended meanwhile, and cannot index the rest."""
            began = time.monotonic()
            service.process.send_signal(signal.SIGSTOP)
            try:
                found = count_embedded() >= 48
            except Busy:  # it was suspended in a transaction
                found = False
            if found:
                service.process.send_signal(signal.SIGTERM)
            service.process.send_signal(signal.SIGCONT)
            if not found:
                time.sleep(time.monotonic() - began)  # it runs for at least as long as it was suspended
            return found

        wait_until(stop_after_a_batch, seconds=240)
        assert service.process.wait(TIMEOUT_S) == 0
    count_before = count_embedded()
    assert 48 <= count_before < PAGE_COUNT
    service_of_data = open_service(data)
    try:
        assert service_of_data.get_handle("large").check() == []
    finally:
        service_of_data.close()
    with run_serve(data, str(wikis)) as service:
        assert count_embedded() >= count_before
        wait_until(lambda: service.get("w/large/api/v1/status").json()["meaning_ready"] == 1, seconds=240)
        status = service.get("w/large/api/v1/status").json()
        assert (status["pages"], status["stale"]) == (PAGE_COUNT, False)
        assert service.stop(signal.SIGTERM) == 0


@pytest.mark.model
def test_two_services_share_a_data_directory(tmp_path: Path) -> None:
    wikis, data = tmp_path / "wikis", tmp_path / "data"
    garden = Repository(wikis / "garden")
    garden.commit(make_pages(60))
    with run_serve(data, str(wikis)) as one, run_serve(data, str(wikis)) as two:
        for number in range(3):
            garden.commit({f"New {number}.md": f"# New {number}\n\nRhubarb number {number}.\n"})
            wait_until(lambda number=number: one.can_find("garden", f"rhubarb number {number}", f"New {number}"))
            wait_until(lambda number=number: two.can_find("garden", f"rhubarb number {number}", f"New {number}"))
        assert one.get("healthz").status_code == 200
        assert two.stop(signal.SIGTERM) == 0
        assert one.can_find("garden", "rhubarb", "New 2")
        assert one.stop(signal.SIGTERM) == 0
    service = open_service(data)
    try:
        assert [wiki.slug for wiki in service.list_wikis()] == ["garden"]
        assert service.get_handle("garden").check() == []
    finally:
        service.close()


# ── rejected arguments ──────────────────────────────────────────────────────────────────────────────


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main([*arguments])
    return code, capsys.readouterr().err


def test_listening_on_all_addresses_without_a_key_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "wiki.example"):
        code, error = run_command(capsys, "--data", str(tmp_path / "data"), "serve", "--host", host)
        assert code == 2
        assert f"hint: Create one first: wikiholt --data {tmp_path / 'data'} key create --operator" in error
    assert not (tmp_path / "data").exists()


def test_listening_on_all_addresses_is_allowed_with_a_key(tmp_path: Path) -> None:
    application = open_application(replace(load_settings(tmp_path / "data"), serve_host="0.0.0.0"))
    with pytest.raises(InvalidSetting):
        http_server.check_service(application, (), as_json=True)
    application.service.registry.keys.create(None, Scope.ADMIN, "", None)
    http_server.check_service(application, (), as_json=True)
    application.service.close()


def test_a_missing_directory_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "--data", str(tmp_path / "data"), "serve", str(tmp_path / "nowhere"))
    assert code == 2
    assert "hint: " in error
    assert not (tmp_path / "data").exists()


def test_a_used_or_invalid_port_and_a_foreign_address_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        port = str(busy_socket.getsockname()[1])
        code, error = run_command(capsys, *data, "serve", "--port", port)
        assert code == 4
        assert f"port {port}" in error
    assert run_command(capsys, *data, "serve", "--port", "70000")[0] == 2
    assert run_command(capsys, *data, "serve", "--port", "http")[0] == 2


def test_tcp_nodelay_is_set_so_a_body_does_not_wait_for_an_ack() -> None:
    with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_worker_that_drains_answers_a_client_that_has_connected_and_not_sent_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_LAST_CONNECTIONS_S", 0.0)
    monkeypatch.setattr(http_server, "_MAX_LAST_CONNECTIONS_S", TIMEOUT_S)
    config = uvicorn.Config(PlainTextResponse("hello"), http=http_server.TimeoutProtocol, ws="none", log_config=None)
    server = http_server.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with socket.create_connection(listener.getsockname(), timeout=TIMEOUT_S) as client:
            wait_until(lambda: server.server_state.connections)
            server.drain(TIMEOUT_S)
            wait_until(lambda: not any(each.is_serving() for each in server.servers))
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: client.recv(4096), b"")).endswith(b"hello")
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_a_worker_that_drains_tells_a_client_to_open_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_LAST_CONNECTIONS_S", 0.0)
    monkeypatch.setattr(http_server, "_MAX_LAST_CONNECTIONS_S", TIMEOUT_S)
    options = {"timeout_keep_alive": int(TIMEOUT_S), "ws": "none", "log_config": None}
    config = uvicorn.Config(PlainTextResponse("hello"), http=http_server.TimeoutProtocol, **options)  # type: ignore[arg-type]
    server = http_server.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as client:
            for is_last in (False, True):
                client.request("GET", "/")
                response = client.getresponse()
                assert response.read() == b"hello"
                assert response.headers["Connection"] == ("close" if is_last else None)
                server.drain(TIMEOUT_S)
                wait_until(lambda: not any(each.is_serving() for each in server.servers))
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@pytest.mark.model
def test_serve_says_what_it_is_doing_with_the_time(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Beans.md": "# Beans\n\nClimbing beans want poles.\n"})
    data = ["--data", str(tmp_path / "data")]
    assert main([*data, "add", "garden", str(repository.path)]) == 0
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", *data, "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            time_stamp = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
            first = process.stderr.readline()
            assert re.fullmatch(f"{time_stamp} INFO wikiholt.serve: serving 1 wiki from .*/data\n", first)
            assert process.stdout.readline().startswith("Wikiholt listens on http://127.0.0.1:")
            lines = iter(process.stderr.readline, "")
            assert any(
                re.fullmatch(f"{time_stamp} INFO wikiholt.serve: ready: .* 1 wiki is at HEAD\n", x) for x in lines
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection on which nothing was sent."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_strangers_get_a_quarter_of_the_open_files(tmp_path: Path) -> None:
    with run_serve(tmp_path / "data") as serve, httpx.Client(base_url=serve.url, timeout=TIMEOUT_S) as client:
        assert client.get("healthz").status_code == 200
        resource.prlimit(serve.process.pid, resource.RLIMIT_NOFILE, (100, 100))
        address = urlsplit(serve.url)
        with ExitStack() as stack:
            strangers = [
                stack.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(60)
            ]
            wait_until(lambda: sum(map(is_closed, strangers)) >= 60 - 24)
            assert sum(map(is_closed, strangers)) == 60 - 24
            assert client.get("healthz").status_code == 200
        assert serve.stop(signal.SIGTERM) == 0
