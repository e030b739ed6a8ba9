"""The web page: its frame and headers, views that scripts fill, and views without JavaScript for public wikis."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from urllib.parse import quote, urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from wikiholt.app.bootstrap import Application
from wikiholt.domain.search import Hit, SearchMode, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Unauthorized, WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.problem_details import get_public_message, make_error_response
from wikiholt.interfaces.http.request_context import RequestContext
from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files
from wikiholt.interfaces.schemas.search_schemas import render_snippet
from wikiholt.interfaces.web import preview
from wikiholt.interfaces.web.preview import build_preview_document
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import format_as_typed

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types wikiholt-preview",
    )
)
_HEADERS = {"Content-Security-Policy": CSP, "Cache-Control": "no-cache", "Cross-Origin-Opener-Policy": "same-origin"}

_SCRIPTED_VIEWS = frozenset({"search", "wikis", "status", "statuses"})


@cache
def load_static_files() -> StaticFiles:
    """Read the static files and templates of the web page once."""
    return read_static_files(get_web_static_directory())


@dataclass(frozen=True, slots=True)
class PageContext:
    """The URL context of a page: below /w/SLUG, or at the root of the service."""

    slug: str | None
    root: str

    @classmethod
    def from_request(cls, request: Request) -> "PageContext":
        slug = request.scope.get(SLUG_KEY)
        return cls(slug, "../../" if slug is not None else "./")


def render_page(
    view: str, context: PageContext, main: str, *, current: str = "", title: str = "", status: int = 200
) -> HTMLResponse:
    """Render the frame around `main`, which is HTML; all other values are escaped."""
    name = context.slug or "Wikiholt"
    static_files = load_static_files()
    static = f"static/{static_files.version}"
    html = static_files.templates["layout"].substitute(
        view=view,
        title=escape(f"{title} · {name}" if title else name),
        static=static,
        script=_render_scripts(view, static),
        root=context.root,
        wiki=f'<span class="wiki-name">{escape(context.slug)}</span>' if context.slug else "",
        links=_render_links(current),
        main=main,
    )
    return HTMLResponse(html, status, _HEADERS)


def render_view(name: str, context: PageContext, *, title: str = "", **values: str) -> HTMLResponse:
    """Render one of the views that a script fills."""
    main = load_static_files().templates[name].substitute({key: escape(value) for key, value in values.items()})
    return render_page(name, context, main, current=name, title=title)


def _render_scripts(view: str, static: str) -> str:
    if view not in _SCRIPTED_VIEWS:
        return ""
    lines = [
        f'<link rel="modulepreload" href="{static}/{module}">'
        for module in load_static_files().find_imports(f"{view}.js")
    ]
    return "\n".join([*lines, f'<script type="module" src="{static}/{view}.js"></script>'])


def _render_links(current: str) -> str:
    all_wikis = current in ("wikis", "statuses")
    first = ("./", "Wikis" if all_wikis else "Search", current in ("search", "wikis"))
    links = [first, ("status", "Status", current in ("status", "statuses"))]
    return "\n".join(
        f'<a href="{href}"{" aria-current=page" if is_current else ""}>{text}</a>' for href, text, is_current in links
    )


# Search and pages without JavaScript


_MAX_HITS = 20
_TITLE_HTML = '<h1 class="visually-hidden">Search</h1>'


def handle_search(request: Request) -> Response:
    """Render the results of a search, without JavaScript."""
    query, mode = request.query_params.get("q", ""), request.query_params.get("mode", SearchMode.HYBRID)
    form = _render_form(query, mode)
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        search = SearchRequest(query, _MAX_HITS, SearchMode(mode) if mode in tuple(SearchMode) else SearchMode.HYBRID)
        with wiki.use_handle() as handle:
            result = handle.search(search, interface=wiki.interface)
    except WikiholtError as error:
        return _render_error(request, error, form)
    main = f'<main id="app.main" class="plain">{_TITLE_HTML}{form}{"".join(_render_result(result))}</main>'
    return render_page("plain", PageContext.from_request(request), main, current="search", title=query)


def handle_page(request: Request) -> Response:
    """Render one page, without JavaScript."""
    try:
        wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
        content = wiki.handle.pages.read(request.query_params.get("page", ""))
        settings, pipeline = request.app.state.application.settings, wiki.handle.pages.get_pipeline()
        preview_document = build_preview_document(content, wiki.wiki, settings, pipeline)
    except WikiholtError as error:
        return _render_error(request, error, _render_form("", SearchMode.HYBRID))
    form = _render_form("", SearchMode.HYBRID)
    has_title = any(heading["level"] == 1 for heading in preview_document["headings"][:1])
    title = "" if has_title else f"<h1>{escape(preview_document['name'])}</h1>"
    article = f'{title}<article class="page">{preview_document["html"]}</article>'
    main = f'<main id="app.main" class="plain">{form}{article}</main>'
    return render_page(
        "plain", PageContext.from_request(request), main, current="search", title=preview_document["name"]
    )


def _render_form(query: str, mode: str) -> str:
    mode_input = f'<input type="hidden" name="mode" value="{escape(mode)}">' if mode in tuple(SearchMode) else ""
    return (
        '<form class="plain-form" role="search" action="find">'
        '<label class="visually-hidden" for="app.q">Search this wiki</label>'
        f'<div class="box"><input id="app.q" type="search" name="q" value="{escape(query)}" maxlength="2000"></div>'
        f'{mode_input}<button class="primary">Search</button></form>'
    )


def _render_result(result: SearchResult) -> Iterator[str]:
    if result.did_you_mean:
        href = "find?" + urlencode({"q": format_as_typed(result.query, result.did_you_mean), "mode": result.mode.value})
        corrected, typed = escape(result.did_you_mean), escape(result.query)
        yield f'<p class="correction">Showing results for <strong>{corrected}</strong>. '
        yield f'<a href="{escape(href)}">Search for {typed}</a></p>'
    if result.nothing_relevant:
        yield '<p class="message">Nothing here is clearly relevant.</p>'
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


def _render_error(request: Request, error: WikiholtError, form: str) -> Response:
    message, hint = get_public_message(error)
    if isinstance(error, Unauthorized):
        # A plain form cannot send a key.
        hint = "Turn on JavaScript to use a key. Without JavaScript you can read public wikis only."
    message_html = (
        f'<div class="message problem"><p class="title">{escape(message)}</p><p class="hint">{escape(hint)}</p></div>'
    )
    main = f'<main id="app.main" class="plain">{_TITLE_HTML}{form}{message_html}</main>'
    return render_page(
        "plain", PageContext.from_request(request), main, current="search", title="Search", status=error.status
    )


# Views filled by scripts. The HTML contains no wiki data: scripts request that from the API with the user's key.


def add_pages(app: FastAPI, application: Application) -> None:
    """Add the routes of the web page: start page, search, status, static files and preview."""

    def handle_start(request: Request) -> Response:
        page = PageContext.from_request(request)
        if page.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("wikis", page, title="Wikis")
        return render_view("search", page)

    def handle_status(request: Request) -> Response:
        page = PageContext.from_request(request)
        if page.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("statuses", page, title="Status")
        return render_view("status", page, title="Status", heading=f"Index of {page.slug}" if page.slug else "Index")

    app.router.routes.extend(preview.router.routes)
    for path, handler in (
        ("/", handle_start),
        ("/status", handle_status),
        ("/find", handle_search),
        ("/read", handle_page),
        ("/favicon.ico", _handle_favicon),
        ("/static/{version}/{name}", _handle_static_file),
    ):
        app.add_route(path, handler, methods=["GET"], include_in_schema=False)


def _can_read_default_wiki(context: RequestContext) -> bool:
    """Return whether the client may read the default wiki: the one of the host name, or the only one."""
    try:
        context.open_wiki(Scope.READ)
    except WikiholtError:
        return False
    return True


def _handle_static_file(request: Request) -> Response:
    static_files = load_static_files()
    file = static_files.files.get(request.path_params["name"])
    if file is None:
        return make_error_response(404, "not-found", "File not found.", "")
    headers = {"Cache-Control": static_files.get_cache_control(request.path_params["version"])}
    return Response(file.data, media_type=file.media_type, headers=headers)


def _handle_favicon(_: Request) -> Response:
    icon = load_static_files().files["favicon.svg"]
    return Response(icon.data, media_type=icon.media_type, headers={"Cache-Control": "public, max-age=86400"})
