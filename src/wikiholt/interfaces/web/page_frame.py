"""The frame of every HTML page: headers, navigation, scripts, and pages that show an error."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from wikiholt.api.public_messages import get_public_message
from wikiholt.errors import PageNotFound, Unauthorized, WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.problem_details import to_sentence
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.http.sign_in import SignInMethod
from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types wikiholt-page",
    )
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "Cache-Control": "private, no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With no-referrer, a form of this page would be sent with `Origin: null`, as one of another site.
    "Referrer-Policy": "same-origin",
}


_STYLES = {
    "plain": ("reader.css", "forms.css"),
    "edit": ("reader.css", "forms.css"),
    "manage": ("wikis.css", "forms.css"),
    **dict.fromkeys(("wikis", "status", "statuses"), ("wikis.css",)),
}
"""Further style sheets of a view."""


_PAGES_ICON = (
    '<svg class="short" viewBox="0 0 24 24" aria-hidden="true"><path d="M5 6h14M9 12h10M9 18h10M5 12v6"/></svg>'
)
"""Replaces the word on a narrow screen, so that there is room for the name of the wiki."""


@cache
def load_static_files() -> StaticFiles:
    """Read the static files and templates of the web page once."""
    return read_static_files(get_web_static_directory())


@dataclass(frozen=True, slots=True)
class Account:
    """Who is signed in: `name` is empty if nobody is. Then `sign_in` is the link for it, from the first page."""

    name: str = ""
    sign_in: str = ""
    can_sign_out: bool = True

    @classmethod
    def from_signed_out(cls, request: Request) -> "Account":
        """The account of a request that is not signed in."""
        settings = request.app.state.application.settings
        return cls(sign_in="sign-in" if settings.people_remember_days or settings.people_oidc_issuer else "")

    @classmethod
    def from_request(cls, request: Request) -> "Account":
        """The account of the request. Errors are left to the page itself."""
        settings = request.app.state.application.settings
        try:
            signed_in = get_request_context(request).signed_in
        except WikiholtError:
            signed_in = None
        if signed_in is not None:
            is_proxy = signed_in.method is SignInMethod.PROXY
            name = signed_in.client.label or f"key {signed_in.client.id}"
            return cls(name, can_sign_out=not is_proxy or bool(settings.people_proxy_sign_out_url))
        signed_out = cls.from_signed_out(request)
        if not signed_out.sign_in or request.method != "GET" or request.scope["path"].endswith("/sign-in"):
            return signed_out
        path = (request.scope.get("raw_path") or request.scope["path"].encode()).decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        return cls(sign_in=f"sign-in?{urlencode({'next': f'{path}?{query}' if query else path})}")


@dataclass(frozen=True, slots=True)
class PageContext:
    """The URL context of a page: below /w/SLUG, or at the root of the service. `base` leads to its first page."""

    slug: str | None
    root: str
    base: str = ""
    account: Account = Account()

    @classmethod
    def from_request(cls, request: Request) -> "PageContext":
        return replace(cls.from_signed_out(request), account=Account.from_request(request))

    @classmethod
    def from_signed_out(cls, request: Request) -> "PageContext":
        """The context of a page after signing out."""
        slug = request.scope.get(SLUG_KEY)
        return cls(slug, "../../" if slug is not None else "./", account=Account.from_signed_out(request))

    @classmethod
    def from_unknown_path(cls, request: Request) -> "PageContext":
        """The context of a path that may be deeper than those of pages. An encoded slash is not a level."""
        page = cls.from_request(request)
        service_path = request.scope.get("root_path", "").removesuffix(
            f"/w/{page.slug}" if page.slug is not None else ""
        )
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        root = "../" * (raw_path.count(b"/") - 1 - service_path.count("/"))
        if page.slug is None:
            return replace(page, root=root or "./", base=root)
        return replace(page, root=root or "./", base=f"{root}w/{quote(page.slug, safe='')}/")


def render_page(
    view: str,
    context: PageContext,
    main: str,
    *,
    current: str = "",
    title: str = "",
    body_class: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """Render the frame around `main`, which is HTML; all other values are escaped."""
    name = context.slug or "Wikiholt"
    static_files = load_static_files()
    static = f"{context.base}static/{static_files.version}"
    modules = static_files.find_imports(f"{view}.js")
    preloads = [f'<link rel="modulepreload" href="{static}/{module}">' for module in modules]
    html = static_files.templates["layout"].substitute(
        view=view,
        title=escape(f"{title} · {name}" if title else name),
        name=escape(name),
        base=context.base,
        static=static,
        style="\n".join(f'<link rel="stylesheet" href="{static}/{name}">' for name in _STYLES.get(view, ())),
        script="\n".join([*preloads, f'<script type="module" src="{static}/{view}.js"></script>']),
        root=context.root,
        wiki=f'<a class="wiki-name" href="{context.base or "./"}">{escape(context.slug)}</a>' if context.slug else "",
        links=_render_links(context, current),
        account=_render_account(context),
        body_class=body_class,
        main=main,
    )
    return HTMLResponse(html, status, _HEADERS | dict(headers or {}))


def render_view(
    name: str, context: PageContext, *, title: str = "", body_class: str = "", **values: str
) -> HTMLResponse:
    """Render one of the views that a script fills."""
    main = load_static_files().templates[name].substitute({key: escape(value) for key, value in values.items()})
    return render_page(name, context, main, current=name, title=title, body_class=body_class)


def _render_links(context: PageContext, current: str) -> str:
    all_wikis = current in ("wikis", "statuses")
    first = (context.base or "./", "Wikis" if all_wikis else "Search", current in ("search", "wikis"))
    links = [first, (f"{context.base}status", "Status", current in ("status", "statuses"))]
    if not all_wikis:
        links.insert(
            1,
            (
                f"{context.base}browse",
                f"{_PAGES_ICON}<span>Pages</span>" if context.slug else "Pages",
                current == "browse",
            ),
        )
    return "\n".join(
        f'<a href="{href}"{" aria-current=page" if is_current else ""}>{text}</a>' for href, text, is_current in links
    )


def _render_account(context: PageContext) -> str:
    account = context.account
    if account.sign_in:
        return f'<a id="app.sign-in" href="{escape(context.base + account.sign_in)}">Sign in</a>'
    if not account.name:
        return ""
    name = f'<span class="account" id="app.account" title="Signed in as {escape(account.name)}">'
    name += f'<span class="visually-hidden">Signed in as </span>{escape(account.name)}</span>'
    if not account.can_sign_out:
        return name
    button = f'<button class="quiet" title="Signed in as {escape(account.name)}">Sign out</button>'
    return f'{name}<form method="post" action="{context.base}sign-out">{button}</form>'


# Errors


def wants_html(request: Request) -> bool:
    """Whether a browser asks for a page, and not a program for data."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    is_page = not path.startswith(("/api/", "/mcp", "/static/"))
    return is_page and "text/html" in request.headers.get("accept", "")


def render_error_page(
    request: Request, status: int, message: str, hint: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Render a page with an error and a way back."""
    context = PageContext.from_unknown_path(request)
    target = f"Search in {escape(context.slug)}" if context.slug else "Go to the start page"
    main = (
        f'<main id="app.main" class="plain"><h1>{_get_error_title(status)}</h1>{render_message(message, hint)}'
        f'<p class="actions"><a class="button primary" href="{context.base or "./"}">{target}</a>'
        + (f'<a class="button" href="{context.root}">All wikis</a>' if context.slug else "")
        + "</p></main>"
    )
    return render_page("plain", context, main, title=_get_error_title(status), status=status, headers=headers)


def render_view_error(request: Request, error: WikiholtError, form: str = "") -> Response:
    """Render the error of a view inside its frame, or redirect to the page that has the requested name as an alias.

    A script asks for a key and requests the view again.
    """
    if isinstance(error, PageNotFound) and error.current_path:
        return RedirectResponse(f"?{urlencode({**request.query_params, 'page': error.current_path})}", 302)
    message, hint = get_public_message(error)
    title, noscript = _get_error_title(error.status), ""
    context = PageContext.from_request(request)
    actions = '<a class="button" href="./">Search this wiki</a>'
    if isinstance(error, Unauthorized) and context.account.sign_in:
        message, hint = "You are not signed in.", "Sign in to read this page."
        actions = f'<a class="button primary" href="{escape(context.account.sign_in)}">Sign in</a>'
    elif isinstance(error, Unauthorized):
        title, actions = "This wiki is not public", ""
        # A plain form cannot send a key.
        hint, noscript = "", "Turn on JavaScript to use a key. Without JavaScript you can read public wikis only."
    elif isinstance(error, PageNotFound):
        hint = "The link may be wrong or outdated."
        name = request.query_params.get("page", "").rpartition("/")[2]
        actions = f'<a class="button" href="./?{escape(urlencode({"q": name}))}">Search for this page</a>'
    text = render_message(message, hint, noscript, locked=isinstance(error, Unauthorized))
    main = (
        f'<main id="app.main" class="plain" data-status="{error.status}">{form}<h1>{title}</h1>'
        f'{text}<p class="actions">{actions}</p></main>'
    )
    return render_page("plain", context, main, current="search", title=title, status=error.status)


def render_message(message: str, hint: str, noscript: str = "", *, locked: bool = False) -> str:
    """Render a message. `noscript` is a hint for browsers without JavaScript only."""
    hint_html = f'<p class="hint">{escape(to_sentence(hint))}</p>' if hint else ""
    hint_html += f'<noscript><p class="hint">{escape(noscript)}</p></noscript>' if noscript else ""
    css_class = "message problem locked" if locked else "message problem"
    return f'<div class="{css_class}"><p class="title">{escape(to_sentence(message))}</p>{hint_html}</div>'


def _get_error_title(status: int) -> str:
    titles = {
        401: "Sign-in is required",
        403: "No access",
        404: "Not found",
        429: "Too many requests",
        503: "Not available",
    }
    return titles.get(status, "Error" if status < 500 else "The service has a problem")
