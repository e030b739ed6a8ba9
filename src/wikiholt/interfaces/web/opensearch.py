"""The OpenSearch description and suggestions, with which browsers search a wiki from their address bar."""

from urllib.parse import quote, urljoin
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.search import Confidence
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.request_context import RequestContext
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, encode_json_list
from wikiholt.search.request import SearchRequest

_MAX_SUGGESTIONS = 8
_DESCRIPTION = """<?xml version="1.0" encoding="UTF-8"?>
<OpenSearchDescription xmlns="http://a9.com/-/spec/opensearch/1.1/">
  <ShortName>{name}</ShortName>
  <Description>Search {name}</Description>
  <InputEncoding>UTF-8</InputEncoding>
  <Url type="text/html" template="{base}?q={{searchTerms}}"/>
  <Url type="application/x-suggestions+json" template="{base}suggest?q={{searchTerms}}"/>
</OpenSearchDescription>
"""


def handle_description(request: Request) -> Response:
    """Return the OpenSearch description of the wiki of this URL. It names only what the URL names."""
    base = escape(str(request.base_url).rstrip("/") + "/", {'"': "&quot;"})
    name = escape(str(request.scope.get(SLUG_KEY) or "Wikiholt")[:16])  # the longest short name
    text = _DESCRIPTION.format(name=name, base=base)
    return Response(text, media_type="application/opensearchdescription+xml", headers={"Cache-Control": "no-cache"})


def handle_suggestions(request: Request) -> Response:
    """Return names and addresses of pages for a query, in the form that browsers read."""
    wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
    query = request.query_params.get("q", "")
    with wiki.use_handle() as handle:
        result = handle.search(SearchRequest(query, _MAX_SUGGESTIONS, rerank=False))
    # A word that is not typed to its end is little evidence, but the title of the page that starts with it helps.
    hits = [hit for hit in result.hits if hit.confidence is not Confidence.LOW or hit.name_matches]
    base = str(request.base_url).rstrip("/") + "/"
    document = [
        query,
        [hit.name for hit in hits],
        [hit.path for hit in hits],
        [urljoin(base, f"read?page={quote(hit.path)}&q={quote(query)}") for hit in hits],
    ]
    headers = {"Cache-Control": PRIVATE_CACHE_CONTROL}
    return Response(encode_json_list(document), 200, headers, media_type="application/x-suggestions+json")
