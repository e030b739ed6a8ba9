"""The API inside Otterwiki with the calls of otterwiki-api, otterwiki-semantic-search and otterwiki-mcp clients.

The calls are those of all tools of otterwiki-mcp 0.1.0, answered by a server with several workers.
"""

import contextlib
from base64 import b64decode, b64encode
from collections.abc import Iterator

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_client import (
    HELPER_PATH,
    PAGES,
    PRIVATE_SETTINGS,
    SHARED_KEY,
    ApiClient,
    create_registry_key,
    read_probe_events,
    run_git,
)
from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.mcp.tools import HTTP_TOOLS, READ_TOOLS

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def otter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    environ = {"OTTERWIKI_API_KEY": SHARED_KEY, "OTTERWIKI_API_AUTHOR_NAME": "Agent", **HELPER_PATH}
    place = tmp_path_factory.mktemp("api")
    preloaded = ("--preload",)  # workers are forked after plugin setup
    with OtterwikiServer.start(
        place,
        "gunicorn",
        PRIVATE_SETTINGS,
        None,
        environ,
        PAGES,
        2,
        preloaded,
        "tests.interfaces.otterwiki.otter_probe",
    ) as server:
        server.wait_until_found("boats", "sea")
        yield server


@pytest.fixture
def ask(otter: OtterwikiServer) -> ApiClient:
    return ApiClient(otter, SHARED_KEY)


def get_revision(ask: ApiClient, path: str) -> str:
    return str(ask.get_json(f"pages/{path}")["revision"])


def test_page_lists_use_display_names_and_support_every_filter(ask: ApiClient) -> None:
    page = next(page for page in ask.get_json("pages")["pages"] if page["path"] == "Actors/Iran")
    assert page.items() >= {"name": "Iran", "category": "actor", "tags": ["gulf", "oil"], "content_length": 7}.items()
    for narrowed in ({"prefix": "Actors/"}, {"category": "Actor"}, {"tag": "Gulf", "updated_since": "2020-01-01"}):
        document = ask.get_json("pages", **narrowed)
        assert ([page["path"] for page in document["pages"]], document["total"]) == (["Actors/Iran"], 1)
    wrong = ask("GET", "pages?updated_since=yesterdayish")
    assert wrong.status_code == 422
    assert "updated_since" in wrong.json()["error"]


def test_a_page_is_read_in_any_case_with_its_links_and_commit(ask: ApiClient) -> None:
    page = ask.get_json("pages/ACTORS/iran")
    assert (page["name"], page["path"], page["linked_from"]) == ("Iran", "Actors/Iran", ["Home"])
    assert page["content"] == PAGES["actors/iran.md"]
    assert page["frontmatter"]["tags"] == ["gulf", "oil"]
    assert page["last_commit"].keys() >= {"revision", "author", "date", "message"}
    assert ask.get_json("pages/Sea")["name"] == "Sea"
    missing = ask("GET", "pages/Nowhere")
    assert (missing.status_code, bool(missing.json()["error"])) == (404, True)


def test_a_rename_moves_sub_pages_and_attachments(otter: OtterwikiServer, ask: ApiClient) -> None:
    ask("PUT", "pages/Boat", {"content": "![s](/Boat/Sail.png) and [[Boat/Mast]]\n"})
    ask("PUT", "pages/Boat/Mast", {"content": "Of the [[Boat]].\n"})
    ask("POST", "pages/Boat/attachments", {"filename": "Sail.png", "content": ""})
    read_probe_events(otter)
    moved = ask("POST", "pages/Boat/rename", {"new_path": "Ships/Yacht"})
    assert moved.json()["moved"] == [
        {"old_path": "Boat/Sail.png", "new_path": "Ships/Yacht/Sail.png"},
        {"old_path": "Boat/Mast", "new_path": "Ships/Yacht/Mast"},
    ]
    assert ask.get_json("pages/Ships/Yacht")["content"] == "![s](/Ships/Yacht/Sail.png) and [[Ships/Yacht/Mast]]\n"
    assert ask.get_json("pages/Ships/Yacht/Mast")["content"] == "Of the [[Ships/Yacht]].\n"
    changed, *renamed = read_probe_events(otter)
    assert set(changed["files"]) == {"ships/yacht.md", "ships/yacht/mast.md", "ships/yacht/Sail.png"}
    assert [(event["old"], event["new"]) for event in renamed] == [
        ("Boat", "Ships/Yacht"),
        ("Boat/Mast", "Ships/Yacht/Mast"),
    ]


def test_links_are_written_with_full_paths(ask: ApiClient) -> None:
    ask("PUT", "pages/Spring", {"content": "# Spring\n"})
    ask("PUT", "pages/Walks", {"content": "To the [[Spring]], or [here](/Spring).\n"})
    ask("POST", "pages/Spring/rename", {"new_path": "Water/Spring"})
    assert ask.get_json("pages/Walks")["content"] == "To the [[Water/Spring]], or [here](/Water/Spring).\n"


def test_files_are_attached_where_the_wiki_shows_them(otter: OtterwikiServer, ask: ApiClient) -> None:
    data = b"%PDF-1.4\n\x00\xff"
    body = {"filename": "my report.pdf", "content": b64encode(data).decode(), "commit_message": "[mcp] Report"}
    response = ask("POST", "pages/Sea/attachments", body)
    assert response.status_code == 201
    assert response.json().items() >= {"filename": "my report.pdf", "path": "Sea", "size": len(data)}.items()
    assert (otter.repository / "sea" / "my report.pdf").read_bytes() == data
    listed = ask.get_json("pages/sea/attachments")
    assert (listed["path"], listed["total"], listed["attachments"][0]["mime_type"]) == ("Sea", 1, "application/pdf")
    assert b64decode(ask.get_json("pages/Sea/attachments/my%20report.pdf")["content"]) == data
    with contextlib.closing(otter.login()) as session:
        assert session.get("/Sea/a/my report.pdf").content == data
    gone = ask("DELETE", "pages/Sea/attachments/my%20report.pdf", {"commit_message": "[mcp] Gone"})
    assert gone.json().items() >= {"deleted": True, "filename": "my report.pdf"}.items()
    assert ask("GET", "pages/Sea/attachments/my%20report.pdf").status_code == 404
    assert ask("GET", "pages/Absent/attachments").status_code == 404


def test_a_written_page_is_stored_as_otterwiki_does_and_shown_at_once(otter: OtterwikiServer, ask: ApiClient) -> None:
    response = ask("PUT", "pages/Fresh Start//Über_Uns", {"content": "# Über uns\n\nWe are otters.\n"})
    assert response.json()["path"] == "Fresh Start/Über_Uns"
    assert (otter.repository / "fresh start" / "über_uns.md").read_text() == "# Über uns\n\nWe are otters.\n"
    with contextlib.closing(otter.login("writer@example.org")) as session:
        assert "We are otters." in session.get("/Fresh Start/Über_Uns").text
        otter.save_page("Fresh Start/Über_Uns", "# Über uns\n\nWe are badgers.\n", client=session)
    assert ask.get_json("pages/fresh start/über_uns")["content"].strip().endswith("We are badgers.")
    assert run_git(otter, "status", "--porcelain") == ""


def test_other_plugins_are_notified_of_a_commit_like_of_a_save(otter: OtterwikiServer, ask: ApiClient) -> None:
    agent = ["Agent", "api@otterwiki.local"]
    read_probe_events(otter)
    ask("PUT", "pages/Heard Of", {"content": "See [[Sea]].\n", "commit_message": "Hear"})
    assert read_probe_events(otter) == [
        {"hook": "repository_changed", "files": ["heard of.md"]},
        {"hook": "page_saved", "path": "Heard Of", "content": "See [[Sea]].\n", "author": agent, "message": "Hear"},
    ]
    ask("PUT", "pages/Heard Of", {"content": "See [[Sea]].\n", "revision": get_revision(ask, "Heard Of")})
    assert read_probe_events(otter) == [], "a change without effect sends no event"
    ask("POST", "pages/Heard Of/rename", {"new_path": "Known Of"})
    events = read_probe_events(otter)
    assert [event["hook"] for event in events] == ["repository_changed", "page_renamed"]
    assert (events[1]["old"], events[1]["new"]) == ("Heard Of", "Known Of")
    ask("POST", "pages/Known Of/attachments", {"filename": "a.txt", "content": ""})
    assert read_probe_events(otter) == [{"hook": "repository_changed", "files": ["known of/a.txt"]}]
    ask("DELETE", "pages/Known Of")
    assert [event["hook"] for event in read_probe_events(otter)] == ["repository_changed", "page_deleted"]


def test_a_plugin_that_raises_does_not_change_the_response(otter: OtterwikiServer, ask: ApiClient) -> None:
    response = ask("PUT", "pages/Raise Me", {"content": "x"})
    assert response.status_code == 201
    assert response.json()["revision"] == otter.get_head()
    assert "an error in another plugin" in otter.read_log()


def test_reindexing_answers_as_otterwiki_semantic_search_does(ask: ApiClient) -> None:
    response = ask("POST", "reindex")
    assert response.status_code in (202, 409)
    assert response.headers.get("location", "/api/v1/reindex/status") == "/api/v1/reindex/status"
    assert ask.get_json("reindex/status")["status"] in ("in_progress", "complete")


def test_a_registry_key_has_its_scope_and_commits_with_its_label(otter: OtterwikiServer) -> None:
    reader, writer = (ApiClient(otter, create_registry_key(otter, scope)) for scope in (Scope.READ, Scope.WRITE))
    assert reader.get_json("search", q="boats")["results"]
    assert reader("PUT", "pages/By Key", {"content": "x"}).status_code == 403
    assert writer("PUT", "pages/By Key", {"content": "x"}).status_code == 201
    assert run_git(otter, "log", "-1", "--format=%an").startswith("write of ")
    assert writer("POST", "reindex").status_code == 403


def test_agents_have_their_own_address_below_the_api(otter: OtterwikiServer) -> None:
    def sent(key: str | None, method: str, **params: object) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        version = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        return ApiClient(otter, key)("POST", "mcp", body, **version)

    def wrote(key: str) -> dict[str, object]:
        arguments = {"path": "Agents", "content": "By an agent.\n", "commit_message": "[mcp] Agents"}
        result: dict[str, object] = sent(key, "tools/call", name="write_page", arguments=arguments).json()["result"]
        return result

    reader, writer = create_registry_key(otter, Scope.READ), create_registry_key(otter, Scope.WRITE)
    assert sent(None, "tools/list").status_code == 401
    assert len(sent(reader, "tools/list").json()["result"]["tools"]) == len((*READ_TOOLS, *HTTP_TOOLS))
    read = sent(reader, "tools/call", name="read_page", arguments={"path": "Actors/Iran"}).json()["result"]
    assert read["structuredContent"]["content"] == PAGES["actors/iran.md"]
    assert wrote(reader)["isError"] is True
    assert wrote(writer)["isError"] is False
    assert run_git(otter, "log", "-1", "--format=%s") == "[mcp] Agents"
