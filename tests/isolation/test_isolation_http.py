"""Isolation over HTTP: no caller, request or host name gets content of a wiki that the caller may not read."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.isolation.canaries import find_codes
from tests.isolation.http_cases import (
    ApiRoute,
    BuiltRequest,
    RequestBuilder,
    RequestCase,
    list_routes,
    make_random_address,
)
from tests.isolation.http_environment import SECRET_WORD, WIKI_COUNT, ServedEnvironment, run_behind_proxy
from tests.isolation.http_gate import LeakDetector, find_foreign_words
from tests.isolation.http_load import BATCH_COUNT, RANDOM, make_own_request, read_stored, run_load, wait_until_idle
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.search import SearchInterface, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, WikiNotFound
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.access import AccessPolicy, Grant, RequestIdentity
from wikiholt.wikis.handle import WikiHandle

BROWSER_QUERIES = {
    **dict.fromkeys(("/find", "/suggest"), "?q=pump&n=100"),
    **dict.fromkeys(("/read", "/source", "/history", "/diff"), "?page=Home"),
}
"""Parameters of routes that are not in the OpenAPI document."""


@pytest.fixture(scope="module", autouse=True)
def _quiet_clients() -> Iterator[None]:
    """Silence the HTTP clients, which log their requests: only the logs of the service are checked."""
    loggers = [logging.getLogger(name) for name in ("httpx", "httpcore", "uvicorn.access", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironment]:
    made = ServedEnvironment(tmp_path_factory.mktemp("served"))
    made.application.scheduler.start()
    yield made
    assert made.application.scheduler.stop(TIMEOUT_S)
    made.application.service.close()


@pytest.fixture(scope="module")
def base(env: ServedEnvironment) -> Iterator[str]:
    with run_behind_proxy(env.app) as address:
        yield address


@pytest.fixture(scope="module")
def detector(env: ServedEnvironment, base: str) -> Iterator[LeakDetector]:
    made = LeakDetector(env, base)
    yield made
    made.close()


@pytest.fixture(scope="module")
def builder(env: ServedEnvironment) -> RequestBuilder:
    return RequestBuilder(env, list_routes(env.app))


def _make_query(route: ApiRoute) -> str:
    if "q" in route.query:
        at = "&at=HEAD" if "at" in route.query else ""
        return f"?q=pump&n=100{at}" if "n" in route.query else "?q=pump"
    return "?path=Home" if route.path.endswith("similar") else ""


def test_every_route_returns_the_content_of_the_own_wiki(
    env: ServedEnvironment, detector: LeakDetector, builder: RequestBuilder
) -> None:
    """A precondition of the other tests: every read route returns the words of the own wiki."""
    seen: dict[str, set[str]] = {}
    for route in (route for route in builder.routes if route.method == "GET" and not route.is_service_route):
        for wiki in env.wikis[:3]:
            query = BROWSER_QUERIES.get(route.path) or _make_query(route)
            file = f"Home/{wiki.filename}" if route.path.startswith("/files/") else "Home"
            url = route.path.replace("{path}", file).replace("{slug}", wiki.slug)
            url = url.replace("{filename}", wiki.filename) + query
            for prefix in ("", f"/w/{wiki.slug}"):
                answer = detector.send(make_own_request(detector, wiki, f"{prefix}{url}"))
                assert answer is not None
                seen.setdefault(route.path, set()).update(find_codes(answer.text))
                refused = route.is_global_route or (route.needs_more_than_reading and answer.status_code == 403)
                assert answer.status_code < 400 or refused, f"{url}: {answer.status_code} {answer.text}"
    assert detector.leaks == []
    complete = [path for path, found in seen.items() if len(found) == 3]
    assert len(complete) >= 8, seen


def test_no_response_contains_content_of_a_wiki_the_caller_may_not_read(
    env: ServedEnvironment, detector: LeakDetector, builder: RequestBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    run_load(env, detector, builder, caplog, BATCH_COUNT)
    assert detector.statuses[200] >= 100
    assert detector.leaks == []


def test_the_command_line_shows_only_the_wiki_it_is_called_for(
    env: ServedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    for me, other in ((env.wikis[1], env.wikis[2]), (env.wikis[11], env.wikis[3])):
        commands = [
            ["status", me.slug],
            ["key", "list", me.slug],
            ["search", "-w", me.slug, "pump", "--mode", "keyword"],
        ]
        commands += [["search", "-w", me.slug, "pump", "--mode", "keyword", "--tag", other.get_word("tag")]]
        commands += [["set", me.slug, f"hosts={other.host}"], ["key", "revoke", "aaaaaaaaaaaa"]]
        for arguments in commands:
            for options in ([], ["--json"]):
                main(["--data", str(env.data), *arguments, *options])
                output = "".join(capsys.readouterr())
                assert output.strip()
                assert find_foreign_words(output, " ".join(arguments), {me.code}) == [], arguments
                assert me.secret not in output
                assert env.operator not in output


def test_metrics_name_no_wiki(env: ServedEnvironment, detector: LeakDetector) -> None:
    sent = BuiltRequest("GET", "/metrics", {"Authorization": f"Bearer {env.operator}"}, is_open=True, caller="operator")
    answer = detector.send(sent)
    assert answer is not None
    assert answer.status_code == 200
    assert "wikiholt_requests" in answer.text
    assert find_codes(answer.text) == set()
    assert not any(wiki.id in answer.text for wiki in env.wikis)
    assert detector.leaks == []


def test_a_missing_wiki_and_a_forbidden_wiki_get_the_same_response(
    env: ServedEnvironment, detector: LeakDetector
) -> None:
    me, other = env.wikis[0], env.wikis[1]
    for key in (me.keys["read"], None, other.keys["expired"]):
        headers = {"Host": "127.0.0.1", "X-Forwarded-For": make_random_address(RANDOM)} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        for url in ("/api/v1/search?q=pump", "/api/v1/pages/Home", "/api/v1/status", "/api/v1/reindex/status"):
            answers = []
            for slug in (other.slug, "wiki-that-is-not-there"):
                answer = detector.send(BuiltRequest("GET", f"/w/{slug}{url}", headers, caller="other wiki"))
                assert answer is not None
                fixed = {name: text for name, text in answer.headers.items() if name not in ("date", "ratelimit")}
                answers.append((answer.status_code, answer.text.replace(slug, "SLUG"), fixed))
            assert answers[0] == answers[1]
            assert answers[0][0] in (401, 403)
    assert detector.leaks == []


def test_the_admin_of_one_wiki_manages_no_other(env: ServedEnvironment, detector: LeakDetector) -> None:
    me, other = env.wikis[13], env.wikis[14]
    wait_until_idle(env, other)
    stored, head = read_stored(env, other), other.repository.get_head()
    keys = env.application.service.registry.keys.list(other.id)
    content = json.dumps({"content": "# Home"}).encode()
    changed = json.dumps({"settings": {"public": "true"}}).encode()
    calls = [
        ("GET", path, b"")
        for path in ("me", "keys", "backups", "report", "duplicates", "reindex/status", f"wikis/{other.slug}")
    ]
    calls += [("GET", "settings", b""), ("POST", "keys", b"{}"), ("DELETE", f"keys/{other.key_ids[0]}", b"")]
    calls += [("POST", path, b"") for path in ("wake", "reindex", "reindex?dry_run=true", "backup", "restore")]
    calls += [("POST", "preview/Home", content), ("PUT", "pages/Home", content), ("DELETE", "pages/Home", b"")]
    calls += [("PATCH", f"wikis/{other.slug}", changed), ("DELETE", f"wikis/{other.slug}", b"")]
    headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {me.keys['admin']}", "Content-Type": "application/json"}
    for method, path, body in calls:
        sent = BuiltRequest(method, f"/w/{other.slug}/api/v1/{path}", headers, body, caller="another wiki's admin")
        answer = detector.send(sent)
        assert answer is not None
        assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
    revoked = detector.send(BuiltRequest("DELETE", f"/api/v1/keys/{other.key_ids[0]}", headers, caller="an admin"))
    assert revoked is not None
    assert revoked.status_code == 404
    assert detector.leaks == []
    assert env.application.service.registry.keys.list(other.id) == keys
    assert other.repository.get_head() == head
    assert read_stored(env, other) == stored


# ── checks of the leak detector ──────────────────────────────────────────────────────────────────────────────────────


class PermissiveAccess(AccessPolicy):
    """Access rules without the check that a key opens only one wiki."""

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        try:
            return super().authorize(identity, required_scope)
        except Forbidden:
            return Grant(self._registry.get(identity.slug or ""), Scope.READ, None)


class VerboseAccess(AccessPolicy):
    """Access rules whose error message names other wikis."""

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        try:
            return super().authorize(identity, required_scope)
        except Forbidden:
            wikis = self._registry.list_wikis()
            raise WikiNotFound(f"Not this one. There are {wikis[0].slug} and {wikis[1].id}.") from None


def find_leaks(env: ServedEnvironment, builder: RequestBuilder, access: AccessPolicy) -> list[str]:
    """The leaks of a service with these access rules."""
    app = create_app(replace(env.application, access=access))
    with run_behind_proxy(app) as address:
        detector = LeakDetector(env, address)
        rng = Random(3)
        found = [builder.build(_make_case(rng, len(builder.routes))) for _ in range(400)]
        detector.send_all(request for request in found if request.method == "GET")
        detector.close()
    return detector.leaks


def _make_case(rng: Random, routes: int) -> RequestCase:
    remaining = WIKI_COUNT - 4
    me, other = rng.randrange(remaining), rng.randrange(remaining)
    return RequestCase(rng.randrange(routes), "read", "own", "other's", me, other, rng.randrange(2**32))


@pytest.mark.parametrize("kind", [PermissiveAccess, VerboseAccess])
def test_the_leak_detector_finds_faulty_access_rules(
    env: ServedEnvironment, builder: RequestBuilder, kind: type[AccessPolicy]
) -> None:
    hosts = {"domain": env.application.settings.serve_domain, "public": False, "own_hosts": ()}
    registry = env.application.service.registry
    assert find_leaks(env, builder, AccessPolicy(registry, **hosts)) == []
    assert len(find_leaks(env, builder, kind(registry, **hosts))) > 10


def test_the_leak_detector_finds_a_search_in_the_wrong_wiki(
    env: ServedEnvironment, builder: RequestBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_handle = env.application.service.get_handle(env.wikis[3].slug)
    original = WikiHandle.search

    def search(
        self: WikiHandle, request: SearchRequest, *, interface: SearchInterface | None = None, snapshot: object = None
    ) -> SearchResult:
        return original(wrong_handle, request, interface=interface)

    monkeypatch.setattr(WikiHandle, "search", search)
    with run_behind_proxy(env.app) as address:
        detector = LeakDetector(env, address)
        detector.send(make_own_request(detector, env.wikis[0], "/api/v1/search?q=pump&mode=keyword"))
        detector.close()
    assert len(detector.leaks) == 1
    assert env.wikis[3].get_word(SECRET_WORD) in detector.leaks[0]
    assert "GET /api/v1/search" in detector.leaks[0]


@pytest.mark.parametrize(
    "text", ["zqbcdfgbchushx", "a%7Aqbcdfgbchushx", "enFiY2RmZ2JjaHVzaHggYW5kIG1vcmU=", "&#122;qbcdfgbchushx"]
)
def test_the_leak_detector_finds_encoded_words(text: str) -> None:
    assert find_foreign_words(f"x {text} y", "GET /?q=zqbcdfgbcbodyx", {"bcdfgbd"})
    assert not find_foreign_words(f"x {text} y", "", {"bcdfgbc"})


def test_a_response_may_repeat_words_of_its_request() -> None:
    assert not find_foreign_words("there is no page zqbcdfgbcpathx", "GET /zqbcdfgbcpathx", {"bcdfgbd"})
    assert find_foreign_words(
        "there is no page zqbcdfgbcpathx, but zqbcdfgbctitlex", "GET /zqbcdfgbcpathx", {"bcdfgbd"}
    ) == ["zqbcdfgbctitlex"]


def test_all_routes_are_tested(env: ServedEnvironment, builder: RequestBuilder) -> None:
    assert len(builder.routes) > 25
    assert ApiRoute("GET", "/api/v1/status", (), ()) in builder.routes
    assert all(
        "{" not in Path(builder._fill_path(route, _AnyWords(), RequestCase(0, "", "", "", 0, 1, 0))).as_posix()
        for route in builder.routes
    )


class _AnyWords:
    """Placeholder values for path parameters."""

    def __getattr__(self, name: str) -> object:
        return lambda: "x"
