"""Errors over HTTP: what a response contains and what it must not contain."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.served_application import ServedApplication, serve_application
from wikiholt import errors
from wikiholt.api.public_messages import get_public_message
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.problem_details import make_problem_response
from wikiholt.wikis.handle import WikiHandle

FIELDS = {"type", "title", "status", "detail", "code", "hint", "error"}


def iter_error_classes(kind: type[WikiholtError] = WikiholtError) -> Iterator[type[WikiholtError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from iter_error_classes(below)


def make_error(kind: type[WikiholtError]) -> WikiholtError:
    more = {errors.TooManyRequests: {"retry_after": 1.5}, errors.RevisionMismatch: {"current": "abc"}}
    extra = next((more[base] for base in kind.__mro__ if base in more), {})  # type: ignore[index]
    return kind("reason /srv/secret/path", hint="look at /srv/secret/path", **extra)  # type: ignore[arg-type]


def test_every_error_class_has_a_problem_document() -> None:
    for kind in iter_error_classes():
        answer = make_problem_response(make_error(kind))
        assert (answer.status_code, answer.media_type) == (kind.status, "application/problem+json"), kind
        assert kind.code in bytes(answer.body).decode()
        # Server errors may contain local paths, so their details are not sent.
        assert (b"/srv/secret" in bytes(answer.body)) == (kind.status < 500), kind
        assert all(get_public_message(make_error(kind))), kind


def test_an_unexpected_error_is_a_500_without_details(
    shared: ServedApplication, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret at /srv/secret/path")

    monkeypatch.setattr(WikiHandle, "search", fail)
    with caplog.at_level(logging.ERROR):
        client = shared.make_client("read")
        answer = client.get("/api/v1/search", params={"q": "private words"})
        page = client.get("/w/alpha/find", params={"q": "private words"}, headers={"Accept": "text/html"})
    assert answer.status_code == page.status_code == 500
    assert answer.json().keys() == FIELDS
    assert "This page could not be shown." in page.text
    assert "secret" not in answer.text + page.text
    assert "RuntimeError" in caplog.text
    assert "private words" not in caplog.text


def test_a_wiki_without_an_index_sends_retry_after(
    writable: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise errors.IndexMissing("no index in /srv/secret/path")

    monkeypatch.setattr(WikiHandle, "open_snapshot", missing)
    answer = writable.make_client("read").get("/api/v1/search", params={"q": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "index-missing")
    assert int(answer.headers["retry-after"]) >= 1
    assert "secret" not in answer.text


def test_an_unknown_path_and_an_unsupported_method(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    for path in ("/api/v1/nothing", "/w/alpha/nothing", "/w/alpha/w/beta/api/v1/status", "/api/v2/search"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    wrong = client.post("/api/v1/pages/Home", json={})
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")
    assert wrong.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"
    assert client.request("BREW", "/healthz").status_code == 405


def test_a_path_that_is_not_utf8_is_refused_and_writes_nothing(writable: ServedApplication) -> None:
    client, before = writable.make_client("write"), writable.alpha.get_head()
    for method in ("GET", "PUT", "DELETE"):
        answer = client.request(method, "/w/alpha/api/v1/pages/Caf%E9", content="# A page")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-input")
    assert writable.alpha.get_head() == before
    assert client.put("/w/alpha/api/v1/pages/Odd%EF%BF%BD", json={"content": "# A page"}).status_code == 201


def test_a_body_over_the_limit_is_rejected_with_or_without_content_length(writable: ServedApplication) -> None:
    limit = writable.application.settings.limit_body_bytes
    before, client = writable.alpha.get_head(), writable.make_client("write")
    announced = client.put("/api/v1/pages/X", content=b"x" * (limit + 1), headers={"Content-Type": "application/json"})
    assert (announced.status_code, announced.json()["code"]) == (413, "too-large")

    def parts() -> Iterator[bytes]:
        for _ in range(limit // 65536 + 2):
            yield b"x" * 65536

    streamed = client.put("/api/v1/pages/X", content=parts(), headers={"Content-Type": "application/json"})
    assert (streamed.status_code, streamed.json()["code"]) == (413, "too-large")
    hook = client.post("/w/alpha/api/v1/webhook", content=parts())
    assert hook.status_code == 413
    assert writable.alpha.get_head() == before


def test_an_oversized_page_is_rejected(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("small"), {"page.max_bytes": 2048}) as served:
        answer = served.make_client("write").put("/api/v1/pages/X", json={"content": "x" * 3000})
        assert answer.status_code == 413


def test_rate_limits_are_announced_and_enforced(tmp_path_factory: pytest.TempPathFactory) -> None:
    limits = {"limit.key_per_minute": 60, "limit.address_per_minute": 30}
    with serve_application(tmp_path_factory.mktemp("limits"), limits) as served:
        served.stop_refilling()
        client = served.make_client("read")
        first = client.get("/api/v1/status")
        assert first.headers["ratelimit-policy"] == '"minute";q=60;w=60'
        assert first.headers["ratelimit"].startswith('"minute";r=19;t=')
        answers = [client.get("/api/v1/status") for _ in range(30)]
        last = answers[-1]
        assert (last.status_code, last.json()["code"]) == (429, "too-many-requests")
        assert int(last.headers["retry-after"]) >= 1
        assert last.headers["ratelimit"].startswith('"minute";r=0;t=')
        assert served.make_client("operator").get("/w/alpha/api/v1/status").status_code == 200
        without = [served.make_client().get("/w/alpha/api/v1/status").status_code for _ in range(30)]
        assert set(without) == {401, 429}


def test_every_response_has_security_headers(shared: ServedApplication) -> None:
    for path in ("/api/v1/status", "/healthz", "/openapi.json", "/docs", "/nowhere", "/metrics"):
        headers = shared.make_client("read").get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_cors_allows_only_configured_origins(tmp_path_factory: pytest.TempPathFactory) -> None:
    origin = "https://wiki.example.org"
    with serve_application(tmp_path_factory.mktemp("cors"), {"serve.cors_origins": [origin]}) as served:
        client = served.make_client("read")
        allowed = client.get("/api/v1/status", headers={"Origin": origin})
        assert allowed.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in allowed.headers
        foreign = client.get("/api/v1/status", headers={"Origin": "https://evil.example.org"})
        assert "access-control-allow-origin" not in foreign.headers
        preflight_headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "If-Match",
        }
        assert client.options("/w/alpha/api/v1/pages/X", headers=preflight_headers).status_code == 200


def test_the_openapi_document_fits_the_address_and_names_no_wiki(shared: ServedApplication) -> None:
    for slug in ("alpha", "beta"):
        document = shared.make_client().get(f"/w/{slug}/openapi.json").json()
        assert document["servers"] == [{"url": f"/w/{slug}"}]
    text = shared.make_client().get("/openapi.json").text
    assert '"servers":[{"url":"/"}]' in text
    assert "alpha" not in text
    assert "beta" not in text


def test_the_docs_page_loads_nothing_external(shared: ServedApplication) -> None:
    page = shared.make_client().get("/docs")
    assert page.status_code == 200
    for outside in ("http://", "https://", "//cdn", "<script", "<link", "<img"):
        assert outside not in page.text
    assert "GET /api/v1/semantic-search" in page.text


def test_readiness_names_the_component_that_is_not_ready(writable: ServedApplication) -> None:
    def missing() -> None:
        raise errors.ModelMissing("nothing in /srv/secret/path")

    from dataclasses import replace

    writable.application.service.components = replace(writable.application.service.components, embedder=missing)  # type: ignore[arg-type]
    answer = writable.make_client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["model"] == {"ready": False, "code": "model-missing"}
    assert answer.json()["registry"]["ready"]
    assert "secret" not in answer.text
    assert writable.make_client().get("/healthz").json()["status"] == "ok"
    assert writable.make_client().get("/api/v1/health").json()["status"] == "ok"


def test_metrics_contain_neither_queries_nor_names(shared: ServedApplication) -> None:
    shared.make_client("read").get("/w/alpha/api/v1/search", params={"q": "private words"})
    shared.make_client("read").get("/w/alpha/api/v1/pages/Home")
    shared.make_client("read").get("/private/address")
    text = shared.make_client("operator").get("/metrics").text
    assert 'wikiholt_requests_total{method="GET",route="/api/v1/search",status="200"}' in text
    assert "wikiholt_scheduler_wikis 2.0" in text
    for word in ("private", "alpha", "beta", "Home"):
        assert word not in text


def get_problem(error: WikiholtError) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bytes(make_problem_response(error).body))
    return document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("there is no page 'Home'", "There is no page 'Home'."),
        ("a date is missing", "A date is missing."),
        ("A key is required.", "A key is required."),
        ("n is 0", "n is 0"),
        ("old_string is empty", "old_string is empty"),
        ("max_n: wrong", "max_n: wrong"),
        ("limit: wrong", "limit: wrong"),
        ("is it there?", "Is it there?"),
        ("", ""),
    ],
)
def test_messages_and_hints_are_sentences(text: str, expected: str) -> None:
    problem = get_problem(errors.InvalidInput(text, hint=text))
    assert problem["detail"] == problem["hint"] == expected


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (errors.WikiNotFound("gone", hint="`wikiholt list` shows all wikis."), "/api/v1/wikis lists"),
        (errors.Busy("it is being removed", hint="run wikiholt list"), "Ask the operator"),
        (errors.QueryLogNotFound("none", hint="`wikiholt set SLUG log_queries=true`"), "log_queries"),
    ],
)
def test_a_hint_for_a_client_names_no_command_of_the_server(error: WikiholtError, hint: str) -> None:
    problem = get_problem(error)
    assert hint in problem["hint"]
    assert "wikiholt " not in problem["hint"] + problem["error"]


def test_an_unknown_wiki_and_a_missing_key_name_no_command(shared: ServedApplication) -> None:
    unknown = shared.make_client("operator").get("/w/no-such/api/v1/pages")
    refused = shared.make_client().get("/w/alpha/api/v1/pages")
    assert (unknown.status_code, refused.status_code) == (404, 401)
    assert "wikiholt " not in unknown.json()["hint"] + refused.json()["hint"]


def test_a_page_that_does_not_exist_has_similar_paths(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    for path in ("pages/Equipment/Printr", "pages/Equipment/Printr/history", "similar?path=Equipmen/Printer"):
        problem = client.get(f"/w/alpha/api/v1/{path}").json()
        assert problem["code"] == "page-not-found", path
        assert problem["hint"] == "Did you mean 'Equipment/Printer'?", path
        assert problem["error"].endswith("Did you mean 'Equipment/Printer'?")
    far = client.get("/w/alpha/api/v1/pages/Qqqq/Zzzzzz").json()
    assert far["hint"] == "List the pages to see their paths."
    refused = shared.make_client().get("/w/alpha/api/v1/pages/Equipment/Printr")
    assert refused.status_code == 401
    assert "Printer" not in refused.text
