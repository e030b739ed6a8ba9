"""The search and admin pages in Otterwiki's theme, the HTML injected into its other pages, and their static files.

The search page works without JavaScript. Injected HTML never delays a page. Users without READ permission get nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from markupsafe import Markup
from pydantic import ValidationError

from wikiholt.api.documents.search_documents import (
    HitDocument,
    SearchResultDocument,
    build_result_document,
    render_matches,
    render_snippet,
)
from wikiholt.api.filter_params import FILTER_PARAMS
from wikiholt.api.operations.search import SearchParameters
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.search import SearchInterface, Snippet, Span
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexMissing, IndexRepairing, InvalidQuery, NothingIndexed, WikiholtError
from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files
from wikiholt.interfaces.otterwiki import log_once
from wikiholt.interfaces.otterwiki.plugin_runtime import PluginRuntime
from wikiholt.interfaces.otterwiki.wiki_resolver import get_request_paths

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

_SERVER_ERROR_STATUS = 500
_TIME_UNITS_S = (
    ("year", 31_536_000),
    ("month", 2_592_000),
    ("week", 604_800),
    ("day", 86_400),
    ("hour", 3600),
    ("minute", 60),
)


@dataclass(frozen=True, slots=True)
class SearchPageContent:
    """A search result, or an error, or neither without a query."""

    answer: SearchResultDocument | None = None
    problem: str = ""
    hint: str = ""
    is_first_indexing: bool = False
    """Whether the wiki is being indexed for the first time, which is no error."""

    @property
    def first_weak(self) -> int:
        """The index of the first hit with low confidence; 0 if there is no divider to show."""
        hits = self.answer["results"] if self.answer else []
        return next((index for index, hit in enumerate(hits) if hit["confidence"] == "low"), 0)


def build_search_content(runtime: PluginRuntime, params: Mapping[str, Any]) -> SearchPageContent:
    """Search for the query parameters. Never raises; errors become part of the content."""
    if not params.get("q", "").strip():
        return SearchPageContent()
    try:
        search = _parse_params(params).to_request()
        session = replace(runtime.get_current_wiki().open_session(Scope.READ), path_style=get_request_paths())
        with session.use_handle() as handle:
            search = replace(search, where=session.to_git_filter(search.where))
            result = handle.search(search, interface=SearchInterface.OTTERWIKI)
        return SearchPageContent(build_result_document(result, session.path_style))
    except Exception as error:  # noqa: BLE001 - the page shows the error and a link to Otterwiki's own search
        return _build_error_content(error)


def _build_error_content(error: Exception) -> SearchPageContent:
    """The error that a user may see: invalid queries in full, other errors without details."""
    if isinstance(error, InvalidQuery) or (isinstance(error, WikiholtError) and error.status >= _SERVER_ERROR_STATUS):
        message, hint = get_public_message(error)
        is_first_indexing = isinstance(error, IndexMissing | NothingIndexed) and not isinstance(error, IndexRepairing)
        return SearchPageContent(problem=message, hint=hint, is_first_indexing=is_first_indexing)
    log_once("search failed", error)
    return SearchPageContent(
        problem="Search is not set up correctly in this wiki.", hint="The log of Otterwiki says why."
    )


def render_hit_snippet(hit: HitDocument) -> Markup:
    """The snippet as HTML with its matches and the closest sentence marked."""
    matches = tuple(Span(start, end) for start, end in hit["matches"])
    snippet = Snippet(hit["snippet"], matches, Span(*hit["sentence"]) if hit["sentence"] else None)
    return Markup(render_snippet(snippet))  # noqa: S704 - render_snippet escapes


def render_hit_matches(text: str, spans: Sequence[Sequence[int]]) -> Markup:
    """A name or heading as HTML with its matches marked."""
    return Markup(render_matches(text, [Span(start, end) for start, end in spans]))  # noqa: S704 - it escapes


def format_age(date: str) -> str:
    """The approximate age of a date in words."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds()
    for unit, size in _TIME_UNITS_S:
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _parse_params(params: Mapping[str, Any]) -> SearchParameters:
    try:
        return SearchParameters.model_validate(dict(params))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, fault["loc"])) or "query"
        raise InvalidQuery(f"{field}: {fault['msg']}", hint="Correct the URL, or search again.") from None


# Flask views


_REPEATED_PARAMS = tuple(param.name for param in FILTER_PARAMS if param.is_list)
_RUNTIME_KEY = "wikiholt"
"""The key of the PluginRuntime in `app.extensions`."""
_SINGLE_PARAMS = ("q", "mode", "path", "n", *(param.name for param in FILTER_PARAMS if not param.is_list))


def register(app: Flask, runtime: PluginRuntime) -> None:
    """Add the views to Otterwiki."""
    app.extensions[_RUNTIME_KEY] = runtime
    blueprint = Blueprint("wikiholt", __name__, url_prefix="/-/wikiholt", template_folder="templates")
    blueprint.add_url_rule("/search", "search", lambda: render_search_page(runtime))
    blueprint.add_url_rule("/admin", "admin", render_admin_page)
    blueprint.add_url_rule("/static/<version>/<name>", "asset", serve_static_file)
    blueprint.add_app_template_global(render_scripts, "wikiholt_scripts")
    blueprint.add_app_template_filter(render_hit_snippet, "wikiholt_snippet")
    blueprint.add_app_template_filter(render_hit_matches, "wikiholt_matches")
    blueprint.add_app_template_filter(format_age, "wikiholt_ago")
    app.register_blueprint(blueprint)


def render_search_page(runtime: PluginRuntime) -> "AnyResponse":
    """Render the search page with the results for its URL."""
    if (login := _check_permission("READ")) is not None:
        return login
    params: dict[str, Any] = {name: request.args[name] for name in _SINGLE_PARAMS if request.args.get(name)}
    params |= {name: request.args.getlist(name) for name in _REPEATED_PARAMS if request.args.get(name)}
    title = params.get("q") or "Search"
    return _make_private_response(
        render_template(
            "wikiholt/search.html", title=title, params=params, content=build_search_content(runtime, params)
        )
    )


def render_admin_page() -> "AnyResponse":
    """Render the admin page: index status and reindex."""
    if (login := _check_permission("ADMIN")) is not None:
        return login
    return _make_private_response(render_template("wikiholt/admin.html", title="Search index"))


def serve_static_file(version: str, name: str) -> Response:
    """A static file; it needs no permission, because it contains no wiki data."""
    static_files = load_plugin_files()
    file = static_files.files.get(name)
    if file is None:
        abort(404)
    headers = {"Cache-Control": static_files.get_cache_control(version)}
    return Response(file.data, mimetype=file.media_type, headers=headers)


def _check_permission(permission: str) -> "AnyResponse | None":
    """Return a redirect to the login if the user lacks the permission; abort with 403 if the user is signed in."""
    from otterwiki.auth import current_user  # noqa: PLC0415 - Otterwiki loads this module after its plugins

    if _has_permission(permission):
        return None
    if current_user.is_authenticated:
        abort(403)
    return redirect(url_for("login", next=request.full_path))


def _make_private_response(page: str) -> Response:
    response = make_response(page)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


# HTML that is injected into the pages of Otterwiki. It only links scripts, which request data from the API.


@cache
def load_plugin_files() -> StaticFiles:
    """Read the static files of the web page; files of the plugin replace those with the same name."""
    return read_static_files(get_web_static_directory(), files(__package__).joinpath("static"))


@cache
def _find_script_imports(*scripts: str) -> tuple[str, ...]:
    """The direct and indirect imports of these scripts, without the scripts themselves."""
    imports = {name for script in scripts for name in load_plugin_files().find_imports(script)}
    return tuple(sorted(imports - {*scripts}))


def render_head(_: object) -> str | None:
    """The HTML for the head of every page: the stylesheet and the search box scripts."""
    if not _has_permission("READ"):
        return None
    runtime: PluginRuntime = current_app.extensions[_RUNTIME_KEY]
    scripts = [
        "search_box.js",
        *(["suggestions.js"] if runtime.config.dropdown else []),
        *(["menu.js"] if _has_permission("ADMIN") else []),
    ]
    return f'<link rel="stylesheet" href="{_get_static_base()}wiki.css">{render_scripts(*scripts)}'


def render_sidebar(page: object) -> str | None:
    """An empty element for the sidebar, which a script fills with linking and related pages."""
    if not page or not _has_permission("READ"):
        return None
    return (
        f'<div class="wikiholt" id="app.related" data-page="{escape(str(page))}" hidden></div>'
        f"{render_scripts('related_pages.js')}"
    )


def render_scripts(*names: str) -> str:
    """Script tags with preload links for all imports, so that the browser fetches them at once."""
    base = _get_static_base()
    preloads = "".join(f'<link rel="modulepreload" href="{base}{name}">' for name in _find_script_imports(*names))
    return preloads + "".join(f'<script type="module" src="{base}{name}"></script>' for name in names)


def _get_static_base() -> str:
    """The URL prefix of static files, which includes the prefix of the wiki."""
    return escape(
        url_for("wikiholt.asset", version=load_plugin_files().version, name="wiki.css").removesuffix("wiki.css")
    )


def _has_permission(permission: str) -> bool:
    from otterwiki.auth import has_permission  # noqa: PLC0415 - see above

    return bool(has_permission(permission))
