"""The frame around each view of the web page, and the headers that every page is sent with."""

from dataclasses import dataclass
from functools import cache
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse

from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files

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
