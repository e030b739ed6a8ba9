"""The pages a browser is given. They hold nothing of any wiki: that comes from the API, with the visitor's key."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.errors import WikiholtError
from wikiholt.model import Scope
from wikiholt.surfaces.http.problems import make_error_response
from wikiholt.surfaces.http.visits import RequestContext
from wikiholt.surfaces.web import plain, preview
from wikiholt.surfaces.web.assets import load_static_files
from wikiholt.surfaces.web.shell import PageContext, render_view
from wikiholt.wiring import Application


def add_pages(app: FastAPI, application: Application) -> None:
    """Add the web page to an application: search, start page, status, their files, and the preview they show."""

    def start(request: Request) -> Response:
        place = PageContext.from_request(request)
        if place.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("wikis", place, title="Wikis")
        return render_view("search", place)

    def status(request: Request) -> Response:
        place = PageContext.from_request(request)
        if place.slug is None and not _can_read_default_wiki(RequestContext(application, request)):
            return render_view("statuses", place, title="Status")
        return render_view("status", place, title="Status", heading=f"Index of {place.slug}" if place.slug else "Index")

    app.router.routes.extend(preview.router.routes)
    for path, answer in (
        ("/", start),
        ("/status", status),
        ("/find", plain.handle_search),
        ("/read", plain.handle_page),
        ("/favicon.ico", _handle_favicon),
        ("/static/{version}/{name}", _handle_static_file),
    ):
        app.add_route(path, answer, methods=["GET"], include_in_schema=False)


def _can_read_default_wiki(context: RequestContext) -> bool:
    """Whether this visitor may read a wiki that needs no naming: the host's, or the only one there is."""
    try:
        context.open_wiki(Scope.READ)
    except WikiholtError:
        return False
    return True


def _handle_static_file(request: Request) -> Response:
    kept = load_static_files()
    found = kept.files.get(request.path_params["name"])
    if found is None:
        return make_error_response(404, "not-found", "There is no such file.", "")
    headers = {"Cache-Control": kept.get_cache_control(request.path_params["version"])}
    return Response(found.data, media_type=found.media_type, headers=headers)


def _handle_favicon(_: Request) -> Response:
    icon = load_static_files().files["favicon.svg"]
    return Response(icon.data, media_type=icon.media_type, headers={"Cache-Control": "public, max-age=86400"})
