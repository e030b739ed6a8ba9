"""The protocol inside a host such as Otterwiki, which decides who may what: the same address, below its API."""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from agent_ground import posted
from served_farm import Served, served

from wikiholt.model import Author, Scope
from wikiholt.surfaces.http.admission import Admission
from wikiholt.surfaces.http.app import create_guest_app
from wikiholt.surfaces.otterwiki.bridge import Answered, Bridge

ADA = Author("Ada", "ada@example.org")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Bridge]]:
    with served(tmp_path_factory.mktemp("guest"), keys=False) as found:
        yield found, Bridge(create_guest_app(found.farm), 1_000_000)


def asked(ground: tuple[Served, Bridge], *scopes: Scope, **call: Any) -> tuple[Answered, Admission]:
    """What somebody with these rights gets for one call of a tool."""
    served_farm, bridge = ground
    body, headers = posted("tools/call" if call else "tools/list", call)
    admission = Admission(served_farm.farm.service.registry.get("alpha"), frozenset(scopes), ADA)
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


def test_a_reader_reads_and_a_writer_writes_and_the_host_is_told(ground: tuple[Served, Bridge]) -> None:
    listed, _ = asked(ground, Scope.READ)
    assert listed.status == 200
    assert len(json.loads(listed.body)["result"]["tools"]) == 9
    read, _ = asked(ground, Scope.READ, name="read_page", arguments={"path": "Coffee"})
    assert "Descale" in json.loads(read.body)["result"]["structuredContent"]["content"]
    refused, _ = asked(ground, Scope.READ, name="write_page", arguments={"path": "New", "content": "x"})
    assert json.loads(refused.body)["result"]["isError"] is True
    wrote, admission = asked(
        ground, Scope.READ, Scope.WRITE, name="write_page", arguments={"path": "New", "content": "x\n"}
    )
    assert json.loads(wrote.body)["result"]["structuredContent"]["created"] is True
    assert [commit.path for commit in admission.commits] == ["New"]
    assert ground[0].alpha.git("log", "-1", "--format=%an").decode().strip() == "Ada"


def test_who_may_nothing_gets_nothing(ground: tuple[Served, Bridge]) -> None:
    for scopes in ((), (Scope.WRITE,)):
        assert asked(ground, *scopes)[0].status == 401
    long = {"path": "Home", "section": "x" * 70_000}
    assert asked(ground, Scope.READ, name="read_page", arguments=long)[0].status == 400
