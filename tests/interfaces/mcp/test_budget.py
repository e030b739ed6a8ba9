"""Every answer keeps to max_tokens: its text and its structured content, on a wiki with huge pages and commits."""

from typing import Any

import pytest

from tests.interfaces.mcp.mcp_client import Agent, get_document, get_text
from tests.interfaces.mcp.test_tools import READ_TOOLS
from tests.support.served_application import ServedApplication
from wikiholt.interfaces.mcp.budget import estimate_answer_tokens, estimate_json_tokens
from wikiholt.interfaces.mcp.tool import MIN_TOKENS

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": "valve", "n": 20, "fresh": True}),
    ("search", {"query": "valve", "n": 20, "detail": "full"}),
    ("ask", {"query": "valve"}),
    ("fetch", {"id": "Big/Huge"}),
    ("read_page", {"paths": ["Big/Huge"]}),
    ("read_page", {"paths": ["Big/Huge", "Big/Page 1", "Big/Page 2", "Big/Page 3", "Nowhere"]}),
    ("list_pages", {}),
    ("list_tags", {"facets": ["tags"]}),
    ("diff_page", {"path": "Big/Huge"}),
    ("similar_pages", {"path": "Big/Page 1"}),
    ("get_links", {"path": "Big/Huge"}),
    ("recent_changes", {}),
    ("page_history", {"path": "Big/Huge"}),
    ("find_orphans", {}),
    ("list_attachments", {"path": "Big/Huge"}),
]


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
    assert {tool for tool, _ in CALLS} == set(READ_TOOLS)


@pytest.mark.parametrize("budget", [MIN_TOKENS, 1000])
@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_text_and_structured_content_keep_to_max_tokens(
    big: ServedApplication, reader: Agent, tool: str, arguments: dict[str, Any], budget: int
) -> None:
    answer = reader.call(tool, **arguments, max_tokens=budget)
    assert estimate_answer_tokens(get_text(answer)) <= budget
    assert estimate_json_tokens(get_document(answer)) <= budget


def test_a_cut_commit_says_how_much_is_missing_and_the_history_continues(big: ServedApplication, reader: Agent) -> None:
    (commit,) = reader.get("recent_changes", limit=1, offset=1, max_tokens=400)["entries"]
    assert commit["message"].startswith("Import")
    assert commit["message"].endswith("…")
    *named, rest = commit["pages_affected"]
    assert rest == f"… and {201 - len(named)} more"
    answers = list(reader.follow(reader.get("page_history", path="Big/Huge", limit=1)))
    assert len(answers) == 2
    assert answers[1]["history"][0]["message"].startswith("Import")
