"""Search and reading without script: whole pages made by the server, for wikis that are open to everyone."""

from collections.abc import Iterator
from html import escape
from urllib.parse import quote, urlencode

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from wikiholt.errors import Unauthorized, WikiholtError
from wikiholt.model import Answer, Hit, Mode, Scope, Snippet
from wikiholt.search import Request
from wikiholt.search.slips import as_typed
from wikiholt.surfaces.http.problems import told
from wikiholt.surfaces.http.visits import Visitor
from wikiholt.surfaces.web.preview import preview_document
from wikiholt.surfaces.web.shell import Place, page

_HITS = 20
_TITLE = '<h1 class="unseen">Search</h1>'


def find(request: HttpRequest) -> Response:
    """The results of a search, as a page of links."""
    query, mode = request.query_params.get("q", ""), request.query_params.get("mode", Mode.HYBRID)
    form = _form(query, mode)
    try:
        wiki = Visitor(request.app.state.farm, request).wiki(Scope.READ)
        asked = Request(query, _HITS, Mode(mode) if mode in tuple(Mode) else Mode.HYBRID)
        with wiki.answering() as handle:
            answer = handle.search(asked, surface=wiki.surface)
    except WikiholtError as error:
        return _failed(request, error, form)
    main = f'<main id="app.main" class="plain">{_TITLE}{form}{"".join(_answer(answer))}</main>'
    return page("plain", Place.of(request), main, current="search", title=query)


def read(request: HttpRequest) -> Response:
    """One page, rendered."""
    try:
        wiki = Visitor(request.app.state.farm, request).wiki(Scope.READ)
        content = wiki.handle.contents.read(request.query_params.get("page", ""))
        shown = preview_document(content, wiki.wiki, request.app.state.farm.settings)
    except WikiholtError as error:
        return _failed(request, error, _form("", Mode.HYBRID))
    form = _form("", Mode.HYBRID)
    named = any(heading["level"] == 1 for heading in shown["headings"][:1])
    title = "" if named else f"<h1>{escape(shown['name'])}</h1>"
    article = f'{title}<article class="page">{shown["html"]}</article>'
    main = f'<main id="app.main" class="plain">{form}{article}</main>'
    return page("plain", Place.of(request), main, current="search", title=shown["name"])


def _form(query: str, mode: str) -> str:
    kept = f'<input type="hidden" name="mode" value="{escape(mode)}">' if mode in tuple(Mode) else ""
    return (
        '<form class="plain-form" role="search" action="find">'
        '<label class="unseen" for="app.q">Search this wiki</label>'
        f'<div class="box"><input id="app.q" type="search" name="q" value="{escape(query)}" maxlength="2000"></div>'
        f'{kept}<button class="primary">Search</button></form>'
    )


def _answer(answer: Answer) -> Iterator[str]:
    if answer.did_you_mean:
        href = "find?" + urlencode({"q": as_typed(answer.query, answer.did_you_mean), "mode": answer.mode.value})
        meant, typed = escape(answer.did_you_mean), escape(answer.query)
        yield f'<p class="meant">Showing results for <strong>{meant}</strong>. '
        yield f'<a href="{escape(href)}">Search for {typed}</a></p>'
    if answer.nothing_relevant:
        yield '<p class="said">Nothing here is clearly relevant.</p>'
    if answer.stale:
        yield '<p class="note">The index is behind the repository.</p>'
    yield from (f'<p class="note">{escape(note)}</p>' for note in answer.notes)
    if answer.reranked:
        yield '<p class="note">Reranked.</p>'
    yield '<ol class="results">'
    yield from map(_card, answer.hits)
    yield "</ol>"


def _card(hit: Hit) -> str:
    href = "read?" + urlencode({"page": hit.path}) + (f"#{quote(hit.anchor)}" if hit.anchor else "")
    headings = hit.heading_path[1:] if hit.heading_path[:1] == (hit.name,) else hit.heading_path
    place = " › ".join([hit.path.replace("/", " / "), *headings])
    return (
        f'<li><article class="card"><h2><a href="{escape(href)}">{escape(hit.name)}</a></h2>'
        f'<p class="place">{escape(place)}</p><p class="snippet">{marked(hit.snippet)}</p>'
        "</article></li>"
    )


def marked(snippet: Snippet) -> str:
    """A snippet as HTML, its matches and the sentence closest to the query marked."""
    closest = snippet.sentence
    if closest is None:
        return _marked(snippet, 0, len(snippet.text))
    inside = _marked(snippet, closest.start, closest.end)
    before, after = _marked(snippet, 0, closest.start), _marked(snippet, closest.end, len(snippet.text))
    return f'{before}<span class="closest">{inside}</span>{after}'


def _marked(snippet: Snippet, start: int, end: int) -> str:
    """A part of a snippet with its matches marked."""
    parts: list[str] = []
    text, at = snippet.text, start
    for span in snippet.matches:
        first, last = max(span.start, at), min(span.end, end)
        if first < last:
            parts += escape(text[at:first]), "<mark>", escape(text[first:last]), "</mark>"
            at = last
    return "".join([*parts, escape(text[at:end])])


def _failed(request: HttpRequest, error: WikiholtError, form: str) -> Response:
    message, hint = told(error)
    if isinstance(error, Unauthorized):
        # A form cannot send a key.
        hint = "Turn on JavaScript to use a key. Without it, wikis that are open to everyone can be read."
    said = f'<div class="said problem"><p class="title">{escape(message)}</p><p class="hint">{escape(hint)}</p></div>'
    main = f'<main id="app.main" class="plain">{_TITLE}{form}{said}</main>'
    return page("plain", Place.of(request), main, current="search", title="Search", status=error.status)
