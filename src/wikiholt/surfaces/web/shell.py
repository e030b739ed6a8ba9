"""Whole pages from the templates: the frame around each view, and the headers every page is sent with."""

from dataclasses import dataclass
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse

from wikiholt.surfaces.http.edge import NAMED
from wikiholt.surfaces.web.assets import assets

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

_SCRIPTED = frozenset({"search", "wikis", "status", "statuses"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page stands: in the wiki that its address names, or at the root of what is served."""

    slug: str | None
    root: str

    @classmethod
    def of(cls, request: Request) -> "Place":
        slug = request.scope.get(NAMED)
        return cls(slug, "../../" if slug is not None else "./")


def page(view: str, place: Place, main: str, *, current: str = "", title: str = "", status: int = 200) -> HTMLResponse:
    """The frame with this main part, which is HTML already; everything else is escaped here."""
    name = place.slug or "Wikiholt"
    kept = assets()
    frame = kept.templates["shell"].substitute(
        view=view,
        title=escape(f"{title} · {name}" if title else name),
        static=f"static/{kept.version}",
        script=_scripts(view, f"static/{kept.version}"),
        root=place.root,
        place=f'<span class="at">{escape(place.slug)}</span>' if place.slug else "",
        links=_links(current),
        main=main,
    )
    return HTMLResponse(frame, status, _HEADERS)


def view(name: str, place: Place, *, title: str = "", **values: str) -> HTMLResponse:
    """One of the views that script brings to life."""
    main = assets().templates[name].substitute({key: escape(value) for key, value in values.items()})
    return page(name, place, main, current=name, title=title)


def _scripts(name: str, static: str) -> str:
    if name not in _SCRIPTED:
        return ""
    lines = [f'<link rel="modulepreload" href="{static}/{module}">' for module in assets().modules(f"{name}.js")]
    return "\n".join([*lines, f'<script type="module" src="{static}/{name}.js"></script>'])


def _links(current: str) -> str:
    farm = current in ("wikis", "statuses")
    first = ("./", "Wikis" if farm else "Search", current in ("search", "wikis"))
    links = [first, ("status", "Status", current in ("status", "statuses"))]
    return "\n".join(f'<a href="{href}"{" aria-current=page" if here else ""}>{text}</a>' for href, text, here in links)
