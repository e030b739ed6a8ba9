"""The API as clients of otterwiki-api and otterwiki-semantic-search know it, where it differs from Wikiholt's own.

Requests are adapted before the call and responses after it, so that the routes are the same as in the service.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from flask import Response

from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_OFFSET

Call = Callable[[dict[str, Any]], Response]

_PREFIX = "/api/v1/"
_OK, _NOT_FOUND, _TOO_LARGE, _INVALID, _UNAVAILABLE = 200, 404, 413, 422, 503
_SEARCHES = ("search", "semantic-search")
_MAX_COMMITS = 1000
_MAXIMA: Mapping[str, Mapping[str, int]] = {
    "semantic-search": {"n": MAX_HITS, "max_chunks_per_page": MAX_CHUNKS_PER_PAGE},
    "changelog": {"limit": _MAX_COMMITS},
    "history": {"limit": _MAX_COMMITS},
}
"""Numbers that the old plugins capped, with their maximum, by the first or last part of the path."""


def call_for_legacy_clients(environ: Mapping[str, Any], call: Call) -> Response:
    """Call the API, and return what a client of the old plugins expects."""
    route = str(environ.get("PATH_INFO", "")).removeprefix(_PREFIX)
    method = environ.get("REQUEST_METHOD")
    if method != "GET":
        response = call(dict(environ))
        if response.status_code == _TOO_LARGE and "/attachments" in route:
            response.status_code = _INVALID
        return response
    if route == "chroma-status":
        return _get_chroma_status(environ, call)
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if route == "search" and query.keys() == {"q"}:
        response = _search_all(environ, query["q"], call)
    else:
        response = call({**environ, "QUERY_STRING": _adapt_query(route, environ, query)})
    if route in _SEARCHES and response.status_code == _UNAVAILABLE and _has_no_pages(environ, call):
        response.headers.pop("Retry-After", None)
        return _replace_json(response, {"query": query.get("q", ""), "results": [], "total": 0})
    return _add_unwritten_pages(route, response)


def _adapt_query(route: str, environ: Mapping[str, Any], query: dict[str, str]) -> str:
    """Cap the numbers, list all commits in the changelog, and collapse no search. A query that needs no change stays.

    A value that is not a number is dropped, so that the default applies.
    """
    maxima = _MAXIMA.get(route) or (_MAXIMA["history"] if route.endswith("/history") else {})
    changed = {name: _cap(query[name], maxima[name]) for name in maxima.keys() & query.keys()}
    if route == "changelog" and "all" not in query:
        changed["all"] = "true"
    if route == "search" and "collapse" not in query:
        changed["collapse"] = "false"
    if not changed:
        return str(environ.get("QUERY_STRING", ""))
    return urlencode({name: text for name, text in (query | changed).items() if name not in changed or changed[name]})


def _cap(text: str, maximum: int) -> str:
    try:
        return str(max(1, min(int(text), maximum)))
    except ValueError:
        return ""


def _replace_json(response: Response, document: object) -> Response:
    """The response with status 200 and another JSON document."""
    response.set_data(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    response.status_code, response.content_type = _OK, "application/json"
    return response


def _search_all(environ: Mapping[str, Any], words: str, call: Call) -> Response:
    """Every page that contains a word of the query, best first, as far as a search can be paged."""
    document: dict[str, Any] = {}
    for offset in range(0, MAX_OFFSET + 1, MAX_HITS):
        query = urlencode({"q": words, "mode": "keyword", "n": MAX_HITS, "offset": offset, "collapse": "false"})
        headers = {name: text for name, text in environ.items() if name != "HTTP_IF_NONE_MATCH"}
        response = call({**headers, "QUERY_STRING": query})
        if response.status_code != _OK:
            return response
        page = json.loads(response.data)
        document = document or {**page, "results": []}
        document["results"] += page["results"]
        if len(page["results"]) < MAX_HITS:
            break
    document["total"] = len(document["results"])
    response.headers.remove("ETag")
    return _replace_json(response, document)


def _has_no_pages(environ: Mapping[str, Any], call: Call) -> bool:
    """Whether the wiki has no pages, so that a search that cannot run finds nothing."""
    response = call({**environ, "PATH_INFO": f"{_PREFIX}pages", "QUERY_STRING": "limit=1"})
    return response.status_code == _OK and json.loads(response.data)["total"] == 0


def _add_unwritten_pages(route: str, response: Response) -> Response:
    """List links to pages that are not written yet with the other links."""
    is_links = route == "links" or route.startswith("links/")
    if response.status_code == _NOT_FOUND and route.startswith("links/") and b'"page-not-found"' in response.data:
        path = unquote(route.removeprefix("links/"))
        return _replace_json(response, {"path": path, "links_to": [], "linked_from": [], "missing": []})
    if response.status_code != _OK or not (is_links or route.startswith("pages/")):
        return response
    try:
        document = json.loads(response.data)
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
    return _replace_json(response, document)


def _get_chroma_status(environ: Mapping[str, Any], call: Call) -> Response:
    """The status of the index in the fields of otterwiki-semantic-search; readers of the wiki may ask."""
    response = call({**environ, "PATH_INFO": f"{_PREFIX}status", "QUERY_STRING": ""})
    if response.status_code != _OK:
        return response
    status = json.loads(response.data)
    document = {
        "status": "ok" if status["indexed_revision"] else "unavailable",
        "backend_type": "wikiholt",
        "collection": status["slug"],
        "document_count": status["chunks"],
    }
    return _replace_json(response, document)
