"""The API as clients of otterwiki-api and otterwiki-semantic-search know it, where it differs from Wikiholt's own.

Requests are adapted before the call and responses after it, so that the routes are the same as in the service.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_OFFSET


@dataclass(frozen=True, slots=True)
class BridgeResponse:
    """A response of the API."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def with_json(self, document: object) -> "BridgeResponse":
        """A response of status 200 with another JSON document and the other headers of this one."""
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        kept = ("content-length", "content-type")
        headers = tuple(header for header in self.headers if header[0].lower() not in kept)
        added = (("content-type", "application/json"), ("content-length", str(len(body))))
        return BridgeResponse(_OK, (*headers, *added), body)


Call = Callable[[dict[str, Any]], BridgeResponse]

_PREFIX = "/api/v1/"
_OK, _NOT_FOUND, _TOO_LARGE, _INVALID = 200, 404, 413, 422
_MAX_COMMITS = 1000
_MAXIMA: Mapping[str, Mapping[str, int]] = {
    "semantic-search": {"n": MAX_HITS, "max_chunks_per_page": MAX_CHUNKS_PER_PAGE},
    "changelog": {"limit": _MAX_COMMITS},
    "history": {"limit": _MAX_COMMITS},
}
"""Numbers that the old plugins capped, with their maximum, by the first or last part of the path."""


def call_for_legacy_clients(environ: Mapping[str, Any], call: Call) -> BridgeResponse:
    """Call the API, and return what a client of the old plugins expects."""
    route = str(environ.get("PATH_INFO", "")).removeprefix(_PREFIX)
    method = environ.get("REQUEST_METHOD")
    if method != "GET":
        response = call(dict(environ))
        is_attachment = "/attachments" in route
        return replace(response, status=_INVALID) if response.status == _TOO_LARGE and is_attachment else response
    if route == "chroma-status":
        return _get_chroma_status(environ, call)
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if route == "search" and query.keys() == {"q"}:
        return _search_all(environ, query["q"], call)
    return _add_unwritten_pages(route, call({**environ, "QUERY_STRING": _adapt_query(route, environ, query)}))


def _adapt_query(route: str, environ: Mapping[str, Any], query: dict[str, str]) -> str:
    """Cap the numbers, and list all commits in the changelog; a query that needs no change stays as it is.

    A value that is not a number is dropped, so that the default applies.
    """
    maxima = _MAXIMA.get(route) or (_MAXIMA["history"] if route.endswith("/history") else {})
    changed = {name: _cap(query[name], maxima[name]) for name in maxima.keys() & query.keys()}
    if route == "changelog" and "all" not in query:
        changed["all"] = "true"
    if not changed:
        return str(environ.get("QUERY_STRING", ""))
    return urlencode({name: text for name, text in (query | changed).items() if name not in changed or changed[name]})


def _cap(text: str, maximum: int) -> str:
    try:
        return str(max(1, min(int(text), maximum)))
    except ValueError:
        return ""


def _search_all(environ: Mapping[str, Any], words: str, call: Call) -> BridgeResponse:
    """Every page that contains a word of the query, best first, as far as a search can be paged."""
    document: dict[str, Any] = {}
    for offset in range(0, MAX_OFFSET + 1, MAX_HITS):
        query = urlencode({"q": words, "mode": "keyword", "n": MAX_HITS, "offset": offset})
        headers = {name: text for name, text in environ.items() if name != "HTTP_IF_NONE_MATCH"}
        response = call({**headers, "QUERY_STRING": query})
        if response.status != _OK:
            return response
        page = json.loads(response.body)
        document = document or {**page, "results": []}
        document["results"] += page["results"]
        if len(page["results"]) < MAX_HITS:
            break
    document["total"] = len(document["results"])
    without_tag = replace(response, headers=tuple(pair for pair in response.headers if pair[0].lower() != "etag"))
    return without_tag.with_json(document)


def _add_unwritten_pages(route: str, response: BridgeResponse) -> BridgeResponse:
    """List links to pages that are not written yet with the other links."""
    is_links = route == "links" or route.startswith("links/")
    if response.status == _NOT_FOUND and route.startswith("links/") and b'"page-not-found"' in response.body:
        path = unquote(route.removeprefix("links/"))
        return response.with_json({"path": path, "links_to": [], "linked_from": [], "missing": []})
    if response.status != _OK or not (is_links or route.startswith("pages/")):
        return response
    try:
        document = json.loads(response.body)
    except ValueError:  # an attachment
        return response
    if not isinstance(document, dict) or not document.get("missing"):
        return response
    if "edges" in document:
        wanted = dict.fromkeys(edge["target"] for edge in document["missing"])
        document["nodes"] = [*document["nodes"], *(path for path in wanted if path not in document["nodes"])]
        document["edges"] = [*document["edges"], *document["missing"]]
    elif "links_to" in document:
        document["links_to"] = list(dict.fromkeys((*document["links_to"], *document["missing"])))
    return response.with_json(document)


def _get_chroma_status(environ: Mapping[str, Any], call: Call) -> BridgeResponse:
    """The status of the index in the fields of otterwiki-semantic-search; readers of the wiki may ask."""
    response = call({**environ, "PATH_INFO": f"{_PREFIX}status", "QUERY_STRING": ""})
    if response.status != _OK:
        return response
    status = json.loads(response.body)
    return response.with_json(
        {
            "status": "ok" if status["indexed_revision"] else "unavailable",
            "backend_type": "wikiholt",
            "collection": status["slug"],
            "document_count": status["chunks"],
        }
    )
