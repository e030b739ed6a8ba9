"""The pages that the plugin adds to Otterwiki, in its theme: search, and how the index stands."""

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, abort, make_response, redirect, render_template, request, url_for

from wikiholt.surfaces.otterwiki.assets import load_plugin_files
from wikiholt.surfaces.otterwiki.host import PluginRuntime
from wikiholt.surfaces.otterwiki.injects import RUNTIME_EXTENSION_KEY, render_scripts
from wikiholt.surfaces.otterwiki.shown import format_age, build_search_content, render_hit_snippet

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
    return _make_private_response(render_template("wikiholt/search.html", title=title, given=given, shown=build_search_content(runtime, given)))


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
