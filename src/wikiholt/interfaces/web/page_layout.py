"""The page's own files, read once: templates, and what browsers keep for ever under an address with their version."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from starlette.requests import Request
from starlette.responses import HTMLResponse

from wikiholt.interfaces.http.middleware import SLUG_KEY

IMMUTABLE_CACHE_CONTROL = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORT_PATTERN = re.compile(rb'\bfrom "\./([\w.-]+)"')


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """All files; `version` changes whenever one of them does."""

    version: str
    files: dict[str, StaticFile]
    templates: dict[str, Template]

    def find_imports(self, script: str) -> list[str]:
        """What a script imports, directly or not, so that a browser can be told to fetch all of it at once."""
        found: set[str] = set()
        waiting = [script]
        while waiting:
            imported = {name.decode() for name in _IMPORT_PATTERN.findall(self.files[waiting.pop()].data)}
            waiting.extend(imported - found)
            found |= imported
        return sorted(found)

    def get_cache_control(self, version: str) -> str:
        """How long a browser may keep a file that it asked for under this version.

        An open tab may still ask for the files of the version before: it gets today's, and keeps them for this once.
        """
        return IMMUTABLE_CACHE_CONTROL if version == self.version else "no-store"


@cache
def load_static_files() -> StaticFiles:
    """Every file of static/."""
    return read_static_files(get_static_directory())


def get_static_directory() -> Traversable:
    """The folder of the files, for pages of another surface that are made of the same parts."""
    return files(__package__).joinpath("static")


def read_static_files(*directories: Traversable) -> StaticFiles:
    """The files of these folders; one of a later folder takes the place of its namesake in an earlier one."""
    found = {file.name: file.read_bytes() for folder in directories for file in folder.iterdir() if file.is_file()}
    digest = blake2b(digest_size=8)
    served: dict[str, StaticFile] = {}
    templates: dict[str, Template] = {}
    for name, data in sorted(found.items()):
        digest.update(name.encode() + b"\0" + data)
        kind = "." + name.rpartition(".")[2]
        if kind in _MEDIA_TYPES:
            served[name] = StaticFile(data, _MEDIA_TYPES[kind])
        elif kind == ".html":
            templates[name.removesuffix(".html")] = Template(data.decode())
    return StaticFiles(digest.hexdigest(), served, templates)


# Whole pages from the templates: the frame around each view, and the headers every page is sent with.


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


def render_page(
    view: str, context: PageContext, main: str, *, current: str = "", title: str = "", status: int = 200
) -> HTMLResponse:
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
    lines = [
        f'<link rel="modulepreload" href="{static}/{module}">'
        for module in load_static_files().find_imports(f"{name}.js")
    ]
    return "\n".join([*lines, f'<script type="module" src="{static}/{name}.js"></script>'])


def _render_links(current: str) -> str:
    farm = current in ("wikis", "statuses")
    first = ("./", "Wikis" if farm else "Search", current in ("search", "wikis"))
    links = [first, ("status", "Status", current in ("status", "statuses"))]
    return "\n".join(f'<a href="{href}"{" aria-current=page" if here else ""}>{text}</a>' for href, text, here in links)
