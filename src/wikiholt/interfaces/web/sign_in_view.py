"""The pages on which people sign in and out. They need no script."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from html import escape
from urllib.parse import parse_qs, urlencode

import anyio.to_thread
from anyio.lowlevel import RunVar
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from wikiholt.api.public_messages import get_public_message
from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.wiki import Key, Person
from wikiholt.errors import Forbidden, SignInUnavailable, Unauthorized, WikiholtError
from wikiholt.interfaces.http.middleware import SLUG_KEY
from wikiholt.interfaces.http.owner_link import (
    OWNER_COOKIE_NAME,
    SIGN_IN_PATH,
    OwnerLink,
    is_own_request,
    make_owner,
)
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.http.responses import NO_STORE
from wikiholt.interfaces.http.sign_in import (
    COOKIE_NAME,
    SignInMethod,
    add_cookie,
    get_cookie_tokens,
    require_same_origin,
)
from wikiholt.interfaces.web.page_frame import PageContext, render_message, render_page

_MAX_BODY_BYTES = 10_000
_MAX_NEXT_CHARS = 2000
"""It is part of a cookie, which browsers limit to 4096 bytes."""
_OIDC_COOKIE_NAME = "wikiholt_oidc"
_OIDC_TIMEOUT_S = 600
_OWNER_LIFETIME = timedelta(days=30)


def add_sign_in_pages(app: FastAPI, settings: Settings) -> None:
    """Add the routes for signing in and out, as far as the settings allow it."""
    routes: list[tuple[str, Callable[[Request], Response | Awaitable[Response]], list[str]]] = []
    if settings.people_remember_days or settings.people_oidc_issuer:
        routes.append(("/sign-in", handle_sign_in, ["GET"]))
    if settings.people_remember_days:
        routes.append(("/sign-in", handle_key, ["POST"]))
    if settings.people_oidc_issuer:
        from wikiholt.interfaces.web.oidc import OidcClient  # noqa: PLC0415 - an optional dependency

        app.state.oidc = OidcClient(settings)
        routes += [("/oidc-sign-in", handle_oidc_start, ["GET"]), ("/oidc-callback", handle_oidc_callback, ["GET"])]
    if settings.serve_owner:
        routes.append((f"/{SIGN_IN_PATH}", handle_owner, ["GET"]))
    if routes or settings.people_proxy_user_header:
        routes.append(("/sign-out", handle_sign_out, ["POST"]))
    for path, handler, methods in routes:
        app.add_route(path, handler, methods=methods, include_in_schema=False)


def handle_sign_in(request: Request) -> Response:
    """Show the ways to sign in."""
    return _render_form(request, _get_next(request, request.query_params.get("next", "")))


async def handle_key(request: Request) -> Response:
    """Sign in with the key of the form, and return to the page in `next`."""
    form = await _read_form(request)
    return await run_in_threadpool(_sign_in_with_key, request, form)


def _sign_in_with_key(request: Request, form: dict[str, str]) -> Response:
    require_same_origin(request)
    settings: Settings = request.app.state.application.settings
    next_url = _get_next(request, form.get("next", ""))
    try:
        key = get_request_context(request).check_key(form.get("key", "").strip())
    except Unauthorized as error:
        return _render_form(request, next_url, error)
    # A key of one wiki is used for the pages below which it was entered, so that each wiki can have another key.
    path = f"{request.scope.get('root_path', '')}/" if key.wiki_id is not None else _get_service_path(request)
    days = settings.people_remember_days if form.get("remember") else None
    return _sign_in(request, key, path, next_url, days)


def _sign_in(request: Request, client: Key | Person, path: str, next_url: str, days: float | None) -> Response:
    """Create a sign-in for some days, or until the browser is closed, and set its cookie."""
    application = request.app.state.application
    end_sign_ins(request)
    lifetime = timedelta(days=days) if days else timedelta(hours=application.settings.people_sign_in_hours)
    _, token = application.service.registry.sign_ins.create(client, lifetime)
    max_age_s = int(lifetime.total_seconds()) if days or isinstance(client, Person) else None
    response = RedirectResponse(next_url, 303, NO_STORE)
    add_cookie(request, response, COOKIE_NAME, token, path, max_age_s)
    return response


def handle_owner(request: Request) -> Response:
    """Sign in the owner of the data directory with the link from its file, and go to the start page."""
    context = get_request_context(request)
    context.count_request()
    application = request.app.state.application
    if not is_own_request(request):
        raise Forbidden(
            "This link works only in a browser of the user that runs the service, on the same machine.",
            hint="Use a key, or sign in.",
        )
    if not OwnerLink(application.settings.data).redeem(request.query_params.get("token", "")):
        raise Unauthorized("This link was used already, or is not the current one. Run `wikiholt open` for another.")
    _, token = application.service.registry.sign_ins.create(make_owner(), _OWNER_LIFETIME)
    response = RedirectResponse(_get_service_path(request), 303, NO_STORE)
    max_age_s = int(_OWNER_LIFETIME.total_seconds())
    add_cookie(request, response, OWNER_COOKIE_NAME, token, _get_service_path(request), max_age_s, is_strict=True)
    return response


def handle_sign_out(request: Request) -> Response:
    """End the sign-in on the server and remove its cookies."""
    require_same_origin(request)
    application = request.app.state.application
    signed_in = get_request_context(request).signed_in
    end_sign_ins(request)
    settings: Settings = application.settings
    url = settings.people_proxy_sign_out_url if signed_in and signed_in.method is SignInMethod.PROXY else ""
    if signed_in and isinstance(signed_in.client, Person) and not url and settings.people_oidc_issuer:
        url = request.app.state.oidc.make_sign_out_url(_make_url(request, ""))
    response = _render_signed_out(request, url)
    for path in {_get_service_path(request), f"{request.scope.get('root_path', '')}/"}:
        for name in (COOKIE_NAME, OWNER_COOKIE_NAME):
            add_cookie(request, response, name, "", path, 0)
    return response


def end_sign_ins(request: Request) -> None:
    """End the sign-ins of all cookies of the request."""
    for token in (*get_cookie_tokens(request), *get_cookie_tokens(request, OWNER_COOKIE_NAME)):
        request.app.state.application.service.registry.sign_ins.end(token)


# OpenID Connect


_PROVIDER_THREADS = 4
"""Threads that may wait for the provider at a time. They are not those that answer other requests."""


class _ProviderQueue:
    """The requests that wait for the provider, or run."""

    def __init__(self) -> None:
        self.limiter = anyio.CapacityLimiter(_PROVIDER_THREADS)
        self.count = 0


_provider_queue: RunVar[_ProviderQueue] = RunVar("provider_queue")


async def handle_oidc_start(request: Request) -> Response:
    """Send the browser to the OpenID provider, with a cookie that the way back needs."""
    return await _run_with_provider(_start_at_provider, request)


async def handle_oidc_callback(request: Request) -> Response:
    """Sign in the person that the OpenID provider sends back."""
    return await _run_with_provider(_return_from_provider, request)


async def _run_with_provider(handle: Callable[[Request], Response], request: Request) -> Response:
    """Handle the request in one of the threads for the provider. Raises SignInUnavailable if too many others wait."""
    await run_in_threadpool(get_request_context(request).count_request)
    queue = _provider_queue.get(None)
    if queue is None:
        queue = _ProviderQueue()
        _provider_queue.set(queue)
    if queue.count >= _PROVIDER_THREADS + request.app.state.application.settings.limit_waiting_requests:
        raise SignInUnavailable("Too many sign-ins are waiting for the OpenID provider.", hint="Try again in a minute.")
    # Counted here, because `run_sync` lets other requests run before it waits for the limiter.
    queue.count += 1
    try:
        return await anyio.to_thread.run_sync(handle, request, limiter=queue.limiter)
    finally:
        queue.count -= 1


def _start_at_provider(request: Request) -> Response:
    next_url = _get_next(request, request.query_params.get("next", ""))
    url, pending = request.app.state.oidc.start(_make_url(request, "oidc-callback"), next_url)
    response = RedirectResponse(url, 302, NO_STORE)
    path = _get_service_path(request)
    add_cookie(request, response, _OIDC_COOKIE_NAME, pending, path, _OIDC_TIMEOUT_S)
    return response


def _return_from_provider(request: Request) -> Response:
    person, next_url = request.app.state.oidc.finish(
        _make_url(request, "oidc-callback"), dict(request.query_params), request.cookies.get(_OIDC_COOKIE_NAME, "")
    )
    path = _get_service_path(request)
    response = _sign_in(request, person, path, _get_next(request, next_url), None)
    add_cookie(request, response, _OIDC_COOKIE_NAME, "", path, 0)
    return response


# Forms


def _render_form(request: Request, next_url: str, error: WikiholtError | None = None) -> Response:
    settings: Settings = request.app.state.application.settings
    parts = [render_message(*get_public_message(error)) if error else ""]
    target = f'<input type="hidden" name="next" value="{escape(next_url)}">'
    if settings.people_oidc_issuer:
        # A link: the policy of the page forbids that a form leads to another site.
        href = escape(f"oidc-sign-in?{urlencode({'next': next_url})}")
        name = escape(settings.people_oidc_name)
        parts.append(f'<p class="sign-in"><a class="button primary" href="{href}">Sign in with {name}</a></p>')
    if settings.people_remember_days:
        days = f"{settings.people_remember_days:g}"
        title = "<h2>Or use a key</h2>" if settings.people_oidc_issuer else ""
        parts.append(
            f'<form class="sign-in" method="post" action="sign-in">{title}{target}'
            '<label for="app.key-input">Your key</label>'
            '<input id="app.key-input" name="key" type="password" autocomplete="off" spellcheck="false" required'
            ' placeholder="wh_…">'
            '<label class="check"><input type="checkbox" name="remember" value="on">'
            f"<span>Remember on this device<small>For {days} days, or until you sign out</small></span></label>"
            f"<button{'' if settings.people_oidc_issuer else ' class=primary'}>Sign in with the key</button>"
            '<p class="hint">Ask the administrator of the wiki for a key.</p></form>'
        )
    main = f'<main id="app.main" class="plain narrow"><h1>Sign in</h1>{"".join(parts)}</main>'
    status = error.status if error else 200
    return render_page(
        "plain", PageContext.from_request(request), main, title="Sign in", status=status, headers=NO_STORE
    )


def _render_signed_out(request: Request, url: str) -> Response:
    more = f'<a class="button" href="{escape(url)}">Sign out there too</a>' if url else ""
    hint = "You are still signed in at your provider." if url else "The sign-in on this device has ended."
    main = (
        f'<main id="app.main" class="plain narrow"><h1>You are signed out</h1><p>{hint}</p>'
        f'<p class="actions left">{more}<a class="button primary" href="./">Go to the start page</a></p></main>'
    )
    page = PageContext.from_signed_out(request)
    return render_page("plain", page, main, title="Signed out", headers=NO_STORE)


async def _read_form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            return {}
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


# Addresses


def _get_service_path(request: Request) -> str:
    """The path of the start page of the service."""
    slug = request.scope.get(SLUG_KEY)
    root = str(request.scope.get("root_path", ""))
    return (root.removesuffix(f"/w/{slug}") if slug is not None else root) + "/"


def _make_url(request: Request, name: str) -> str:
    """The public URL of a page of the service."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}{_get_service_path(request)}{name}"


def _get_next(request: Request, url: str) -> str:
    """The page to return to: a path of this service, else the page above."""
    is_local = (
        len(url) <= _MAX_NEXT_CHARS
        and url.startswith(_get_service_path(request))
        and not url.startswith(("//", "/\\"))
        and url.isprintable()
    )
    return url if is_local else f"{request.scope.get('root_path', '')}/"
