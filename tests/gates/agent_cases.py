"""What agents ask of a farm over MCP, with every kind of key, host and prefix, about wikis that are not theirs."""

import json
from random import Random

from http_cases import HOSTS, PREFIXES, WHO, Case, Route, Sent, Writer, _Words

_VERSION = "2026-07-28"
_MCP = Route("GET", "/mcp")
"""By the rules it is a reading address, though every message is posted."""
_TOOLS = ("search", "fetch", "read_page", "list_pages", "similar_pages", "get_links", "page_history", "recent_changes")


def agent_case(writer: Writer, rng: Random) -> Sent:
    """One message of an agent, as it goes over the wire."""
    wikis = writer._farm.wikis
    me, other = rng.sample(range(len(wikis)), 2)
    who = rng.choice(("read", "read", *WHO))
    case = Case(0, "read" if who in ("write", "admin") else who, rng.choice(HOSTS), rng.choice(PREFIXES), me, other, 0)
    named, prefix = writer._prefix(case, rng, wikis[me], wikis[other])
    hosted, host = writer._host(case, rng, wikis[me], wikis[other])
    allowed = writer._allowed(case, _MCP, {*named, *hosted}, wikis[me], wikis[other])
    method, params = _message(_Words(wikis[me], wikis[other], rng, known=False), rng)
    headers = {
        "Host": host,
        "X-Forwarded-For": f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
        **({"Mcp-Name": str(params["name"])} if "name" in params else {}),
        **writer._credentials(case, wikis[me], wikis[other]),
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}})
    return Sent("POST", f"{prefix}/mcp", headers, body.encode(), allowed, who=f"agent of {case.who}")


_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "gate", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _message(words: _Words, rng: Random) -> tuple[str, dict[str, object]]:
    page = words.page()
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
        "search": {"query": words.value("q"), "n": 50},
        "fetch": {"id": page},
        "list_pages": rng.choice(({}, {"prefix": words.value("prefix")}, {"tag": words.value("tag")})),
        "recent_changes": {},
    }
    name = rng.choice(_TOOLS)
    return "tools/call", {"name": name, "arguments": arguments.get(name, {"path": page})}
