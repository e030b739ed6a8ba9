"""Every operation on pages through every door: HTTP, a host application, agents, and the function itself.

A case says what a caller sends, and the error, a text of the answer, or the files of the repository afterwards. Files
are those of the wiki below; each case commits what else it needs, in its own folder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

import pydantic
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.interfaces.mcp.mcp_client import make_message
from tests.support.served_application import ServedApplication, serve_application
from wikiholt.api.operations.operation import Operation
from wikiholt.api.operations.parameters import BodyParameters
from wikiholt.api.operations.table import OPERATIONS_OF_WIKI
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope as KeyScope
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.request_context import HOST_GRANT_KEY, HostGrant
from wikiholt.interfaces.mcp.tools import get_tools
from wikiholt.wikis.access import Grant

OPERATIONS = {operation.name: operation for operation in OPERATIONS_OF_WIKI}
READ = "<the revision that was read>"
"""Replaced by the revision of the page of the case."""
STALE = "0" * 40


@dataclass(frozen=True)
class Case:
    """A call of an operation, and what must follow."""

    operation: str
    sent: Mapping[str, Any]
    error: str = ""
    shows: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str | None] = field(default_factory=dict)
    """The texts of files; None for a file that must not exist."""

    def __str__(self) -> str:
        return f"{self.operation} {self.error or self.shows or 'ok'} {' '.join(map(str, self.sent.values()))}"[:80]


TWO = {"P.md": "one two two\n"}
PARTS = "# T\n\n## A\n\none one\n\n### Deep\n\nx\n\n## B\n\ntwo\n"
TREE = {
    "T.md": "See [o](T/Oak.md), ![p](T/p.png).\n",
    "T/Oak.md": "Of [t](../T.md).\n",
    "T/p.png": "PNG",
    "L.md": "To [t](T.md).\n",
}
CASES = (
    Case("read_page", {"path": "Equipment/Printer"}, shows="rear flap"),
    Case("read_page", {"path": "equipment/printer.md"}, shows="rear flap"),
    Case("read_page", {"path": "Equipment/Printr"}, "page-not-found"),
    Case("read_page", {"path": "../outside"}, "page-not-found"),
    Case("read_page", {"path": "Home", "revision": "deadbee"}, "page-not-found"),
    Case("list_pages", {"tag": ["kitchen"]}, shows="Coffee"),
    Case("list_pages", {"prefix": "Equipment"}, shows="Equipment/Printer"),
    Case("list_pages", {"where": ["category>office"]}, "invalid-query"),
    Case("list_pages", {"limit": 50_000}, "invalid-input"),
    Case("history", {"path": "Coffee"}, shows="Coffee"),
    Case("history", {"path": "Nowhere"}, "page-not-found"),
    Case("changelog", {"prefix": "Equipment"}, shows="Equipment/Printer"),
    Case("links", {"path": "Coffee"}, shows="Home"),
    Case("links", {"path": "Nowhere"}, "page-not-found"),
    Case("orphans", {}, shows="Home"),
    Case("facets", {}, shows="kitchen"),
    Case("search", {"q": "drum worn out"}, shows="Equipment/Printer"),
    Case("search", {"q": 'a tag:"b'}, "invalid-query"),
    Case("search", {"q": "???", "mode": "keyword"}, "invalid-query"),
    Case("semantic_search", {"q": "printer"}, shows="Equipment/Printer"),
    Case("search", {"q": "   "}, "invalid-input"),
    Case("similar", {"path": "Home", "prefix": "Equipment"}, shows="Equipment/Printer"),
    Case("similar", {"path": "Nowhere"}, "page-not-found"),
    Case("list_attachments", {"path": "T"}, shows="p.png", before=TREE),
    Case("list_attachments", {"path": "Nowhere"}, "page-not-found"),
    Case("read_attachment", {"path": "T", "filename": "p.png"}, shows="UE5H", before=TREE),
    Case("read_attachment", {"path": "T", "filename": "q.png"}, "attachment-not-found", before=TREE),
    Case("put_page", {"path": "P", "content": "new\n"}, after={"P.md": "new\n"}),
    Case("put_page", {"path": "P", "content": "x"}, "revision-mismatch", before=TWO, after=TWO),
    Case("put_page", {"path": "P", "content": "x", "revision": STALE}, "revision-mismatch", before=TWO, after=TWO),
    Case("put_page", {"path": "P", "content": "new\n", "revision": READ}, before=TWO, after={"P.md": "new\n"}),
    Case("put_page", {"path": "P", "content": "x", "create_only": True}, "revision-mismatch", before=TWO, after=TWO),
    Case("put_page", {"path": "P", "content": "a\0b"}, "invalid-input", after={"P.md": None}),
    Case("put_page", {"path": "../P", "content": "x"}, "invalid-page"),
    Case("put_page", {"path": ".git/config", "content": "x"}, "invalid-page"),
    Case("put_page", {"path": "P", "content": "x" * (11 * 2**20)}, "too-large", after={"P.md": None}),
    Case(
        "patch_page",
        {"path": "P", "old_string": "one", "new_string": "1", "revision": READ},
        before=TWO,
        after={"P.md": "1 two two\n"},
    ),
    *(
        Case("patch_page", {"path": "P", "old_string": old, "new_string": new, "revision": READ}, error, "", TWO, TWO)
        for old, new, error in (
            ("two", "2", "invalid-page"),
            ("six", "6", "invalid-page"),
            ("one", "one", "invalid-page"),
            ("", "x", "invalid-page"),
        )
    ),
    Case(
        "patch_page",
        {"path": "P", "old_string": "one", "new_string": "1", "revision": STALE},
        "revision-mismatch",
        before=TWO,
        after=TWO,
    ),
    *(
        Case(
            "patch_page",
            {"path": "P", "revision": READ, "new_string": new, **part},
            before={"P.md": PARTS.replace("\n", end)},
            after={"P.md": text.replace("\n", end)},
        )
        for end in ("\n", "\r\n")
        for part, new, text in (
            ({"old_string": "one", "replace_all": True}, "1", PARTS.replace("one", "1")),
            ({"section": "A"}, "## A\n\nnew", "# T\n\n## A\n\nnew\n\n## B\n\ntwo\n"),
            ({"section": "B"}, "## B\n\nlast\n", PARTS.replace("two", "last")),
            ({"section": "Deep"}, "", PARTS.replace("### Deep\n\nx\n\n", "")),
            ({"from_line": 5, "to_line": 5}, "newer\nand newest", PARTS.replace("one one", "newer\nand newest")),
        )
    ),
    *(
        Case("patch_page", {"path": "P", "revision": READ, "new_string": "x", **part}, "invalid-page", "", TWO, TWO)
        for part in ({}, {"old_string": "one", "section": "B"}, {"from_line": 99}, {"section": "C"})
    ),
    Case("patch_page", {"path": "P", "from_line": 1, "new_string": "x"}, "invalid-page", "", TWO, TWO),
    Case("patch_page", {"path": "Nowhere", "old_string": "a", "new_string": "b", "revision": STALE}, "page-not-found"),
    Case("delete_page", {"path": "P"}, before=TWO, after={"P.md": None}),
    Case("delete_page", {"path": "P", "revision": READ}, before=TWO, after={"P.md": None}),
    Case("delete_page", {"path": "P", "revision": STALE}, "revision-mismatch", before=TWO, after=TWO),
    Case("delete_page", {"path": "Nowhere"}, "page-not-found"),
    Case(
        "rename_page",
        {"path": "T", "new_path": "Z", "revision": READ},
        shows="Z/Oak",
        before=TREE,
        after={
            "T.md": None,
            "T/p.png": None,
            "Z.md": "See [o](Z/Oak.md), ![p](Z/p.png).\n",
            "Z/Oak.md": "Of [t](../Z.md).\n",
            "Z/p.png": "PNG",
            "L.md": "To [t](Z.md).\n",
        },
    ),
    Case(
        "rename_page",
        {"path": "T", "new_path": "Z", "move_subpages": False, "update_links": False},
        before=TREE,
        after={"T.md": None, "Z.md": TREE["T.md"], "T/Oak.md": TREE["T/Oak.md"], "L.md": TREE["L.md"]},
    ),
    Case("rename_page", {"path": "T", "new_path": "Z", "revision": STALE}, "revision-mismatch", "", TREE, TREE),
    Case("rename_page", {"path": "T", "new_path": "L"}, "page-exists", "", TREE, TREE),
    Case("rename_page", {"path": "T", "new_path": "T"}, "invalid-page", "", TREE, TREE),
    Case("rename_page", {"path": "T", "new_path": "T/Inner"}, "invalid-page", "", TREE, TREE),
    Case("rename_page", {"path": "T", "new_path": ""}, "invalid-input", "", TREE, TREE),
    Case("rename_page", {"path": "Nowhere", "new_path": "Z"}, "page-not-found"),
    Case("attach", {"path": "P", "filename": "a b.txt", "content": "Qg=="}, before=TWO, after={"P/a b.txt": "B"}),
    Case("attach", {"path": "T", "filename": "p.png", "content": "Qg=="}, before=TREE, after={"T/p.png": "B"}),
    Case(
        "attach",
        {"path": "T", "filename": "p.png", "content": "Qg==", "create_only": True},
        "page-exists",
        before=TREE,
        after=TREE,
    ),
    Case("attach", {"path": "P", "filename": "a", "content": "no base64!"}, "invalid-page", before=TWO),
    Case("attach", {"path": "P", "filename": "../a", "content": ""}, "invalid-page", before=TWO),
    Case("attach", {"path": "P", "filename": "x.md", "content": ""}, "invalid-page", before=TWO),
    Case("attach", {"path": "Nowhere", "filename": "a", "content": ""}, "page-not-found"),
    Case("detach", {"path": "T", "filename": "p.png"}, before=TREE, after={"T/p.png": None, "T.md": TREE["T.md"]}),
    Case("detach", {"path": "T", "filename": "q.png"}, "attachment-not-found", "", TREE, TREE),
)


class HttpDoor:
    """Requests as the table of operations describes them."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def call(self, operation: Operation, sent: Mapping[str, Any]) -> tuple[str, str]:
        """The code of the error, or an empty text, and the text of the answer."""
        method, route = operation.route.split()
        in_path = {name: quote(value, safe="/") for name, value in sent.items() if f"{{{name}}}" in route}
        rest = {name: value for name, value in sent.items() if name not in in_path}
        key = "json" if issubclass(operation.parameters, BodyParameters) else "params"
        path = f"/api/v1{route.format(**in_path)}".replace("..", "%2E%2E")
        answer = self._client.request(method, path, **{key: rest})  # type: ignore[arg-type]
        return ("" if answer.is_success else answer.json()["code"]), answer.text


class AgentDoor:
    """Calls of the tool that is made from the operation."""

    _OTHER_OPERATIONS: ClassVar = {"patch_page": "edit_part", "read_page": "read_parts"}

    def __init__(self, served: ServedApplication) -> None:
        self._client = served.make_client("write")
        self._tools = {tool.operation.name: tool for tool in reversed(get_tools(aliases=True).values())}

    def call(self, operation: Operation, sent: Mapping[str, Any]) -> tuple[str, str]:
        tool = self._tools[self._OTHER_OPERATIONS.get(operation.name, operation.name)]
        names = {parameter: name for name, parameter in tool.parameter_names.items()}
        arguments = {names.get(name, name): value for name, value in sent.items()}
        body, headers = make_message("tools/call", {"name": tool.name, "arguments": arguments})
        result = self._client.post("/mcp", content=body, headers=headers).json()["result"]
        text = result["content"][0]["text"]
        return (text.partition(":")[0] if result["isError"] else ""), text


class FunctionDoor:
    """The functions themselves."""

    def __init__(self, served: ServedApplication) -> None:
        application = served.application
        self._wiki = application.open_session(Grant(application.service.registry.get("alpha"), KeyScope.ADMIN, None))

    def call(self, operation: Operation, sent: Mapping[str, Any]) -> tuple[str, str]:
        wiki = self._wiki
        try:
            parameters = operation.parameters.model_validate(dict(sent))
            if "snapshot" not in operation.run.__annotations__:
                return "", str(operation.run(wiki, parameters))
            with wiki.open_snapshot() as snapshot:
                return "", str(operation.run(wiki, parameters, snapshot))
        except pydantic.ValidationError:
            return "invalid-input", ""
        except WikiholtError as error:
            return error.code, ""


def open_host_door(served: ServedApplication) -> HttpDoor:
    """Requests that a host application, such as Otterwiki, passes on."""
    app = create_host_app(served.application)
    wiki = served.application.service.registry.get("alpha")
    grant = HostGrant(wiki, frozenset(KeyScope), Author("Gil", "gil@example.org"), can_attach=True, is_signed_in=True)

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, HOST_GRANT_KEY: grant}, receive, send)

    return HttpDoor(TestClient(handle))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("doors"), {"mcp.aliases": True}) as served:
        yield served


DOORS = {
    "http": lambda served: HttpDoor(served.make_client("write")),
    "host": open_host_door,
    "agent": AgentDoor,
    "function": FunctionDoor,
}


def list_cases(door: str) -> Iterator[Case]:
    """Every case, or the first of each operation and error: a host and the function use the same code as HTTP."""
    seen = set()
    for case in CASES:
        is_new = (case.operation, case.error) not in seen
        seen.add((case.operation, case.error))
        if door == "agent":
            is_new = "create_only" not in case.sent  # agents have no such argument
        if is_new or door == "http":
            yield case


@pytest.mark.parametrize(("door", "case"), [(door, case) for door in DOORS for case in list_cases(door)], ids=str)
def test_an_operation_does_the_same_through_every_door(served: ServedApplication, door: str, case: Case) -> None:
    repository, folder = served.alpha, f"{door} {CASES.index(case)}"

    def to_own(path: str) -> str:
        return f"{folder}/{path}" if path in ("P", "T", "Z", "L", "T/Inner") else path

    if case.before:
        repository.commit({f"{folder}/{name}": text for name, text in case.before.items()})
    sent = {name: to_own(value) if name in ("path", "new_path") else value for name, value in case.sent.items()}
    if sent.get("revision") == READ:
        sent["revision"] = repository.run_git("log", "-1", "--format=%H", "--", f"{sent['path']}.md").decode().strip()
    served.application.service.get_handle("alpha").sync()
    head = repository.get_head()
    error, text = DOORS[door](served).call(OPERATIONS[case.operation], sent)
    assert error == case.error, text
    assert case.shows in text
    if case.error:
        assert repository.get_head() == head
    for name, expected in case.after.items():
        file = repository.path / folder / name
        assert (file.read_bytes().decode() if file.exists() else None) == expected, name
