"""Chroma from the command line and behind `wikiholt serve`, with the real model."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.fork_server import ForkedPopen
from tests.support.git_repository import Repository
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting, MissingDependency
from wikiholt.interfaces.cli.main import main

CHROMA_OPTIONS = ["--set", "vectors=chroma", "--set", "chroma.path=chroma", "--set", "chroma.timeout=60"]


def run_command(capsys: pytest.CaptureFixture[str], data: Path, *arguments: str) -> dict[str, object]:
    code = main(["--data", str(data), *CHROMA_OPTIONS, *arguments])
    output = capsys.readouterr()
    assert code == 0, output.err
    document: dict[str, object] = json.loads(output.out)
    return document


def find_child_pid(data: Path) -> int:
    """The process that hosts Chroma for a data directory."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (place / "cmdline").read_bytes().split(b"\0")
            if b"wikiholt.index.chroma.server_process" in command and os.fsencode(data / "chroma") in command:
                return int(place.name)
    raise AssertionError("there is no child")


@contextmanager
def run_serve(data: Path, log: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(data), *CHROMA_OPTIONS]
    # The waits of the tests ask often.
    command += ["--set", "sync.interval=1", "--set", "limit.address_per_minute=0", "serve", "--json", "--port", "0"]
    with (
        log.open("w") as errors,
        ForkedPopen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["listening"]
        finally:
            process.kill()


@pytest.mark.model
def test_commands_and_a_service_share_one_chroma(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wikis, data = tmp_path / "wikis", tmp_path / "data"
    garden = Repository(wikis / "garden")
    garden.commit({"Beans.md": "# Beans\n\nClimbing beans want poles.\n", "Sage.md": "# Sage\n\nDry soil and sun.\n"})
    run_command(capsys, data, "add", "garden", str(wikis / "garden"), "--json")
    run_command(capsys, data, "sync", "garden", "--json")
    assert run_command(capsys, data, "search", "-w", "garden", "supports for legumes", "--json")["degraded"] is False
    findings = run_command(capsys, data, "doctor", "--json")
    assert "responds correctly" in json.dumps(findings)
    with run_serve(data, tmp_path / "log") as (process, url):

        def search() -> dict[str, object]:
            document: dict[str, object] = httpx.get(
                f"{url}w/garden/api/v1/search?q=poles+for+legumes", timeout=120
            ).json()
            assert "Beans" in json.dumps(document["results"])
            return document

        def metric(name: str) -> float:
            lines = httpx.get(f"{url}metrics", timeout=120).text.splitlines()
            assert not [line for line in lines if "garden" in line]
            return float(next(line.split()[1] for line in lines if line.startswith(f"wikiholt_chroma_{name} ")))

        wait_until(lambda: not search()["degraded"], "the service is helped")
        assert metric("up") == 1
        assert run_command(capsys, data, "search", "-w", "garden", "dry places", "--json")["degraded"] is False
        os.kill(find_child_pid(data), signal.SIGKILL)
        wait_until(lambda: not search()["degraded"] and metric("starts_total") == 2, "it comes back by itself")
        assert metric("crashes_total") == 1
        garden.commit({"Mint.md": "# Mint\n\nMint takes every bed.\n"})
        # Within seconds of a crash a sync leaves Chroma alone; then the next search has the row written.
        wait_until(lambda: search() and metric("rows_written_total") == 1, "the row that came is written")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "garden" not in (tmp_path / "log").read_text()
    run_command(capsys, data, "remove", "garden", "--yes", "--json")
    assert not [place for place in (data / "chroma").iterdir() if place.is_dir()]
    assert b"otterwiki" not in (data / "chroma" / "chroma.sqlite3").read_bytes()


def test_exactly_one_of_chroma_url_and_path_must_be_set(tmp_path: Path) -> None:
    for overrides in ({}, {"chroma.url": "http://h:1", "chroma.path": "x"}):
        with pytest.raises(InvalidSetting, match=r"either chroma\.url or chroma\.path"):
            load_settings(tmp_path, overrides={"vectors": "chroma", **overrides})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("chroma.url", url) for url in ("ftp://h", "http://", "h:8000", "http://u:p@h", "http://h/x", "http://h:x")),
        *(("chroma.tenant", name) for name in ("", "a", "-ab", "a b c")),
        ("chroma.layout", "other"),
        ("chroma.timeout", "0"),
    ],
)
def test_an_invalid_setting_is_rejected(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        load_settings(tmp_path, overrides={name: value})


def test_a_token_is_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--set", "chroma.token=s3cret", "settings"]) == 0
    assert "s3cret" not in capsys.readouterr().out


def test_without_the_extra_a_directory_is_rejected_but_a_server_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingDependency) as caught:
        build_service(load_settings(tmp_path, overrides={"vectors": "chroma", "chroma.path": "chroma"}))
    assert "the extra chroma" in caught.value.hint
    build_service(load_settings(tmp_path, overrides={"vectors": "chroma", "chroma.url": "http://127.0.0.1:1"})).close()
