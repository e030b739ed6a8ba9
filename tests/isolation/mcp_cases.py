"""What agents ask of a farm over MCP, with every kind of key, host and prefix, about wikis that are not theirs."""

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
"""By the rules it is a reading address, though every message is posted."""
_TOOLS = ("search", "fetch", "read_page", "list_pages", "similar_pages", "get_links", "page_history", "recent_changes")


def make_mcp_request(writer: RequestBuilder, rng: Random) -> BuiltRequest:
    """One message of an agent, as it goes over the wire."""
    wikis = writer._farm.wikis
    me, other = rng.sample(range(len(wikis)), 2)
    who = rng.choice(("read", "read", *CALLERS))
    case = RequestCase(
        0,
        "read" if who in ("write", "admin") else who,
        rng.choice(HOST_CHOICES),
        rng.choice(PREFIX_CHOICES),
        me,
        other,
        0,
    )
    named, prefix = writer._build_prefix(case, rng, wikis[me], wikis[other])
    hosted, host = writer._build_host(case, rng, wikis[me], wikis[other])
    allowed = writer._get_allowed(case, _MCP, {*named, *hosted}, wikis[me], wikis[other])
    method, params = _make_message(_ValueGenerator(wikis[me], wikis[other], rng, known=False), rng)
    headers = {
        "Host": host,
        "X-Forwarded-For": f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
        **({"Mcp-Name": str(params["name"])} if "name" in params else {}),
        **writer._build_headers(case, wikis[me], wikis[other]),
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}})
    return BuiltRequest("POST", f"{prefix}/mcp", headers, body.encode(), allowed, caller=f"agent of {case.caller}")


_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "gate", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _make_message(words: _ValueGenerator, rng: Random) -> tuple[str, dict[str, object]]:
    page = words.make_page()
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
        "search": {"query": words.make_value("q"), "n": 50},
        "fetch": {"id": page},
        "list_pages": rng.choice(({}, {"prefix": words.make_value("prefix")}, {"tag": words.make_value("tag")})),
        "recent_changes": {},
    }
    name = rng.choice(_TOOLS)
    return "tools/call", {"name": name, "arguments": arguments.get(name, {"path": page})}
