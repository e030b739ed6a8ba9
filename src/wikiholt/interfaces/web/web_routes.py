"""Search and reading without script: whole pages made by the server, for wikis that are open to everyone."""

from collections.abc import Iterator
from html import escape
from urllib.parse import quote, urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from wikiholt.app.bootstrap import Application
from wikiholt.domain.search import Hit, SearchMode, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Unauthorized, WikiholtError
from wikiholt.interfaces.http.problem_details import get_public_message, make_error_response
from wikiholt.interfaces.http.request_context import RequestContext
from wikiholt.interfaces.http.snippet_html import render_snippet
from wikiholt.interfaces.web import preview
from wikiholt.interfaces.web.page_layout import PageContext, load_static_files, render_page, render_view
from wikiholt.interfaces.web.preview import build_preview_document
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import format_as_typed

_MAX_HITS = 20
_TITLE_HTML = '<h1 class="unseen">Search</h1>'


def handle_search(request: HttpRequest) -> Response:
    """The results of a search, as a page of links."""
    query, mode = request.query_params.get("q", ""), request.query_params.get("mode", SearchMode.HYBRID)
    form = _render_form(query, mode)
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        asked = SearchRequest(query, _MAX_HITS, SearchMode(mode) if mode in tuple(SearchMode) else SearchMode.HYBRID)
        with wiki.use_handle() as handle:
            answer = handle.search(asked, interface=wiki.interface)
    except WikiholtError as error:
        return _render_error(request, error, form)
    main = f'<main id="app.main" class="plain">{_TITLE_HTML}{form}{"".join(_render_result(answer))}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="search", title=query)


def handle_page(request: HttpRequest) -> Response:
    """One page, rendered."""
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        content = wiki.handle.pages.read(request.query_params.get("page", ""))
        shown = build_preview_document(content, wiki.wiki, request.app.state.application.settings)
    except WikiholtError as error:
        return _render_error(request, error, _render_form("", SearchMode.HYBRID))
    form = _render_form("", SearchMode.HYBRID)
    named = any(heading["level"] == 1 for heading in shown["headings"][:1])
    title = "" if named else f"<h1>{escape(shown['name'])}</h1>"
    article = f'{title}<article class="page">{shown["html"]}</article>'
    main = f'<main id="app.main" class="plain">{form}{article}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="search", title=shown["name"])


def _render_form(query: str, mode: str) -> str:
    kept = f'<input type="hidden" name="mode" value="{escape(mode)}">' if mode in tuple(SearchMode) else ""
    return (
        '<form class="plain-form" role="search" action="find">'
        '<label class="unseen" for="app.q">Search this wiki</label>'
        f'<div class="box"><input id="app.q" type="search" name="q" value="{escape(query)}" maxlength="2000"></div>'
        f'{kept}<button class="primary">Search</button></form>'
    )


def _render_result(result: SearchResult) -> Iterator[str]:
    if result.did_you_mean:
        href = "find?" + urlencode({"q": format_as_typed(result.query, result.did_you_mean), "mode": result.mode.value})
        meant, typed = escape(result.did_you_mean), escape(result.query)
        yield f'<p class="meant">Showing results for <strong>{meant}</strong>. '
        yield f'<a href="{escape(href)}">Search for {typed}</a></p>'
    if result.nothing_relevant:
        yield '<p class="said">Nothing here is clearly relevant.</p>'
    if result.stale:
        yield '<p class="note">The index is behind the repository.</p>'
    yield from (f'<p class="note">{escape(note)}</p>' for note in result.notes)
    if result.reranked:
        yield '<p class="note">Reranked.</p>'
    yield '<ol class="results">'
    yield from map(_render_hit, result.hits)
    yield "</ol>"


def _render_hit(hit: Hit) -> str:
    href = "read?" + urlencode({"page": hit.path}) + (f"#{quote(hit.anchor)}" if hit.anchor else "")
    headings = hit.heading_path[1:] if hit.heading_path[:1] == (hit.name,) else hit.heading_path
    place = " › ".join([hit.path.replace("/", " / "), *headings])
    return (
        f'<li><article class="card"><h2><a href="{escape(href)}">{escape(hit.name)}</a></h2>'
        f'<p class="place">{escape(place)}</p><p class="snippet">{render_snippet(hit.snippet)}</p>'
        "</article></li>"
    )


def _render_error(request: HttpRequest, error: WikiholtError, form: str) -> Response:
    message, hint = get_public_message(error)
    if isinstance(error, Unauthorized):
        # A form cannot send a key.
        hint = "Turn on JavaScript to use a key. Without it, wikis that are open to everyone can be read."
    said = f'<div class="said problem"><p class="title">{escape(message)}</p><p class="hint">{escape(hint)}</p></div>'
    main = f'<main id="app.main" class="plain">{_TITLE_HTML}{form}{said}</main>'
    return render_page(
        "plain", PageContext.from_request(request), main, current="search", title="Search", status=error.status
    )


# The pages a browser is given. They hold nothing of any wiki: that comes from the API, with the visitor's key.


def add_pages(app: FastAPI, application: Application) -> None:
    """Add the web page to an application: search, start page, status, their files, and the preview they show."""

    def start(request: Request) -> Response:
        place = PageContext.from_request(request)
        if place.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("wikis", place, title="Wikis")
        return render_view("search", place)

    def status(request: Request) -> Response:
        place = PageContext.from_request(request)
        if place.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("statuses", place, title="Status")
        return render_view("status", place, title="Status", heading=f"Index of {place.slug}" if place.slug else "Index")

    app.router.routes.extend(preview.router.routes)
    for path, answer in (
        ("/", start),
        ("/status", status),
        ("/find", handle_search),
        ("/read", handle_page),
        ("/favicon.ico", _handle_favicon),
        ("/static/{version}/{name}", _handle_static_file),
    ):
        app.add_route(path, answer, methods=["GET"], include_in_schema=False)


def _can_read_default_wiki(context: RequestContext) -> bool:
    """Whether this visitor may read a wiki that needs no naming: the host's, or the only one there is."""
    try:
        context.open_wiki(Scope.READ)
    except WikiholtError:
        return False
    return True


def _handle_static_file(request: Request) -> Response:
    kept = load_static_files()
    found = kept.files.get(request.path_params["name"])
    if found is None:
        return make_error_response(404, "not-found", "There is no such file.", "")
    headers = {"Cache-Control": kept.get_cache_control(request.path_params["version"])}
    return Response(found.data, media_type=found.media_type, headers=headers)


def _handle_favicon(_: Request) -> Response:
    icon = load_static_files().files["favicon.svg"]
    return Response(icon.data, media_type=icon.media_type, headers={"Cache-Control": "public, max-age=86400"})
