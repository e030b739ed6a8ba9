"""Attachments: a tool lists them, resources read them, and otterwiki-mcp's names write them."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.interfaces.mcp.mcp_client import Agent, get_document, get_text, run_over_http
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from wikiholt.interfaces.mcp import resources
from wikiholt.interfaces.mcp.tools import get_tools

PNG = b"\x89PNG\r\n\x1a\n\x00"
FILES: dict[str, str | bytes | None] = {
    "Home/a b?.png": PNG,
    "Home/page.html": "<script>alert(1)</script>",
    "Home/drawing.svg": b"<svg>\xff</svg>",
    "Home/notes.csv": "a,b\n",
}
OTTERWIKI_MCP_TOOLS = {
    *("read_note", "write_note", "edit_note", "list_notes", "search_notes", "semantic_search", "get_links"),
    *("get_recent_changes", "get_history", "rename_note", "delete_note", "find_orphaned_notes"),
    *("list_attachments", "download_attachment", "upload_attachment", "delete_attachment"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("attachments"), {"mcp.aliases": True}) as served:
        served.alpha.commit(FILES)
        yield served


@pytest.fixture(scope="module")
def base(served: ServedApplication) -> Iterator[str]:
    with run_server(served.app) as address:
        yield address


def read(agent: Agent, uri: str) -> Any:
    async def work(client: Client) -> Any:
        return (await client.read_resource(uri)).contents[0]

    return run_over_http(agent.url, agent.token, work)


def test_listed_attachments_are_read_as_resources_of_safe_types(reader: Agent) -> None:
    document = reader.get("list_attachments", page="Home")
    found = {file["filename"]: read(reader, file["uri"]) for file in document["attachments"]}
    assert document["total"] == len(found) == len(FILES)
    assert b64decode(found["a b?.png"].blob) == PNG
    assert "alert" in found["page.html"].text
    assert {name: content.mime_type for name, content in found.items()} == {
        "a b?.png": "image/png",
        "page.html": "text/plain",
        "drawing.svg": "application/octet-stream",
        "notes.csv": "text/plain",
    }


@pytest.mark.parametrize("path", ["Home/none.png", "x", "Home/..%2FHome.md"])
def test_what_is_no_attachment_is_refused(reader: Agent, path: str) -> None:
    with pytest.raises(MCPError):
        read(reader, f"wiki://attachment/{path}")


def test_a_large_attachment_is_refused(reader: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_MAX_ATTACHMENT_BYTES", 3)
    with pytest.raises(MCPError, match="limit"):
        read(reader, "wiki://attachment/Home/notes.csv")


def test_all_names_of_otterwiki_mcp_work(served: ServedApplication, reader: Agent, writer: Agent) -> None:
    assert set(get_tools(aliases=True)) >= OTTERWIKI_MCP_TOOLS
    content, file = b64encode(b"hello").decode(), {"path": "Home", "filename": "hello.txt"}
    assert writer.get("upload_attachment", **file, content_b64=content)["created"]
    assert writer.get("download_attachment", **file)["content"] == content
    assert writer.get("delete_attachment", **file, commit_message="Not needed")["deleted"]
    assert served.alpha.run_git("log", "-1", "--format=%an %s") == b"alpha write Not needed"
    assert "attachment-not-found" in writer.fail("download_attachment", **file)
    writer.fail("upload_attachment", **file, content="not base64!")
    reader.fail("upload_attachment", **file, content=content)


def test_a_file_that_exceeds_the_budget_is_named_as_a_resource(served: ServedApplication, reader: Agent) -> None:
    served.alpha.commit({"Coffee/large.bin": b"x" * 50_000})
    text = reader.fail("download_attachment", path="Coffee", filename="large.bin", max_tokens=300)
    assert "wiki://attachment/Coffee/large.bin" in text


def test_a_rename_keeps_to_its_budget(served: ServedApplication, writer: Agent) -> None:
    served.alpha.commit({"Hub.md": "# Hub\n", **{f"Hub/Sub {n}.md": f"# {n}\n" for n in range(300)}})
    result = writer.call("rename_page", path="Hub", new_path="Centre", max_tokens=400)
    document = get_document(result)
    assert len(document["moved"]) + document["left_out"] == 300
    assert document["left_out"] > 200
    assert len(get_text(result)) < 2500
    served.application.service.get_handle("alpha").sync()  # a sync for an earlier write may have indexed the old path
    similar = served.make_client("read").get("/api/v1/similar", params={"path": "Hub"})
    assert similar.status_code == 404
