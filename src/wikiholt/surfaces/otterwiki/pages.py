"""The pages that the plugin adds to Otterwiki, in its theme: search, and how the index stands."""

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, abort, make_response, redirect, render_template, request, url_for

from wikiholt.surfaces.otterwiki.assets import assets
from wikiholt.surfaces.otterwiki.host import Host
from wikiholt.surfaces.otterwiki.injects import KEPT, scripts
from wikiholt.surfaces.otterwiki.shown import ago, shown, snippet

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

_REPEATED = ("tag", "category")
_SINGLE = ("q", "mode", "path", "since", "n")


def register(app: Flask, host: Host) -> None:
    """Add the pages to the wiki."""
    app.extensions[KEPT] = host
    blueprint = Blueprint("wikiholt", __name__, url_prefix="/-/wikiholt", template_folder="templates")
    blueprint.add_url_rule("/search", "search", lambda: search(host))
    blueprint.add_url_rule("/admin", "admin", admin)
    blueprint.add_url_rule("/static/<version>/<name>", "asset", asset)
    blueprint.add_app_template_global(scripts, "wikiholt_scripts")
    blueprint.add_app_template_filter(snippet, "wikiholt_snippet")
    blueprint.add_app_template_filter(ago, "wikiholt_ago")
    app.register_blueprint(blueprint)


def search(host: Host) -> "AnyResponse":
    """The search page, with the results of what its address asks for: it works without script."""
    if (refusal := _refusal("READ")) is not None:
        return refusal
    given: dict[str, Any] = {name: request.args[name] for name in _SINGLE if request.args.get(name)}
    given |= {name: request.args.getlist(name) for name in _REPEATED if request.args.get(name)}
    title = given.get("q") or "Search"
    return _private(render_template("wikiholt/search.html", title=title, given=given, shown=shown(host, given)))


def admin() -> "AnyResponse":
    """How the index stands, and building it anew; for administrators."""
    if (refusal := _refusal("ADMIN")) is not None:
        return refusal
    return _private(render_template("wikiholt/admin.html", title="Search index"))


def asset(version: str, name: str) -> Response:
    """A file for the browser; it says nothing of any wiki, so that anybody may have it."""
    kept = assets()
    found = kept.served.get(name)
    if found is None:
        abort(404)
    return Response(found.data, mimetype=found.media_type, headers={"Cache-Control": kept.kept(version)})


def _refusal(permission: str) -> "AnyResponse | None":
    """What Otterwiki answers whoever lacks this permission: the way to the login, or 403 to who is known already."""
    # Otterwiki loads this after its plugins.
    from otterwiki.auth import current_user, has_permission  # noqa: PLC0415

    if has_permission(permission):
        return None
    if current_user.is_authenticated:
        abort(403)
    return redirect(url_for("login", next=request.full_path))


def _private(page: str) -> Response:
    response = make_response(page)
    response.headers["Cache-Control"] = "private, no-cache"
    return response
