"""The routes of the web page."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.api.bootstrap import Application
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.operation_routes import make_router
from wikiholt.interfaces.http.problem_details import make_error_response
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.web import browse_view, diagram_view, page_view, search_view
from wikiholt.interfaces.web.page_frame import PageContext, load_static_files, render_view
from wikiholt.interfaces.web.preview import PREVIEW_OPERATIONS
from wikiholt.interfaces.web.sign_in_view import add_sign_in_pages

# Views filled by scripts. The HTML contains no wiki data: scripts request that from the API with the user's key.


def add_pages(app: FastAPI, application: Application) -> None:
    """Add the routes of the web page: start page, search, reading, writing, administration and static files."""

    def handle_start(request: Request) -> Response:
        page = PageContext.from_request(request)
        if page.slug is None and not _can_read_default_wiki(request):
            return render_view("wikis", page, title="Wikis")
        # The layout is that of an open preview from the start, so that nothing moves when the script opens it.
        return render_view("search", page, body_class="reading" if request.query_params.get("page") else "")

    def handle_status(request: Request) -> Response:
        page = PageContext.from_request(request)
        if page.slug is None and not _can_read_default_wiki(request):
            return render_view("statuses", page, title="Status")
        return render_view("status", page, title="Status", heading=f"Index of {page.slug}" if page.slug else "Index")

    def handle_edit(request: Request) -> Response:
        return render_view("edit", PageContext.from_request(request), title="Edit", heading="Edit")

    def handle_manage(request: Request) -> Response:
        page = PageContext.from_request(request)
        return render_view("manage", page, title="Manage", heading=f"Manage {page.slug}" if page.slug else "Manage")

    add_sign_in_pages(app, application.settings)
    app.router.routes.extend(make_router("/api/v1", PREVIEW_OPERATIONS).routes)
    for path, handler in (
        ("/", handle_start),
        ("/status", handle_status),
        ("/edit", handle_edit),
        ("/manage", handle_manage),
        ("/find", search_view.handle_search),
        ("/browse", browse_view.handle_browse),
        ("/read", page_view.handle_page),
        ("/source", page_view.handle_source),
        ("/history", page_view.handle_history),
        ("/diff", page_view.handle_diff),
        ("/files/{path:path}", page_view.handle_file),
        ("/diagram", diagram_view.handle_frame),
        ("/diagram/{version}/{name}", diagram_view.handle_script),
        ("/opensearch.xml", search_view.handle_description),
        ("/suggest", search_view.handle_suggestions),
        ("/favicon.ico", _handle_favicon),
        ("/box.js", _handle_box),
        ("/static/{version}/{name}", _handle_static_file),
    ):
        app.add_route(path, handler, methods=["GET"], include_in_schema=False)


def _can_read_default_wiki(request: Request) -> bool:
    """Whether the client may read the default wiki: the one of the host name, or the only one."""
    try:
        get_request_context(request).open_wiki(Scope.READ)
    except WikiholtError:
        return False
    return True


def _handle_static_file(request: Request) -> Response:
    static_files = load_static_files()
    file = static_files.files.get(request.path_params["name"])
    if file is None:
        return make_error_response(404, "not-found", "File not found.", "")
    headers = {
        "Cache-Control": static_files.get_cache_control(request.path_params["version"]),
        "Vary": "Accept-Encoding",
    }
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.data, media_type=file.media_type, headers=headers)
    return Response(file.compressed, media_type=file.media_type, headers=headers | {"Content-Encoding": "gzip"})


def _handle_favicon(_: Request) -> Response:
    icon = load_static_files().files["favicon.svg"]
    return Response(icon.data, media_type=icon.media_type, headers={"Cache-Control": "public, max-age=86400"})


def _handle_box(_: Request) -> Response:
    """The search box for pages of other sites, which may load only this script from here."""
    script = load_static_files().files["box.js"]
    headers = {"Cache-Control": "public, max-age=3600", "Cross-Origin-Resource-Policy": "cross-origin"}
    return Response(script.data, media_type=script.media_type, headers=headers)
