"""`wikiholt mcp` as a separate process, with the real model and real git."""

import os
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult, ResourceListChangedNotification, ResourceUpdatedNotification

from tests.interfaces.mcp.mcp_client import get_document, get_text, run_over_stdio
from tests.support.fork_server import run_forked
from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.interfaces.mcp.tools import PAST_TOOLS, READ_TOOLS, WRITE_TOOLS

WORDS = "beans climb poles peas like early frost sage wants sun and dry soil while mint will take every bed it finds"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A wiki that was never indexed, and a second wiki."""
    pages = {f"Beds/Bed {n}.md": f"# Bed {n}\n\nIn bed {n} {WORDS}, {n} of them.\n" for n in range(60)}
    pages["Home.md"] = "# Home\n\nThe heron fishes in the pond at dawn.\n"
    garden, other = Repository(tmp_path / "garden"), Repository(tmp_path / "other")
    (tmp_path / "data").mkdir()
    # A search waits for the agent's own writes: 10 s by default, and a busy machine may need more.
    (tmp_path / "data" / "wikiholt.toml").write_text("[search]\nfresh_timeout = 240\n")
    garden.commit(dict(pages))
    other.commit({"Home.md": "# Other\n\nothercanary\n"})
    service = open_service(tmp_path / "data")
    service.add("garden", str(garden.path), {})
    service.add("other", str(other.path), {})
    service.close()
    return garden


async def _call_tool(client: Client, name: str, **arguments: object) -> CallToolResult:
    result = await client.call_tool(name, dict(arguments))
    assert isinstance(result, CallToolResult)
    return result


@pytest.mark.model
def test_an_agent_reads_at_once_then_writes_and_finds_its_page(repository: Repository, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        # Pages can be read after the handshake, before the first indexing starts.
        assert "heron" in get_document(await _call_tool(client, "read_page", path="Home"))["content"]
        assert len((await client.list_tools()).tools) == len(READ_TOOLS) + len(PAST_TOOLS) + len(WRITE_TOOLS)
        page = "# Birds\n\nA kingfisher dives from the willow.\n"
        get_document(await _call_tool(client, "write_page", path="Birds", content=page, commit_message="Seen today"))
        until = time.monotonic() + 280
        while (result := await _call_tool(client, "search", query="which bird fishes by plunging?", n=3)).is_error:
            assert "Next: " in get_text(result)
            assert time.monotonic() < until
        document = get_document(result)
        assert {page["id"] for page in document["results"]} >= {"Birds", "Home"}
        assert "stale" not in document
        assert get_document(await _call_tool(client, "list_pages", limit=1))["total"] == 62
        outside = await _call_tool(client, "read_page", path="../other/Home")
        assert outside.is_error
        assert str(tmp_path) not in get_text(outside)

    run_over_stdio(tmp_path / "data", ["garden", "--write", "--author", "Ada Lovelace <ada@example.org>"], work)
    assert (
        repository.run_git("log", "-1", "--format=%an <%ae>|%s").decode().strip()
        == "Ada Lovelace <ada@example.org>|Seen today"
    )
    # Its scheduler synced only that wiki.
    service = open_service(tmp_path / "data")
    assert service.get_handle("garden").get_status().state is not None
    assert service.get_handle("other").get_status().state is None
    service.close()


def test_in_a_folder_it_serves_its_wiki_read_only_also_to_older_clients(repository: Repository, tmp_path: Path) -> None:
    before = repository.get_head()

    async def work(client: Client) -> None:
        assert client.protocol_version == "2025-11-25"
        assert len((await client.list_tools()).tools) == len(READ_TOOLS)
        assert "heron" in get_document(await _call_tool(client, "read_page", path="Home"))["content"]
        refused = await _call_tool(client, "delete_page", path="Home")
        assert refused.is_error
        assert "read-only" in get_text(refused)
        assert "add `--write` to the command that starts it" in get_text(refused)
        assert "key" not in get_text(refused)
        assert get_document(await _call_tool(client, "recent_changes"))["entries"]

    run_over_stdio(tmp_path / "data", [], work, mode="legacy", directory=repository.path / "Beds")
    assert repository.get_head() == before


def test_it_stops_when_its_input_closes(repository: Repository, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(tmp_path / "data"), "mcp", "garden"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
    environment["WIKIHOLT_SEARCH_KEEP_WARM"] = "0"
    ended = run_forked(command, input="this is no message\n", text=True, timeout=280, check=False, env=environment)
    assert ended.returncode == 0
    assert "heron" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such"], 3, "error: "),
        (["garden", "--author", "Ada"], 2, "--author"),
        ([], 3, "mcp SLUG` with one of these: garden, other"),
    ],
)
def test_errors_go_to_stderr_only(
    repository: Repository,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    from wikiholt.interfaces.cli.main import main

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["--data", str(tmp_path / "data"), "mcp", *arguments]) == code
    output = capfd.readouterr()
    assert output.out == ""
    assert message in output.err


def test_without_the_extra_it_says_what_to_install(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from wikiholt.interfaces.cli import mcp_command
    from wikiholt.interfaces.cli.main import main

    monkeypatch.setattr(mcp_command.importlib.util, "find_spec", lambda _: None)
    assert main(["--data", str(tmp_path / "data"), "mcp", "garden"]) == 9
    assert "the extra mcp" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_client_of_2025_is_notified_of_a_page_that_changes(repository: Repository, tmp_path: Path) -> None:
    received: list[object] = []
    done = anyio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification | ResourceListChangedNotification):
            received.append(message)
            if len(received) == 2:
                done.set()

    async def work(client: Client) -> None:
        await client.subscribe_resource("wiki://page/Home")
        repository.commit({"Home.md": "# Home\n\nThe heron left.\n", "New.md": "# New\n"})
        with anyio.fail_after(280):
            await done.wait()

    run_over_stdio(tmp_path / "data", ["garden"], work, mode="legacy", message_handler=on_message)
    assert isinstance(received[0], ResourceUpdatedNotification)
    assert received[0].params.uri == "wiki://page/Home"
    assert isinstance(received[1], ResourceListChangedNotification)
