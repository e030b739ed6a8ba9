"""Search without JavaScript, and from the address bar of a browser (OpenSearch)."""

from collections.abc import Iterator
from html import escape
from urllib.parse import quote, urlencode, urljoin
from xml.sax.saxutils import escape as escape_xml

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.api.documents.search_documents import render_snippet
from wikiholt.domain.search import Confidence, Hit, SearchMode, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, encode_json
from wikiholt.interfaces.web.page_frame import PageContext, render_page, render_view_error
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import format_as_typed

_MAX_HITS = 20
_MAX_WEAK_CARDS = 3
_MAGNIFIER = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="10.5" cy="10.5" r="6.5"/>'
    '<path d="M15.5 15.5L21 21"/></svg>'
)
_TITLE_HTML = '<h1 class="visually-hidden">Search</h1>'


def handle_search(request: Request) -> Response:
    """Render the results of a search, without JavaScript."""
    query, mode = request.query_params.get("q", ""), request.query_params.get("mode", SearchMode.HYBRID)
    form = render_form(query, mode)
    try:
        wiki = get_request_context(request).open_wiki(Scope.READ)
        known_mode = SearchMode(mode) if mode in tuple(SearchMode) else SearchMode.HYBRID
        search = SearchRequest(query, _MAX_HITS, known_mode, collapse=True)
        with wiki.use_handle() as handle:
            result = handle.search(search, interface=wiki.interface)
    except WikiholtError as error:
        return render_view_error(request, error, form)
    main = f'<main id="app.main" class="plain">{_TITLE_HTML}{form}{"".join(_render_result(result))}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="search", title=query)


def render_form(query: str = "", mode: str = SearchMode.HYBRID) -> str:
    """Render the form above plain pages; it works without JavaScript."""
    mode_input = f'<input type="hidden" name="mode" value="{escape(mode)}">' if mode in tuple(SearchMode) else ""
    return (
        '<form class="plain-form" role="search" action="find">'
        '<label class="visually-hidden" for="app.q">Search this wiki</label>'
        f'<div class="box">{_MAGNIFIER}<input id="app.q" type="search" name="q" value="{escape(query)}"'
        ' maxlength="2000" placeholder="Search this wiki…" autocomplete="off"></div>'
        f'{mode_input}<noscript><button class="primary">Search</button></noscript></form>'
    )


def _render_result(result: SearchResult) -> Iterator[str]:
    if result.did_you_mean:
        href = "find?" + urlencode({"q": format_as_typed(result.query, result.did_you_mean), "mode": result.mode.value})
        corrected, typed = escape(result.did_you_mean), escape(result.query)
        yield f'<p class="correction">Showing results for <strong>{corrected}</strong>. '
        yield f'<a href="{escape(href)}">Search for {typed}</a></p>'
    if not result.hits:
        yield '<p class="message">Nothing found. No page of this wiki contains these words.</p>'
    elif result.nothing_relevant:
        yield '<p class="message">Nothing here is clearly relevant.</p>'
    if result.stale:
        yield '<p class="note">The index is behind the repository.</p>'
    yield from (f'<p class="note">{escape(note)}</p>' for note in result.notes)
    if result.reranked:
        yield '<p class="note">Reranked.</p>'
    likely = [hit for hit in result.hits if hit.confidence is not Confidence.LOW]
    # If no page is a likely answer, the first ones are shown in full.
    full = likely or result.hits[:_MAX_WEAK_CARDS]
    weak = [hit for hit in result.hits if hit not in full]
    yield '<ol class="results">'
    yield from (_render_hit(hit, result.query) for hit in full)
    if weak:
        count = f"{len(weak)} less likely page{'s' if len(weak) > 1 else ''}"
        yield f'<li class="divider">{count}</li>'
    for hit in weak:
        yield f'<li><div class="card folded low">{"".join(_render_title(hit, result.query))}</div></li>'
    yield "</ol>"


def _render_hit(hit: Hit, query: str) -> str:
    title, place = _render_title(hit, query)
    return (
        f'<li><div class="card {hit.confidence.value}">{title}{place}'
        f'<p class="snippet">{render_snippet(hit.snippet)}</p>{_render_also_on(hit)}</div></li>'
    )


def _render_also_on(hit: Hit) -> str:
    """The other pages with nearly the same passage."""
    links = "".join(
        f'<li><a href="{escape("read?" + urlencode({"page": place.path}))}">{escape(place.path)}</a></li>'
        for place in hit.also_on
    )
    count = f"{len(hit.also_on)} page{'s' if len(hit.also_on) > 1 else ''}"
    return f'<details class="also-on"><summary>Also on {count}</summary><ul>{links}</ul></details>' if links else ""


def _render_title(hit: Hit, query: str) -> tuple[str, str]:
    """The heading of a hit with its link, and its place in the wiki."""
    href = "read?" + urlencode({"page": hit.path, "q": query}) + (f"#{quote(hit.anchor)}" if hit.anchor else "")
    headings = hit.heading_path[1:] if hit.heading_path[:1] == (hit.name,) else hit.heading_path
    folder = hit.path.rpartition("/")[0].replace("/", " / ")
    place = " › ".join([*([folder] if folder else ()), *headings])
    title = f'<h2><a href="{escape(href)}">{escape(hit.name)}</a></h2>'
    return title, f'<p class="place">{escape(place)}</p>' if place else ""


# OpenSearch: its description and suggestions


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
    """The OpenSearch description of the wiki of this URL. It names only what the URL names."""
    base = escape_xml(str(request.base_url).rstrip("/") + "/", {'"': "&quot;"})
    name = escape_xml(str(request.scope.get(SLUG_KEY) or "Wikiholt")[:16])  # the longest short name
    text = _DESCRIPTION.format(name=name, base=base)
    return Response(text, media_type="application/opensearchdescription+xml", headers={"Cache-Control": "no-cache"})


def handle_suggestions(request: Request) -> Response:
    """Names and addresses of pages for a query, in the form that browsers read."""
    wiki = get_request_context(request).open_wiki(Scope.READ)
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
    return Response(encode_json(document), 200, headers, media_type="application/x-suggestions+json")
