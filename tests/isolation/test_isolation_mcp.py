"""Isolation over MCP: every tool, resource and completion, with every wrong key, host and slug."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import pytest

from tests.interfaces.mcp.mcp_client import make_message
from tests.support.served_application import BETA, ServedApplication, serve_application
from tests.support.tiers import choose
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S
from wikiholt.interfaces.mcp.tools import SEVERAL_WIKIS_TOOLS, get_tools

CANARY, SECRET = "betacanary", "hiddenbeta"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "search": {"query": CANARY, "n": 100},
    "ask": {"query": CANARY},
    "search_past": {"query": CANARY, "at": "HEAD", "n": 100},
    "fetch": {"id": "Home"},
    "read_page": {"paths": ["Home", f"{SECRET}/Page"]},
    "list_pages": {},
    "list_tags": {},
    "diff_page": {"path": "Home"},
    "similar_pages": {"path": "Home"},
    "get_links": {"path": "Home"},
    "recent_changes": {},
    "page_history": {"path": "Home"},
    "find_orphans": {},
    "list_attachments": {"path": "Home"},
    "write_page": {"path": "Written", "content": "x"},
    "edit_page": {"path": "Home", "old_string": "Beta", "new_string": "x"},
    "append_to_page": {"path": "Home", "text": "x"},
    "rename_page": {"path": "Home", "new_path": "Moved"},
    "delete_page": {"path": "Home"},
}
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in ARGUMENTS.items()),
    ("tools/call", {"name": "read_page", "arguments": {"path": f"{SECRET}/Page"}}),
    ("tools/call", {"name": "search", "arguments": {"query": CANARY, "wikis": ["beta"], "detail": "full", "n": 100}}),
    ("tools/call", {"name": "read_page", "arguments": {"path": "../beta/Home"}}),
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/read", {"uri": f"wiki://page/{SECRET}/Page"}),
    ("resources/read", {"uri": "wiki://page/..%2f..%2fbeta/Home"}),
    ("prompts/list", {}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "wiki://page/{+path}{?revision}"},
            "argument": {"name": "path", "value": ""},
        },
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "find_contradictions"}, "argument": {"name": "topic", "value": ""}},
    ),
    ("server/discover", {}),
]
_STEP = choose(1, 4)
"""Of the combinations of message, key and target, the short form sends every fourth: each key to each target, and each
message with a quarter of these pairs."""


@dataclass
class McpIsolationFixture:
    """Two wikis, of which the tested keys open only one, and the secrets of the other."""

    application: ServedApplication
    base: str
    secrets: list[str]


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpIsolationFixture]:
    with serve_application(tmp_path_factory.mktemp("isolation"), {"serve.domain": "farm.example"}) as found:
        text = f"---\ncategory: {SECRET}\ntags: [{SECRET}]\n---\n# {SECRET}\n\n{CANARY} [[Home]]\n"
        found.beta.commit({f"{SECRET}/Page.md": text})
        found.application.service.configure("beta", {"hosts": "beta.example"})
        found.application.service.get_handle("beta").sync()
        beta = found.application.service.registry.get("beta")
        secrets = [CANARY, SECRET, beta.id, found.beta.get_head(), str(found.beta.path), str(found.alpha.path)]
        secrets.append(found.tokens["other"])
        with run_server(found.app) as base:
            yield McpIsolationFixture(found, base, secrets)


def test_every_tool_is_tested_here() -> None:
    assert set(ARGUMENTS) == {*get_tools(http=True), *(tool.name for tool in SEVERAL_WIKIS_TOOLS)}


def test_a_valid_key_reads_the_canary_words(mcp: McpIsolationFixture) -> None:
    responses = [
        _send_message(mcp, method, params, "other", "/mcp", {}).text
        for method, params in MESSAGES
        if not _is_write(params)
    ]
    assert sum(CANARY in text or SECRET in text for text in responses) >= 10


def _is_write(params: dict[str, Any]) -> bool:
    return params.get("name") in ("write_page", "edit_page", "append_to_page", "rename_page", "delete_page")


def _send_message(
    mcp: McpIsolationFixture, method: str, params: dict[str, Any], key: str | None, path: str, named: dict[str, str]
) -> httpx.Response:
    body, headers = make_message(method, params)
    if key is not None:
        headers["Authorization"] = f"Bearer {mcp.application.tokens.get(key, key)}"
    return httpx.post(f"{mcp.base}{path}", content=body, headers={**headers, **named}, timeout=TIMEOUT_S)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_a_wrong_key_host_or_slug_reveals_nothing_of_another_wiki(mcp: McpIsolationFixture, version: str) -> None:
    head = mcp.application.beta.get_head()
    keys = [None, "read", "write", "wh_{}_" + "a" * 40, "a.b.{}"]
    targets: list[tuple[str, dict[str, str]]] = [
        ("/mcp", {}),
        ("/w/alpha/mcp", {}),
        ("/w/beta/mcp", {}),
        ("/w/no-such/mcp", {}),
        ("/w/BETA/mcp", {}),
        ("/mcp", {"Host": "beta.farm.example"}),
        ("/mcp", {"Host": "beta.example"}),
        ("/w/alpha/mcp", {"Host": "beta.example"}),
        ("/mcp", {"Host": "127.0.0.1", "X-Forwarded-Host": "beta.example"}),
    ]
    before = mcp.application.alpha.get_head()
    requests = list(enumerate(product(MESSAGES, keys, targets)))[::_STEP]
    with httpx.Client(base_url=mcp.base, timeout=TIMEOUT_S) as client:
        for number, ((method, params), key, (path, named)) in requests:
            if _is_write(params) and key == "write":
                continue  # permitted writes to the own wiki are tested elsewhere
            body, headers = make_message(method, params, version)
            if version == "2025-11-25":
                body = json.dumps({**json.loads(body), "params": params})
            if key is not None:
                key_id = f"{number:012}".translate(str.maketrans("0123456789", "abcdefghij"))
                unknown = key.format(key_id)  # another one each time: repeated wrong keys are rate limited
                headers["Authorization"] = f"Bearer {mcp.application.tokens.get(key, unknown)}"
            headers["X-Forwarded-For"] = f"10.0.{number // 250}.{number % 250}"
            answer = client.post(path, content=body, headers={**headers, **named})
            request_text = f"{body}{path}{named}"
            response_text = f"{answer.headers}{answer.text}"
            leaked = [word for word in mcp.secrets if word in response_text and word not in request_text]
            assert not leaked, (method, params, key, path, named, response_text[:500])
            granted = key in ("read", "write") and "eta" not in f"{path}{named}" and "no-such" not in path
            granted = granted or (key in ("read", "write") and "X-Forwarded-Host" in named)
            assert granted or answer.status_code in (401, 403, 422), (key, path, named, answer.status_code)
            assert answer.status_code < 500
    assert mcp.application.beta.get_head() == head
    assert mcp.application.alpha.get_head() == before
    assert BETA["Home.md"].encode() == (mcp.application.beta.path / "Home.md").read_bytes()


def test_the_operator_key_needs_the_slug_of_a_wiki(mcp: McpIsolationFixture) -> None:
    page = {"name": "read_page", "arguments": {"path": "Home"}}
    without_slug = _send_message(mcp, "tools/call", page, "operator", "/mcp", {})
    assert "Unknown tool" in without_slug.text
    assert CANARY not in without_slug.text
    assert CANARY in _send_message(mcp, "tools/call", page, "operator", "/w/beta/mcp", {}).text
    assert CANARY not in _send_message(mcp, "tools/call", page, "operator", "/w/alpha/mcp", {}).text


def test_several_wikis_are_searched_only_with_the_key_of_each(mcp: McpIsolationFixture) -> None:
    tokens = mcp.application.tokens
    search = {"name": "search", "arguments": {"query": CANARY, "n": 100}}
    both = f"{tokens['read']},{tokens['other']}"
    for keys in (both, f"{tokens['other']}, {tokens['read']}", tokens["operator"]):
        answer = _send_message(mcp, "tools/call", search, keys, "/mcp", {})
        results = answer.json()["result"]["structuredContent"]["results"]
        assert {"alpha", "beta"} == {hit["wiki"] for hit in results}
        assert CANARY in answer.text
    only_alpha = {"name": "search", "arguments": {"query": CANARY, "n": 100, "wikis": ["alpha"]}}
    assert SECRET not in _send_message(mcp, "tools/call", only_alpha, both, "/mcp", {}).text
    for keys, status in ((f"{tokens['read']},wh_{'a' * 12}_{'a' * 40}", 401), (f"{tokens['read']},", 401)):
        refused = _send_message(mcp, "tools/call", search, keys, "/mcp", {})
        assert (refused.status_code, CANARY in refused.text.replace(json.dumps(search), "")) == (status, False)
    for path in ("/w/alpha/mcp", "/w/beta/mcp"):
        assert _send_message(mcp, "tools/call", search, both, path, {}).status_code == 401


def test_a_list_of_keys_offers_no_tool_of_one_wiki(mcp: McpIsolationFixture) -> None:
    both = f"{mcp.application.tokens['read']},{mcp.application.tokens['other']}"
    listed = _send_message(mcp, "tools/list", {}, both, "/mcp", {}).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["search"]
    for method, params in MESSAGES:
        # The caller may read what the descriptions say about both.
        if params.get("name") != "search" and method not in ("tools/list", "server/discover"):
            answer = _send_message(mcp, method, params, both, "/mcp", {})
            assert not [word for word in mcp.secrets if word in answer.text], (method, params, answer.text[:300])
