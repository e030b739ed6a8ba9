"""MCP inside a host such as Otterwiki, which decides permissions: the same path below the API."""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from flask import Response

from tests.interfaces.mcp.mcp_client import make_message
from tests.interfaces.mcp.test_tools import READ_TOOLS
from tests.support.served_application import ServedApplication, serve_application
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.request_context import HostGrant
from wikiholt.interfaces.otterwiki.api import AsgiBridge

ADA = Author("Ada", "ada@example.org")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedApplication, AsgiBridge]]:
    with serve_application(tmp_path_factory.mktemp("guest"), keys=False) as served:
        yield served, AsgiBridge(create_host_app(served.application), 1_000_000)


def call_embedded(
    embedded: tuple[ServedApplication, AsgiBridge], *scopes: Scope, **call: Any
) -> tuple[Response, HostGrant]:
    """Call one tool with these scopes and return the response."""
    served_farm, bridge = embedded
    body, headers = make_message("tools/call" if call else "tools/list", call)
    admission = HostGrant(served_farm.application.service.registry.get("alpha"), frozenset(scopes), ADA)
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/api/v1/mcp",
        "SERVER_NAME": "wiki.example",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body.encode()),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": headers.pop("Content-Type"),
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()},
    }
    return bridge.call(environ, admission), admission


def test_a_reader_reads_and_a_writer_writes_and_the_host_is_notified(
    embedded: tuple[ServedApplication, AsgiBridge],
) -> None:
    listed, _ = call_embedded(embedded, Scope.READ)
    assert listed.status_code == 200
    assert len(json.loads(listed.data)["result"]["tools"]) == len(READ_TOOLS)
    read, _ = call_embedded(embedded, Scope.READ, name="read_page", arguments={"paths": ["Coffee"]})
    assert "Descale" in json.loads(read.data)["result"]["structuredContent"]["content"]
    refused, _ = call_embedded(embedded, Scope.READ, name="write_page", arguments={"path": "New", "content": "x"})
    assert json.loads(refused.data)["result"]["isError"] is True
    wrote, admission = call_embedded(
        embedded, Scope.READ, Scope.WRITE, name="write_page", arguments={"path": "New", "content": "x\n"}
    )
    assert json.loads(wrote.data)["result"]["structuredContent"]["created"] is True
    assert [commit.path for commit in admission.commits] == ["New"]
    assert embedded[0].alpha.run_git("log", "-1", "--format=%an").decode().strip() == "Ada"


def test_a_missing_page_leads_to_write_page_only_if_it_can_be_called(
    embedded: tuple[ServedApplication, AsgiBridge],
) -> None:
    arguments = {"path": "Never Written"}
    read_only, _ = call_embedded(embedded, Scope.READ, name="read_page", arguments=arguments)
    writable, _ = call_embedded(embedded, Scope.READ, Scope.WRITE, name="read_page", arguments=arguments)
    assert b"Call search or list_pages" in read_only.data
    assert b"write_page" not in read_only.data
    assert b"write_page creates a new page." in writable.data


def test_without_scopes_every_call_is_rejected(embedded: tuple[ServedApplication, AsgiBridge]) -> None:
    for scopes in ((), (Scope.WRITE,)):
        assert call_embedded(embedded, *scopes)[0].status_code == 401
    long = {"path": "Home", "section": "x" * 70_000}
    assert call_embedded(embedded, Scope.READ, name="read_page", arguments=long)[0].status_code == 400
