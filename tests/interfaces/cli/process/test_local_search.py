"""Searches of commands through a running service: same answers, owner only, and a silent fallback."""

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from tests.support.git_repository import Repository
from tests.support.served_application import DEFAULT_SETTINGS, ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S
from wikiholt.api.bootstrap import Application
from wikiholt.interfaces.cli import http_server, local_client
from wikiholt.interfaces.cli.http_server import Server, build_config
from wikiholt.interfaces.cli.listeners import open_local_listener
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.local_owner import SETTINGS_HEADER, SOCKET_NAME, fingerprint_settings

Run = Callable[..., tuple[int, str, str]]


@contextmanager
def serve_local_searches(application: Application) -> Iterator[None]:
    """Serve at the Unix socket of the data directory, as `serve` does."""
    with open_local_listener(application.settings.data / SOCKET_NAME) as listeners:
        if not listeners:
            yield
            return
        server = Server(build_config(application))
        thread = Thread(target=server.run, args=(listeners,))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApplication]:
    monkeypatch.setattr(local_client, "_CONNECT_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(local_client, "_REPLY_TIMEOUT_S", TIMEOUT_S)
    with serve_application(tmp_path / "s", {"limit.key_per_minute": 0}) as served:
        monkeypatch.chdir(served.alpha.path)
        yield served


@pytest.fixture
def run(served: ServedApplication, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that must not open a service of its own, unless it says so."""

    def call(*arguments: str, falls_back: bool = False) -> tuple[int, str, str]:
        opened: list[object] = []

        def open_service(_: object) -> object:
            opened.append(1)
            return served.application.service

        monkeypatch.setattr("wikiholt.interfaces.cli.command.open_service", open_service)
        monkeypatch.setattr("wikiholt.wikis.service.WikiService.close", lambda _: None)
        data = served.application.settings.data
        options = [part for name, value in DEFAULT_SETTINGS.items() for part in ("--set", f"{name}={value}")]
        code = main(["--data", str(data), *options, *arguments])
        captured = capsys.readouterr()
        assert bool(opened) == falls_back, captured.err
        return code, captured.out, captured.err

    return call


def test_an_answer_of_the_service_is_that_of_a_search_in_the_process(served: ServedApplication, run: Run) -> None:
    def get_document(*arguments: str, falls_back: bool) -> dict[str, object]:
        document: dict[str, object] = json.loads(run(*arguments, "--json", falls_back=falls_back)[1])
        return {name: value for name, value in document.items() if name != "took_ms"}

    for arguments in (["search", "printer"], ["search", "-w", "beta", "-w", "alpha", "printer"]):
        own = get_document(*arguments, falls_back=True)
        own_text = run(*arguments, falls_back=True)[1].splitlines()[:-1]
        with serve_local_searches(served.application):
            assert get_document(*arguments, falls_back=False) == own
            code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert out.splitlines()[:-1] == own_text


def test_the_service_syncs_first(served: ServedApplication, run: Run) -> None:
    served.alpha.commit({"New.md": "# New\n\nzebracrossing\n"})
    with serve_local_searches(served.application):
        out = run("search", "zebracrossing", "--mode", "keyword")[1]
    assert "1. New" in out
    assert ", up to date" in out


def test_nothing_found_and_errors_have_the_same_exit_codes(served: ServedApplication, run: Run) -> None:
    with serve_local_searches(served.application):
        assert run("search", "xyzzyplugh", "--mode", "keyword")[0] == 1
        code, out, err = run("search", "x", "-n", "0")
    assert (code, out) == (2, "")
    assert "n is 0" in err


def test_the_service_declines_what_the_command_has_to_do_itself(
    served: ServedApplication, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_local_searches(served.application):
        assert run("--set", "threads=1", "search", "printer", falls_back=True)[0] == 0, "other settings"
        assert run("search", "-w", "no-such", "printer", falls_back=True)[0] == 3
        assert "hint" in run("search", "alpha", "printer", falls_back=True)[2]
        fresh = Repository(tmp_path / "fresh")
        fresh.commit({"Page.md": "# Page\n\nnarwhal\n"})
        monkeypatch.chdir(fresh.path)
        assert "Added fresh" in run("search", "narwhal", falls_back=True)[2]
        assert "1. Page" in run("search", "narwhal")[1]


def test_the_service_searches_all_wikis_from_the_home_directory(
    served: ServedApplication, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home")
    with serve_local_searches(served.application):
        document = json.loads(run("search", "printer", "--json")[1])
    assert document["wikis"] == ["alpha", "beta"]


def test_the_socket_is_for_the_owner_only(served: ServedApplication, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = served.application.settings.data / SOCKET_NAME
    with serve_local_searches(served.application):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        monkeypatch.setattr(http_server, "get_peer_user", lambda _: os.geteuid() + 1)
        assert run("search", "printer", falls_back=True)[0] == 0
    assert not path.exists()


def ask(served: ServedApplication, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Status and body of a request at the socket."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *(f"{n}: {v}" for n, v in headers.items())]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(served.application.settings.data / SOCKET_NAME))
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        with connection.makefile("rb") as stream:
            head, _, body = stream.read().decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_the_socket_speaks_the_http_api_and_needs_no_key(served: ServedApplication) -> None:
    served.make_keys()
    headers = {SETTINGS_HEADER: fingerprint_settings(served.application.settings)}
    path = "/w/alpha/api/v1/search?q=printer"
    with serve_local_searches(served.application):
        status, body = ask(served, path, headers)
        assert status == 200
        over_tcp = served.make_client("read").get(path)
        own, other = json.loads(body), over_tcp.json()
        assert {**own, "took_ms": 0} == {**other, "took_ms": 0}
        assert ask(served, path, {})[0] == ask(served, path, {SETTINGS_HEADER: "other"})[0] == 403
    # Only the socket makes an owner: no header does.
    assert served.make_client(None).get(path, headers=headers).status_code == 401


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"\xff\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_other_messages_do_no_harm(served: ServedApplication, run: Run, line: bytes) -> None:
    with serve_local_searches(served.application):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(60)
            connection.connect(str(served.application.settings.data / SOCKET_NAME))
            connection.sendall(line)
        assert run("search", "printer")[0] == 0


def test_a_socket_that_nobody_answers_is_replaced_and_one_in_use_is_kept(served: ServedApplication, run: Run) -> None:
    path = served.application.settings.data / SOCKET_NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert run("search", "printer", falls_back=True)[0] == 0
    with serve_local_searches(served.application):
        with serve_local_searches(served.application):
            pass
        assert run("search", "printer")[0] == 0


def test_a_service_that_ends_leaves_the_socket_of_the_one_that_replaced_it(served: ServedApplication, run: Run) -> None:
    path = served.application.settings.data / SOCKET_NAME
    with open_local_listener(path) as (hanging,):
        hanging.close()
        later = serve_local_searches(served.application)
        later.__enter__()
    try:
        assert run("search", "printer")[0] == 0
    finally:
        later.__exit__(None, None, None)
    assert not path.exists()


def test_a_path_that_is_too_long_for_a_socket_is_no_error(served: ServedApplication) -> None:
    long = replace(served.application.settings, data=served.application.settings.data / ("x" * 200))
    with serve_local_searches(replace(served.application, settings=long)):
        assert not any(long.data.parent.rglob("search.sock"))
