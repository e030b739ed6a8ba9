"""The route that serves images and attachments of a wiki from its repository."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.request_context import RequestContext
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, matches_etag

_SHOWN_MEDIA_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml"}
)
"""Media types that a browser may show. All other files are downloads."""
SANDBOX_CSP = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
"""Nothing runs and nothing is loaded if a file, such as an SVG image, is opened by itself."""


def handle_file(request: Request) -> Response:
    """Return a file of the wiki: an image to show, or a download."""
    wiki = RequestContext(request.app.state.application, request).open_wiki(Scope.READ)
    file = wiki.handle.pages.read_file(request.path_params["path"])
    is_shown = file.media_type in _SHOWN_MEDIA_TYPES
    headers = {
        "Cache-Control": PRIVATE_CACHE_CONTROL,
        "Content-Security-Policy": SANDBOX_CSP,
        "ETag": f'"{file.blob}"',
    }
    if matches_etag(request.headers.get("if-none-match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    disposition = "inline" if is_shown else "attachment"
    headers["Content-Disposition"] = f"{disposition}; filename*=UTF-8''{quote(file.name, safe='')}"
    return Response(file.data, 200, headers, media_type=file.media_type if is_shown else "application/octet-stream")
