"""Whole pages from the templates: the frame around each view, and the headers every page is sent with."""

from dataclasses import dataclass
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse

from wikiholt.surfaces.http.edge import SLUG_KEY
from wikiholt.surfaces.web.assets import load_static_files

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


@dataclass(frozen=True, slots=True)
class PageContext:
    """Where a page stands: in the wiki that its address names, or at the root of what is served."""

    slug: str | None
    root: str

    @classmethod
    def from_request(cls, request: Request) -> "PageContext":
        slug = request.scope.get(SLUG_KEY)
        return cls(slug, "../../" if slug is not None else "./")


def render_page(view: str, context: PageContext, main: str, *, current: str = "", title: str = "", status: int = 200) -> HTMLResponse:
    """The frame with this main part, which is HTML already; everything else is escaped here."""
    name = context.slug or "Wikiholt"
    kept = load_static_files()
    frame = kept.templates["shell"].substitute(
        view=view,
        title=escape(f"{title} · {name}" if title else name),
        static=f"static/{kept.version}",
        script=_render_scripts(view, f"static/{kept.version}"),
        root=context.root,
        place=f'<span class="at">{escape(context.slug)}</span>' if context.slug else "",
        links=_render_links(current),
        main=main,
    )
    return HTMLResponse(frame, status, _HEADERS)


def render_view(name: str, context: PageContext, *, title: str = "", **values: str) -> HTMLResponse:
    """One of the views that script brings to life."""
    main = load_static_files().templates[name].substitute({key: escape(value) for key, value in values.items()})
    return render_page(name, context, main, current=name, title=title)


def _render_scripts(name: str, static: str) -> str:
    if name not in _SCRIPTED_VIEWS:
        return ""
    lines = [f'<link rel="modulepreload" href="{static}/{module}">' for module in load_static_files().find_imports(f"{name}.js")]
    return "\n".join([*lines, f'<script type="module" src="{static}/{name}.js"></script>'])


def _render_links(current: str) -> str:
    farm = current in ("wikis", "statuses")
    first = ("./", "Wikis" if farm else "Search", current in ("search", "wikis"))
    links = [first, ("status", "Status", current in ("status", "statuses"))]
    return "\n".join(f'<a href="{href}"{" aria-current=page" if here else ""}>{text}</a>' for href, text, here in links)
