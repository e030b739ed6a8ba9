"""Pages as NDJSON over HTTP, and wikis without a source."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.served_application import ServedApplication
from tests.support.wait import TIMEOUT_S
from wikiholt.errors import Busy
from wikiholt.interfaces.http import bulk_write
from wikiholt.wikis.pages import bulk_writer

NDJSON = {"Content-Type": "application/x-ndjson"}
URL = "/api/v1/pages:bulk"


def to_ndjson(*lines: Mapping[str, object] | str) -> bytes:
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()


def post(served: ServedApplication, body: bytes, key: str | None = "write", url: str = URL) -> list[dict[str, Any]]:
    response = served.make_client(key).post(url, content=body, headers=NDJSON)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def test_lines_are_written_in_one_commit_and_answered_one_by_one(writable: ServedApplication) -> None:
    body = to_ndjson(
        {"path": "Bulk/One", "content": "# One\n"},
        "",
        {"path": "Home", "content": "# Home\n\nShort.\n"},
        "no json",
        {"path": "Bulk/../x", "content": "x"},
        {"path": "Coffee", "delete": True},
        {"path": "Neither"},
        {"path": "Unknown", "content": "x", "field": 1},
    )
    results = post(writable, body)
    assert [(result["line"], result["result"], result["path"]) for result in results] == [
        (1, "created", "Bulk/One"),
        (3, "updated", "Home"),
        (4, "failed", None),
        (5, "failed", "Bulk/../x"),
        (6, "deleted", "Coffee"),
        (7, "failed", "Neither"),
        (8, "failed", None),
    ]
    head = writable.alpha.get_head()
    assert {result["revision"] for result in results} == {head, None}
    assert all(result["error"]["code"] == "invalid-page" for result in results if result["result"] == "failed")
    assert writable.alpha.run_git("log", "-1", "--format=%an %s") == b"alpha write Import 3 pages"
    again = post(writable, body)
    assert [result["result"] for result in again[:2]] == ["unchanged", "unchanged"]
    assert writable.alpha.get_head() == head


def test_author_and_message_are_those_of_the_request(writable: ServedApplication) -> None:
    headers = {**NDJSON, "X-Author": "Ada <ada@example.org>"}
    body = to_ndjson({"path": "X", "content": "x"})
    writable.make_client("write").post(URL, params={"message": "From the old wiki"}, content=body, headers=headers)
    assert writable.alpha.run_git("log", "-1", "--format=%an %s") == b"Ada From the old wiki"


def test_another_media_type_and_too_many_lines_are_refused(
    writable: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = writable.make_client("write")
    assert client.post(URL, json={"path": "X", "content": "x"}).status_code == 422
    monkeypatch.setattr(bulk_write, "MAX_BULK_LINES", 2)
    lines = to_ndjson(*({"path": f"X{n}", "content": "x"} for n in range(4)))
    response = client.post(URL, content=lines, headers=NDJSON)
    assert (response.status_code, response.json()["code"]) == (413, "too-large")


def test_an_error_of_the_repository_is_an_error_response_or_fails_the_remaining_lines(
    writable: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_writer, "_BATCH_LINES", 2)
    pages = writable.application.service.get_handle("alpha").pages
    write, calls = pages.write_many, []

    def fail_later(*arguments: Any) -> list[bulk_writer.BulkLineResult]:
        calls.append(arguments)
        if len(calls) == 2:
            raise Busy("other writers", hint="try again")
        return write(*arguments)

    monkeypatch.setattr(pages, "write_many", fail_later)
    results = post(writable, to_ndjson(*({"path": f"X{n}", "content": "x"} for n in range(5))))
    assert [result["result"] for result in results] == ["created", "created", "failed", "failed", "failed"]
    assert {result["error"]["code"] for result in results[2:]} == {"busy"}
    assert len(calls) == 2
    calls[:] = [()]
    response = writable.make_client("write").post(URL, content=to_ndjson({"path": "Y", "content": ""}), headers=NDJSON)
    assert (response.status_code, response.json()["code"]) == (409, "busy")


def test_a_wiki_without_a_source_is_created_filled_searched_and_removed(writable: ServedApplication) -> None:
    operator = writable.make_client("operator")
    created = operator.post("/api/v1/wikis", json={"slug": "kept"})
    assert created.status_code == 201
    assert created.json()["settings"] == {"kind": "managed"}
    token = operator.post("/api/v1/keys", json={"wiki": "kept", "scope": "write"}).json()["token"]
    writable.tokens["kept"] = token
    assert post(writable, to_ndjson({"path": "Home", "content": "# Home\n\nkeptcanary\n"}), "kept")
    writable.application.scheduler.wait_until_fresh(writable.application.service.registry.get("kept").id, TIMEOUT_S)
    hits = writable.make_client("kept").get("/api/v1/search", params={"q": "keptcanary"}).json()["results"]
    assert [hit["path"] for hit in hits] == ["Home"]
    refused = operator.delete("/api/v1/wikis/kept")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert operator.delete("/api/v1/wikis/kept", params={"delete_pages": "true"}).status_code == 200
    assert writable.make_client("kept").get("/api/v1/pages/Home").status_code in (401, 403)


def test_the_kind_cannot_be_set(writable: ServedApplication) -> None:
    operator = writable.make_client("operator")
    body = {"slug": "odd", "source": str(writable.alpha.path), "settings": {"kind": "managed"}}
    assert operator.post("/api/v1/wikis", json=body).json()["code"] == "invalid-setting"
