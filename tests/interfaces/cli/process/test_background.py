"""The process in the background: first answers by words, later ones warm, and nothing is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.interfaces.mcp.mcp_client import get_document, run_in_thread
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.interfaces.http.local_owner import SOCKET_NAME

PAGES = 150


class Folder:
    """A folder of pages, and the commands in it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.pages = directory / "notes"
        self.pages.mkdir()
        for number in range(PAGES):
            (self.pages / f"page-{number:03}.md").write_text(
                f"# Page {number}\n\nThe number of this page is {number}.\n"
            )

    def start(self, *arguments: str, keep_warm: int = 10) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "wikiholt", "--data", str(self.data), *arguments]
        environment = os.environ | {"WIKIHOLT_SEARCH_KEEP_WARM": str(keep_warm)}
        return subprocess.Popen(
            command, cwd=self.pages, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, keep_warm: int = 10) -> str:
        with self.start(*arguments, keep_warm=keep_warm) as process:
            out, error = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode in (0, 1), error
        return out

    def search(self, *arguments: str) -> Any:
        return json.loads(self.run("search", "page 77", "--json", *arguments))

    def get_running(self) -> int | None:
        """The id of the process in the background, if there is one."""
        try:
            running = json.loads((self.data / "background.lock").read_text())["pid"]
            command = Path(f"/proc/{running}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return int(running) if b"--background" in command else None

    def wait_for_process(self) -> int:
        wait_until(lambda: self.get_running() is not None and (self.data / SOCKET_NAME).is_socket())
        running = self.get_running()
        assert running is not None
        return running


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    if made.data.exists():
        made.run("stop")
    wait_until(lambda: made.get_running() is None)


def test_a_first_search_answers_by_words_and_the_rest_follows_in_the_background(folder: Folder) -> None:
    first = folder.search("--no-wait")
    assert first["results"][0]["path"] == "page-077"
    assert (first["degraded"], first["nothing_relevant"], first["stale"]) == (True, False, False)
    assert first["meaning_ready"] < 1
    assert {hit["confidence"] for hit in first["results"]} == {"unknown"}
    assert any(note.startswith("search by meaning: ") for note in first["notes"])
    folder.wait_for_process()
    wait_until(lambda: folder.search("--no-wait")["meaning_ready"] == 1)
    last = folder.search()
    assert (last["degraded"], last["results"][0]["path"]) == (False, "page-077")
    assert "unknown" not in {hit["confidence"] for hit in last["results"]}
    # It follows the folder.
    (folder.pages / "new.md").write_text("# Xylophone\n\nA new page.\n")
    assert json.loads(folder.run("search", "xylophone", "--json"))["results"][0]["path"] == "new"
    assert folder.run("stop") == "Stopped the background process.\n"
    assert folder.run("stop") == "No background process is running.\n"
    assert not (folder.data / SOCKET_NAME).exists()


def test_a_killed_process_loses_nothing_and_the_next_search_converges(folder: Folder) -> None:
    ready = [folder.search("--no-wait")["meaning_ready"]]
    assert ready[0] < 1
    for _ in range(2):
        running = folder.wait_for_process()
        wait_until(lambda: folder.search("--no-wait")["meaning_ready"] > ready[-1] or ready[-1] == 1)
        os.kill(running, signal.SIGKILL)
        wait_until(lambda: folder.get_running() is None)
        ready.append(folder.search("--no-wait")["meaning_ready"])
    assert ready == sorted(ready)
    assert ready[1] > ready[0]
    assert folder.search()["degraded"] is False
    assert json.loads(folder.run("status", "--json"))["wikis"][0]["pages"] == PAGES


def test_a_process_that_has_not_started_yet_can_be_stopped(folder: Folder) -> None:
    folder.run("search", "page 77")
    assert folder.run("stop") == "Stopped the background process.\n"
    assert folder.get_running() is None
    assert folder.run("stop") == "No background process is running.\n"


def test_without_a_terminal_a_search_waits_and_the_setting_turns_the_process_off(folder: Folder) -> None:
    found = json.loads(folder.run("search", "page 77", "--json", keep_warm=0))
    assert (found["degraded"], found["meaning_ready"]) == (False, 1)
    assert not (folder.data / "background.lock").exists()


def test_only_one_of_several_processes_runs_and_a_search_with_other_settings_replaces_it(folder: Folder) -> None:
    folder.run("search", "page 77", keep_warm=0)
    started = [folder.start("serve", "--background") for _ in range(3)]
    running = folder.wait_for_process()
    for process in started:
        if process.pid != running:
            assert process.wait(TIMEOUT_S) == 0
    folder.run("--set", "url=https://example.org/{path}", "search", "page 77")
    wait_until(lambda: folder.get_running() not in (None, running))
    for process in started:
        process.communicate(timeout=TIMEOUT_S)


def test_the_process_ends_when_it_is_idle_or_its_data_is_gone_or_a_service_starts(folder: Folder) -> None:
    folder.run("search", "page 77", keep_warm=0)
    with folder.start("serve", "--background", keep_warm=0) as process:
        assert process.wait(TIMEOUT_S) == 0
    with folder.start("serve", "--background") as process:
        folder.wait_for_process()
        with folder.start("serve", "--port", "0") as service:
            assert process.wait(TIMEOUT_S) == 0
            wait_until((folder.data / SOCKET_NAME).is_socket)
            assert folder.run("stop") == "No background process is running.\n"
            service.terminate()
            assert service.wait(TIMEOUT_S) == 0
    with folder.start("serve", "--background") as process:
        folder.wait_for_process()
        shutil.rmtree(folder.data)
        assert process.wait(TIMEOUT_S) == 0
    assert not folder.data.exists()


def test_agents_search_in_the_same_process_and_load_no_model(folder: Folder) -> None:
    folder.run("search", "page 77", keep_warm=0)
    command = ["-P", "-m", "wikiholt", "--data", str(folder.data), "mcp"]
    environment = os.environ | {"WIKIHOLT_SEARCH_KEEP_WARM": "10"}
    server = StdioServerParameters(command=sys.executable, args=command, env=environment, cwd=folder.pages)

    async def search(client: Client) -> tuple[str, bool]:
        """The best page, and whether the agent's own process has the model in memory."""
        query = {"query": "which page has the number 77", "tag": [], "n": 3}
        document = get_document(await client.call_tool("search", query))
        return document["results"][0]["id"], any(map(has_model, list_children()))

    async def work() -> None:
        async with Client(stdio_client(server)) as client:
            assert await search(client) == ("page-077", False)
            folder.run("stop")  # the next search starts it again
            assert await search(client) == ("page-077", False)
            assert folder.get_running() is not None
            shown = get_document(await client.call_tool("ask", {"query": "what is the number of page 77?"}))
            assert "77" in json.dumps(shown)
            assert not any(map(has_model, list_children()))

    run_in_thread(work)


def list_children() -> list[int]:
    """The ids of the servers that this process has started."""
    threads = Path("/proc/self/task").glob("*/children")
    processes = [int(process) for children in threads for process in children.read_text().split()]
    agents = [process for process in processes if is_agent(process)]
    assert agents
    return agents


def is_agent(process: int) -> bool:
    return Path(f"/proc/{process}/cmdline").read_bytes().endswith(b"\0mcp\0")


def has_model(process: int) -> bool:
    return b".onnx" in Path(f"/proc/{process}/maps").read_bytes()
