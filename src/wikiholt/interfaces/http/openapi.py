"""The OpenAPI document, and an HTML page that shows it without scripts or external files."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from wikiholt.interfaces.http.problem_details import PROBLEM_SCHEMA, ProblemDetails
from wikiholt.interfaces.http.query_params import describe_query_params
from wikiholt.interfaces.http.responses import make_json_response
from wikiholt.interfaces.http.write_request import describe_body

_REF_TEMPLATE = "#/components/schemas/{model}"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; } h3 { margin-bottom: 0; }
code { font-family: ui-monospace, monospace; } table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
"""
_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document, once per application."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        problem = TypeAdapter(ProblemDetails).json_schema(ref_template=_REF_TEMPLATE)
        components["schemas"] |= problem.pop("$defs", {}) | {PROBLEM_SCHEMA: problem}
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A Wikiholt key."}}
        document["security"] = [{"key": []}]
        for route in app.routes:
            if isinstance(route, APIRoute):
                for method in route.methods or ():
                    operation = document["paths"][route.path_format][method.lower()]
                    operation["parameters"] = [*operation.get("parameters", ()), *describe_query_params(route)]
                    if body := describe_body(route, components["schemas"]):
                        operation["requestBody"] = body
        app.openapi_schema = document
    return app.openapi_schema


def handle_openapi(request: Request) -> Response:
    """Return the document, with the base path of the request as its server URL."""
    base = request.scope.get("root_path", "") or "/"
    return make_json_response(
        build_openapi(request.app) | {"servers": [{"url": base}]}, headers={"Cache-Control": "no-cache"}
    )


def handle_docs(request: Request) -> Response:
    """Return an HTML page with all operations."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    page = "".join(_render_page(build_openapi(request.app)))
    return HTMLResponse(page, headers={"Content-Security-Policy": _CSP.format(digest=digest)})


def _render_page(api: Mapping[str, Any]) -> Iterator[str]:
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
    yield f"<h1>{title}</h1><p>{escape(api['info'].get('description', ''))}</p>"
    yield '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
    tag = None
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                yield f"<h2>{escape(tag.capitalize())}</h2>"
            yield from _render_operation(path, method, operation)
    yield "</body></html>"


def _render_operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation.get('description', ''))}</p>"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "<table><tr><th>Parameter<th>In<th>Description</tr>"
        for parameter in parameters:
            required = " (required)" if parameter.get("required") else ""
            meaning = escape(parameter.get("description", ""))
            yield f"<tr><td><code>{escape(parameter['name'])}</code>{required}<td>{parameter['in']}<td>{meaning}</tr>"
        yield "</table>"
    yield f"<p>Responses: {', '.join(sorted(operation['responses']))}</p>"
