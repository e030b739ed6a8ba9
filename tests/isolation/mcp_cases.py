"""MCP requests with every kind of key, host and prefix, about wikis that the caller may not read."""

import json
from random import Random

from tests.isolation.http_cases import (
    CALLERS,
    HOST_CHOICES,
    PREFIX_CHOICES,
    ApiRoute,
    BuiltRequest,
    RequestBuilder,
    RequestCase,
    _ValueGenerator,
)

_VERSION = "2026-07-28"
_MCP = ApiRoute("GET", "/mcp")
"""The access rules treat it as a read route, although every message is a POST request."""
_TOOLS = (
    *("search", "ask", "fetch", "read_page", "list_pages", "list_tags", "similar_pages", "get_links"),
    *("page_history", "diff_page", "recent_changes"),
)


def make_mcp_request(builder: RequestBuilder, rng: Random, *, is_permitted: bool = False) -> BuiltRequest:
    """One MCP message as an HTTP request; with `is_permitted`, by a caller who may read the wiki."""
    wikis = builder._env.wikis
    me, other = rng.sample(range(len(wikis)), 2)
    caller = "read" if is_permitted else rng.choice(("read", "read", *CALLERS))
    case = RequestCase(
        0,
        "read" if caller in ("write", "admin") else caller,
        "own" if is_permitted else rng.choice(HOST_CHOICES),
        "none" if is_permitted else rng.choice(PREFIX_CHOICES),
        me,
        other,
        0,
    )
    named, prefix = builder._build_prefix(case, rng, wikis[me], wikis[other])
    hosted, host = builder._build_host(case, rng, wikis[me], wikis[other])
    allowed = builder._get_allowed(case, _MCP, {*named, *hosted}, wikis[me], wikis[other])
    method, params = _make_message(_ValueGenerator(wikis[me], wikis[other], rng, known=False), rng)
    headers = {
        "Host": host,
        "X-Forwarded-For": f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
        **({"Mcp-Name": str(params["name"])} if "name" in params else {}),
        **builder._build_headers(case, wikis[me], wikis[other]),
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}})
    return BuiltRequest("POST", f"{prefix}/mcp", headers, body.encode(), allowed, caller=f"agent of {case.caller}")


_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "gate", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _make_message(values: _ValueGenerator, rng: Random) -> tuple[str, dict[str, object]]:
    page = values.make_page()
    if rng.random() < 0.2:
        return rng.choice(
            [
                ("resources/list", {}),
                ("resources/read", {"uri": f"wiki://page/{page}"}),
                ("tools/list", {}),
                ("prompts/list", {}),
            ]
        )
    arguments: dict[str, dict[str, object]] = {
        "search": {"query": values.make_value("q"), "n": 50},
        "fetch": {"id": page},
        "list_pages": rng.choice(({}, {"prefix": values.make_value("prefix")}, {"tag": values.make_value("tag")})),
        "read_page": {"paths": [page]},
        "list_tags": rng.choice(({}, {"prefix": values.make_value("prefix")})),
        "recent_changes": rng.choice(({}, {"prefix": values.make_value("prefix")})),
    }
    name = rng.choice(_TOOLS)
    return "tools/call", {"name": name, "arguments": arguments.get(name, {"path": page})}
