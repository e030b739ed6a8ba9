"""What a search page shows before any script runs: the same document that the API gives, put into words and marks."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, abort, make_response, redirect, render_template, request, url_for
from markupsafe import Markup
from pydantic import ValidationError

from wikiholt.domain.search import SearchInterface, Snippet, Span
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidQuery, WikiholtError
from wikiholt.interfaces.http.problem_details import get_public_message
from wikiholt.interfaces.http.query_params import SearchParams
from wikiholt.interfaces.http.snippet_html import render_snippet
from wikiholt.interfaces.otterwiki.page_injects import RUNTIME_EXTENSION_KEY, load_plugin_files, render_scripts
from wikiholt.interfaces.otterwiki.page_paths import get_request_paths
from wikiholt.interfaces.otterwiki.plugin_runtime import PluginRuntime
from wikiholt.interfaces.schemas.search_schemas import HitDocument, SearchResultDocument, build_result_document

_log = logging.getLogger(__name__)
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
    """An answer, or what is wrong, or neither where nothing is asked for."""

    answer: SearchResultDocument | None = None
    problem: str = ""
    hint: str = ""

    @property
    def first_weak(self) -> int:
        """The place of the hit before which it is said that what follows is less certain; 0 where none is."""
        hits = self.answer["results"] if self.answer else []
        return next((place for place, hit in enumerate(hits) if hit["confidence"] == "low"), 0)


def build_search_content(runtime: PluginRuntime, params: Mapping[str, Any]) -> SearchPageContent:
    """What is found for the parameters of an address; never raises what a reader can cause."""
    if not params.get("q", "").strip():
        return SearchPageContent()
    try:
        request = _parse_params(params).to_request()
        opened = replace(runtime.get_current_wiki().open_session(Scope.READ), path_style=get_request_paths())
        with opened.use_handle() as handle:
            asked = replace(request, where=opened.to_git_filter(request.where))
            answer = handle.search(asked, interface=SearchInterface.OTTERWIKI)
        return SearchPageContent(build_result_document(answer, opened.path_style))
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says so and the wiki's own search is a click away
        return _build_error_content(error)


def _build_error_content(error: Exception) -> SearchPageContent:
    """What a reader is told: their own mistakes in full, and of ours only what that means for them."""
    if isinstance(error, InvalidQuery) or (isinstance(error, WikiholtError) and error.status >= _SERVER_ERROR_STATUS):
        message, hint = get_public_message(error)
        return SearchPageContent(problem=message, hint=hint)
    known = isinstance(error, WikiholtError)
    _log.error("search is not possible: %s", error, exc_info=None if known else error)
    return SearchPageContent(
        problem="Search is not set up rightly in this wiki.", hint="Whoever runs it finds the reason in its log."
    )


def render_hit_snippet(hit: HitDocument) -> Markup:
    """The snippet as HTML with its matches and the closest sentence marked."""
    matches = tuple(Span(start, end) for start, end in hit["matches"])
    found = Snippet(hit["snippet"], matches, Span(*hit["sentence"]) if hit["sentence"] else None)
    return Markup(render_snippet(found))  # noqa: S704 - escaped there


def format_age(date: str) -> str:
    """How long ago a moment was, roughly."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds()
    for unit, size in _TIME_UNITS_S:
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _parse_params(params: Mapping[str, Any]) -> SearchParams:
    try:
        return SearchParams.model_validate(dict(params))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the search"
        raise InvalidQuery(f"{where}: {fault['msg']}", hint="Change the address, or search anew.") from None


# The pages that the plugin adds to Otterwiki, in its theme: search, and how the index stands.


if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

_REPEATED_PARAMS = ("tag", "category")
_SINGLE_PARAMS = ("q", "mode", "path", "since", "n")


def register(app: Flask, runtime: PluginRuntime) -> None:
    """Add the pages to the wiki."""
    app.extensions[RUNTIME_EXTENSION_KEY] = runtime
    blueprint = Blueprint("wikiholt", __name__, url_prefix="/-/wikiholt", template_folder="templates")
    blueprint.add_url_rule("/search", "search", lambda: render_search_page(runtime))
    blueprint.add_url_rule("/admin", "admin", render_admin_page)
    blueprint.add_url_rule("/static/<version>/<name>", "asset", serve_static_file)
    blueprint.add_app_template_global(render_scripts, "wikiholt_scripts")
    blueprint.add_app_template_filter(render_hit_snippet, "wikiholt_snippet")
    blueprint.add_app_template_filter(format_age, "wikiholt_ago")
    app.register_blueprint(blueprint)


def render_search_page(runtime: PluginRuntime) -> "AnyResponse":
    """The search page, with the results of what its address asks for: it works without script."""
    if (refusal := _check_permission("READ")) is not None:
        return refusal
    given: dict[str, Any] = {name: request.args[name] for name in _SINGLE_PARAMS if request.args.get(name)}
    given |= {name: request.args.getlist(name) for name in _REPEATED_PARAMS if request.args.get(name)}
    title = given.get("q") or "Search"
    return _make_private_response(
        render_template("wikiholt/search.html", title=title, given=given, shown=build_search_content(runtime, given))
    )


def render_admin_page() -> "AnyResponse":
    """How the index stands, and building it anew; for administrators."""
    if (refusal := _check_permission("ADMIN")) is not None:
        return refusal
    return _make_private_response(render_template("wikiholt/admin.html", title="Search index"))


def serve_static_file(version: str, name: str) -> Response:
    """A file for the browser; it says nothing of any wiki, so that anybody may have it."""
    kept = load_plugin_files()
    found = kept.files.get(name)
    if found is None:
        abort(404)
    return Response(found.data, mimetype=found.media_type, headers={"Cache-Control": kept.get_cache_control(version)})


def _check_permission(permission: str) -> "AnyResponse | None":
    """What Otterwiki answers whoever lacks this permission: the way to the login, or 403 to who is known already."""
    # Otterwiki loads this after its plugins.
    from otterwiki.auth import current_user, has_permission  # noqa: PLC0415

    if has_permission(permission):
        return None
    if current_user.is_authenticated:
        abort(403)
    return redirect(url_for("login", next=request.full_path))


def _make_private_response(page: str) -> Response:
    response = make_response(page)
    response.headers["Cache-Control"] = "private, no-cache"
    return response
