"""Every answer keeps to max_tokens: its text and its structured content, on a wiki with huge pages and commits."""

from typing import Any

import pytest

from tests.interfaces.mcp.mcp_client import call_tool, get_document, get_text
from tests.support.served_application import ServedApplication
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.mcp.text_output import estimate_answer_tokens, estimate_json_tokens
from wikiholt.interfaces.mcp.tool_registry import get_tool_definitions, get_tools
from wikiholt.interfaces.mcp.tool_schemas import MIN_TOKENS

MAX_TOOL_TOKENS = 7250
ARGUMENTS: dict[str, dict[str, Any]] = {
    "search": {"query": "valve", "n": 20, "fresh": True},
    "ask": {"query": "valve"},
    "fetch": {"id": "Big/Huge"},
    "read_page": {"path": "Big/Huge"},
    "read_pages": {"paths": ["Big/Huge", "Big/Page 1", "Big/Page 2", "Big/Page 3", "Nowhere"]},
    "list_pages": {},
    "list_tags": {},
    "diff_page": {"path": "Big/Huge"},
    "similar_pages": {"path": "Big/Page 1"},
    "get_links": {"path": "Big/Huge"},
    "recent_changes": {},
    "page_history": {"path": "Big/Huge"},
    "find_orphans": {},
    "list_attachments": {"path": "Big/Huge"},
}


@pytest.fixture(scope="module")
def big(served: ServedApplication) -> ServedApplication:
    links = "\n".join(f"[[Big/Page {number}]] [[No such page {number}]]" for number in range(200))
    sections = "\n\n".join(f"## Part {number}\n\n{'valve and pump, ' * 40}" for number in range(120))
    tags = ", ".join(f"tag{number}" for number in range(200))
    huge = f"---\ntags: [{tags}]\n---\n# {'Long title ' * 100}\n\n{links}\n\n{sections}\n"
    pages = {f"Big/Page {number}.md": f"# Page {number}\n\n{'valve ' * 150}{number}\n" for number in range(200)}
    served.alpha.commit({"Big/Huge.md": huge, **pages}, message="Import\n\n" + "Everything from the old wiki. " * 2000)
    files = {f"Big/Huge/{'long name ' * 10}{number}.bin": b"x" for number in range(200)}
    served.alpha.commit({"Big/Huge.md": huge + "End.\n", **files}, message="One line " * 2000)
    served.application.service.get_handle("alpha").sync()
    return served


def test_every_tool_that_reads_is_tested_here() -> None:
    assert set(ARGUMENTS) == {name for name, tool in get_tools(aliases=False).items() if not tool.is_write}


@pytest.mark.parametrize("budget", [MIN_TOKENS, 1000])
@pytest.mark.parametrize("tool", ARGUMENTS)
def test_text_and_structured_content_keep_to_max_tokens(
    big: ServedApplication, url: str, tool: str, budget: int
) -> None:
    answer = call_tool(url, big.tokens["read"], tool, **ARGUMENTS[tool], max_tokens=budget)
    assert estimate_answer_tokens(get_text(answer)) <= budget
    assert estimate_json_tokens(get_document(answer)) <= budget


def test_a_cut_commit_says_how_much_is_missing_and_the_history_continues(big: ServedApplication, url: str) -> None:
    token = big.tokens["read"]
    changes = get_document(call_tool(url, token, "recent_changes", limit=1, offset=1, max_tokens=400))
    (commit,) = changes["entries"]
    assert commit["message"].startswith("Import")
    assert commit["message"].endswith("…")
    *named, rest = commit["pages_affected"]
    assert rest == f"… and {201 - len(named)} more"
    first = get_document(call_tool(url, token, "page_history", path="Big/Huge", limit=1))
    second = get_document(call_tool(url, token, "page_history", **first["continuation"]["arguments"]))
    assert second["history"][0]["message"].startswith("Import")
    assert second["continuation"] is None


def test_the_definitions_of_all_tools_are_small() -> None:
    tools = get_tools(aliases=False)
    definitions = [
        definition.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, definition in get_tool_definitions(aliases=False).items()
        if name in tools and Scope.WRITE.allows(tools[name].required_scope)
    ]
    assert len(definitions) == len(tools)
    assert estimate_json_tokens(definitions) <= MAX_TOOL_TOKENS
