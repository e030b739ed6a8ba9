"""Ctrl-C, progress and `status` of a sync that runs in a terminal of its own."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.fork_server import ForkedPopen, run_forked
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.interfaces.cli.parser import INTERRUPTED_EXIT_CODE

CTRL_C = b"\x03"
PAGES = 1500
_SCRIPT = """
import fcntl, sys, termios, time
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the controlling terminal, so that Ctrl-C becomes a signal
from dataclasses import replace
from wikiholt.api.bootstrap import build_service
from wikiholt.interfaces.cli import command, main
from wikiholt.testing.fakes import FakeEmbedder

class SlowEmbedder(FakeEmbedder):
    def embed_passages(self, texts):
        if {seconds} > 1:
            print("the model has started", flush=True)
        for _ in texts:
            time.sleep({seconds} * (1 if len(self.embedded) < 200 else 8))
        return super().embed_passages(texts)

def open_service(settings):
    service = build_service(settings)
    embedder = SlowEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    return service

command.open_service = open_service
sys.exit(main.main())
"""


class TerminalProcess:
    """A command in a terminal, with everything that it has written there."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.output = ""
        self._terminal = terminal
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._terminal, 4096):
                self.output += data.decode("utf-8", "replace")
        except OSError:
            pass  # the process has closed the terminal

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def wait(self) -> int:
        """Wait for the end of the process and of its output, and return the exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def press_until_ended(self, key: bytes) -> None:
        """Press a key again and again: the system may send one signal for two keys."""

        def has_ended() -> bool:
            with suppress(OSError):  # the terminal ends with the process
                self.press(key)
            return self.process.poll() is not None

        wait_until(has_ended)

    def get_chunks_done(self) -> list[int]:
        """The numbers of chunks that the bar has shown."""
        return [int(number) for number in re.findall(r"(\d+)/\d+ \[[^\]\[]* chunks/s", self.output)]


@contextmanager
def run_in_terminal(data: Path, seconds_per_text: float, *arguments: str) -> Iterator[TerminalProcess]:
    terminal, inner = pty.openpty()
    script = _SCRIPT.format(seconds=seconds_per_text)
    command = [sys.executable, "-c", script, "--data", str(data), *arguments]
    with ForkedPopen(command, stdin=inner, stdout=inner, stderr=inner, start_new_session=True) as process:
        os.close(inner)
        running = TerminalProcess(process, terminal)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            running.wait()
    os.close(terminal)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(tmp_path / "data"), *arguments]
        return run_forked(command, text=True, check=True)

    repository = Repository(tmp_path / "notes")
    repository.commit({f"Page {number}.md": f"# Page {number}\n\nText {number}.\n" for number in range(PAGES)})
    call("add", str(repository.path))
    return call


def test_ctrl_c_keeps_what_was_embedded_and_ends_soon(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    with run_in_terminal(tmp_path / "data", 0.02, "sync", "notes") as sync:
        wait_until(lambda: len(set(sync.get_chunks_done())) > 3)

        def get_activity() -> dict[str, Any] | None:
            activity: dict[str, Any] | None = json.loads(run("status", "notes", "--json").stdout)["activity"]
            return activity if activity and activity["chunks_embedded"] else None

        running = wait_until(get_activity)
        assert running is not None
        assert running["kind"] == "sync"
        assert 0 < running["chunks_embedded"] < running["pages_total"] == PAGES
        assert "sync running since" in run("status", "notes").stdout
        sync.press(CTRL_C)
        # If it embedded the other pages, this would take minutes.
        assert sync.wait() == INTERRUPTED_EXIT_CODE, sync.output
    assert "Interrupted. Pages indexed so far are kept; the same command continues." in sync.output
    assert "Traceback" not in sync.output
    done = sync.get_chunks_done()
    assert done == sorted(done)
    status = json.loads(run("status", "notes", "--json").stdout)
    assert status["activity"] is None
    assert status["pages"] == PAGES, "all are found by their words"
    assert 0 < status["meaning_ready"] < 1
    assert status["meaning_ready"] * PAGES >= max(done) - 64, "what was embedded is kept"


def test_a_second_ctrl_c_ends_at_once(run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path) -> None:
    with run_in_terminal(tmp_path / "data", 60, "sync", "notes") as sync:
        wait_until(lambda: "the model has started" in sync.output)
        sync.press(CTRL_C)
        time.sleep(0.2)
        assert sync.process.poll() is None, "the model is busy with a passage"
        sync.press_until_ended(CTRL_C)
        assert sync.wait() == INTERRUPTED_EXIT_CODE, sync.output
    assert "interrupted" in sync.output
    assert "Traceback" not in sync.output
    assert json.loads(run("status", "notes", "--json").stdout)["activity"] is None


def test_the_first_search_shows_a_bar_and_then_only_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "vault")
    repository.commit({f"Page {number}.md": f"# Page {number}\n\nText {number}.\n" for number in range(60)})
    monkeypatch.chdir(repository.path)
    for is_first in (True, False):
        with run_in_terminal(tmp_path / "data", 0.01, "search", "text", "7", "-n", "1") as search:
            assert search.wait() == 0
        assert ("Added vault: 60 pages" in search.output) == is_first
        assert bool(search.get_chunks_done()) == is_first
        assert "1 of 60 pages" in search.output
