"""The pages a browser is given. They hold nothing of any wiki: that comes from the API, with the visitor's key."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.errors import WikiholtError
from wikiholt.model import Scope
from wikiholt.surfaces.http.problems import refused
from wikiholt.surfaces.http.visits import Visitor
from wikiholt.surfaces.web import plain, preview
from wikiholt.surfaces.web.assets import assets
from wikiholt.surfaces.web.shell import Place, view
from wikiholt.wiring import Farm


def add_pages(app: FastAPI, farm: Farm) -> None:
    """Add the web page to an application: search, start page, status, their files, and the preview they show."""

    def start(request: Request) -> Response:
        place = Place.of(request)
        if place.slug is None and not _reads_one(Visitor(farm, request)):
            return view("wikis", place, title="Wikis")
        return view("search", place)

    def status(request: Request) -> Response:
        place = Place.of(request)
        if place.slug is None and not _reads_one(Visitor(farm, request)):
            return view("statuses", place, title="Status")
        return view("status", place, title="Status", heading=f"Index of {place.slug}" if place.slug else "Index")

    app.router.routes.extend(preview.router.routes)
    for path, answer in (
        ("/", start),
        ("/status", status),
        ("/find", plain.find),
        ("/read", plain.read),
        ("/favicon.ico", _favicon),
        ("/static/{version}/{name}", _asset),
    ):
        app.add_route(path, answer, methods=["GET"], include_in_schema=False)


def _reads_one(visitor: Visitor) -> bool:
    """Whether this visitor may read a wiki that needs no naming: the host's, or the only one there is."""
    try:
        visitor.wiki(Scope.READ)
    except WikiholtError:
        return False
    return True


def _asset(request: Request) -> Response:
    kept = assets()
    found = kept.served.get(request.path_params["name"])
    if found is None:
        return refused(404, "not-found", "There is no such file.", "")
    headers = {"Cache-Control": kept.kept(request.path_params["version"])}
    return Response(found.data, media_type=found.media_type, headers=headers)


def _favicon(_: Request) -> Response:
    icon = assets().served["favicon.svg"]
    return Response(icon.data, media_type=icon.media_type, headers={"Cache-Control": "public, max-age=86400"})
