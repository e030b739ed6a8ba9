"""The frame in which a browser draws Mermaid diagrams, and the library that it loads.

A diagram is content that nobody trusts, and the library is large. The frame has no origin, so that nothing in it can
read or change the wiki, and no policy lets it load anything but these scripts.
"""

import gzip
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from wikiholt.interfaces.web.page_frame import load_static_files

MERMAID = "mermaid-12.3.0.min.js"
_FRAME_SCRIPT = "diagram_frame.js"
_FRAME_CSP = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_SHARED = {"Cross-Origin-Resource-Policy": "cross-origin", "Vary": "Accept-Encoding"}
"""A frame without an origin is another site for the browser."""


def handle_frame(_: Request) -> Response:
    """The document of the frame."""
    version = load_static_files().version
    scripts = "".join(f'<script src="diagram/{version}/{name}"></script>' for name in (MERMAID, _FRAME_SCRIPT))
    html = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Diagrams</title><body>{scripts}'
    return HTMLResponse(html, headers={"Content-Security-Policy": _FRAME_CSP, "Cache-Control": "no-cache"})


def handle_script(request: Request) -> Response:
    """A script of the frame."""
    name = request.path_params["name"]
    if name == MERMAID:
        compressed = _load_mermaid()
    elif name == _FRAME_SCRIPT:
        compressed = load_static_files().files[name].compressed
    else:
        return Response("File not found.", 404)
    cache_control = load_static_files().get_cache_control(request.path_params["version"])
    headers = {"Cache-Control": cache_control, **_SHARED}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(compressed), media_type="text/javascript", headers=headers)
    return Response(compressed, media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})


@cache
def _load_mermaid() -> bytes:
    return files("wikiholt.interfaces.web").joinpath("vendor", f"{MERMAID}.gz").read_bytes()
