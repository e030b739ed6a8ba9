"""The page on which a person approves an agent with a key.

The fields of the request travel in the page and are checked again when it is sent. A page elsewhere cannot approve
anything in the person's name: it would have to know the key.
"""

import base64
import hashlib
from html import escape
from urllib.parse import urlencode, urlsplit

from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull
from pydantic import AnyUrl, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import Forbidden, InvalidQuery, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.interfaces.http.problem_details import get_public_message, make_problem_response
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.http.responses import limit_body
from wikiholt.interfaces.mcp.authorization_server import CONSENT_PATH, AuthorizationServer, make_grant

_FIELDS = ("client_id", "redirect_uri", "explicit", "state", "scope", "code_challenge", "resource")
_MAX_FIELD_CHARS = 4000
_MAX_FORM_BYTES = 64 * 1024
_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem; }
label, input[type=password] { display: block; width: 100%; box-sizing: border-box; font: inherit; }
input[type=password], button { padding: .5rem; margin: .25rem 0 1rem; }
button { font: inherit; margin-right: .5rem; } [role=alert] { border-left: .3rem solid #b00; padding-left: .8rem; }
code { overflow-wrap: anywhere; }
"""
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def create_consent_route(server: AuthorizationServer) -> Route:
    """The route of the consent page."""
    page = _ConsentPage(server)
    return Route(CONSENT_PATH, page.handle, methods=["GET", "POST"])


class _ConsentPage:
    def __init__(self, server: AuthorizationServer) -> None:
        self._server = server

    async def handle(self, request: Request) -> Response:
        limited = Request(request.scope, limit_body(request.scope, request.receive, _MAX_FORM_BYTES))
        form = await limited.form() if request.method == "POST" else None
        source = form if form is not None else request.query_params
        fields = {name: str(source.get(name, ""))[:_MAX_FIELD_CHARS] for name in _FIELDS}
        try:
            await run_in_threadpool(get_request_context(request).count_request)
            client = await self._check_request(fields)
        except WikiholtError as error:
            return make_problem_response(error)
        if form is None:
            return _render(client, fields, "", 200)
        if form.get("action") != "approve":
            return _redirect(fields, {"error": "access_denied"})
        try:
            code = await run_in_threadpool(self._approve, client, fields, str(form.get("key", "")))
        except WikiholtError as error:
            return _render(client, fields, " ".join(get_public_message(error)), error.status)
        return _redirect(fields, {"code": code})

    async def _check_request(self, fields: dict[str, str]) -> OAuthClientInformationFull:
        """Check again what the authorization endpoint has checked. Raises InvalidQuery."""
        client = await self._server.get_client(fields["client_id"])
        try:
            if client is None or not fields["code_challenge"]:
                raise InvalidQuery("This request is not valid.", hint="Start again in the agent.")
            client.validate_redirect_uri(AnyUrl(fields["redirect_uri"]))
        except (ValidationError, InvalidRedirectUriError):
            raise InvalidQuery("This request is not valid.", hint="Start again in the agent.") from None
        return client

    def _approve(self, client: OAuthClientInformationFull, fields: dict[str, str], token: str) -> str:
        """The code for what the holder of this key approves. Raises Unauthorized and Forbidden."""
        key = self._server.registry.keys.find_by_token(token.strip())
        if key is None:
            raise Unauthorized("This key is not valid.", hint="Check it; it may have been revoked.")
        wiki = self._find_wiki(key, fields["resource"])
        scope = Scope.WRITE if "write" in fields["scope"].split() and key.scope.allows(Scope.WRITE) else Scope.READ
        grant = make_grant(client.client_id, key.id, wiki.id, scope, fields)
        return self._server.registry.oauth.approve(grant)

    def _find_wiki(self, key: Key, resource: str) -> Wiki:
        """The wiki that the request names, or else that of the key. Raises Forbidden."""
        slug = self._server.find_slug(resource) if resource else None
        try:
            if resource and slug is not None:
                wiki = self._server.registry.get(slug)
            elif not resource and key.wiki_id is not None:
                wiki = self._server.registry.get_by_id(key.wiki_id)
            else:
                raise Forbidden("The agent named no wiki.", hint="Use the address of one wiki, which ends in /mcp.")
        except WikiNotFound:
            raise _make_other_wiki_error() from None
        if key.wiki_id not in (None, wiki.id):
            raise _make_other_wiki_error()
        return wiki


def _make_other_wiki_error() -> Forbidden:
    return Forbidden("This key is not for the wiki that the agent asks for.", hint="Use a key of that wiki.")


def _redirect(fields: dict[str, str], answer: dict[str, str]) -> Response:
    """Send the person back to the agent, to a URI that was registered exactly so."""
    uri = fields["redirect_uri"]
    parameters = answer | ({"state": fields["state"]} if fields["state"] else {})
    location = f"{uri}{'&' if urlsplit(uri).query else '?'}{urlencode(parameters)}"
    return RedirectResponse(location, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def _render(client: OAuthClientInformationFull, fields: dict[str, str], problem: str, status: int) -> Response:
    parts = urlsplit(fields["redirect_uri"])
    origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(fields[name])}">' for name in _FIELDS)
    may = "read and change pages" if "write" in fields["scope"].split() else "read pages"
    wiki = f" of <code>{escape(fields['resource'])}</code>" if fields["resource"] else ""
    name = escape((client.client_name or "An agent without a name")[:100])
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Approve an agent</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>"
        f"<h1>Approve an agent?</h1>{alert}<p><strong>{name}</strong> (the name is its own) wants to {may}{wiki}. "
        f"It gets the answer at <code>{escape(origin)}</code>.</p>"
        "<p>Approve it only if you started this just now. Revoking the key ends its access.</p>"
        f'<form method="post" autocomplete="off">{hidden}<label for="key">Your key</label>'
        '<input id="key" name="key" type="password" autocomplete="off" spellcheck="false">'
        '<button name="action" value="approve">Approve</button><button name="action" value="deny">Deny</button>'
        "</form></main></body></html>"
    )
    # Browsers apply form-action also to the redirect that follows the form.
    target = origin if origin.isascii() and not set(origin) & set(" ;,'\"") else "'self'"
    csp = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; form-action 'self' {target}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, status, {"Content-Security-Policy": csp, "Cache-Control": "no-store"})
