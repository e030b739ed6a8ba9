"""The isolation gate over HTTP: whoever asks, whatever for, under whichever name, nothing of another wiki is told."""

import hashlib
import hmac
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.isolation.canaries import find_codes
from tests.isolation.http_cases import (
    ApiRoute,
    BuiltRequest,
    RequestBuilder,
    RequestCase,
    list_routes,
    make_random_address,
    make_random_case,
    request_cases,
)
from tests.isolation.http_farm import SECRET_WORD, WIKI_COUNT, ServedFarm, ServedWiki, run_server
from tests.isolation.http_gate import LeakDetector, find_foreign_words
from tests.isolation.mcp_cases import make_mcp_request
from wikiholt.domain.search import SearchInterface, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, WikiNotFound
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.access import AccessPolicy, Grant, RequestIdentity
from wikiholt.wikis.handle import WikiHandle

BATCH_SIZE, BATCH_COUNT = 48, int(os.environ.get("GATE_BATCHES", "16"))
"""Requests sent at once, and how often; `make gate` sends more."""
MCP_REQUESTS_PER_BATCH = 6
"""Messages of agents in every batch."""
RANDOM = Random(1)


@pytest.fixture(scope="module", autouse=True)
def _quiet_clients() -> Iterator[None]:
    """Clients log what they send; that is no log of the service's."""
    loggers = [logging.getLogger(name) for name in ("httpx", "httpcore", "uvicorn.access", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFarm]:
    made = ServedFarm(tmp_path_factory.mktemp("served"))
    made.application.scheduler.start()
    yield made
    assert made.application.scheduler.stop(30)
    made.application.service.close()


@pytest.fixture(scope="module")
def base(farm: ServedFarm) -> Iterator[str]:
    with run_server(farm.app) as address:
        yield address


@pytest.fixture(scope="module")
def gate(farm: ServedFarm, base: str) -> Iterator[LeakDetector]:
    made = LeakDetector(farm, base)
    yield made
    made.close()


@pytest.fixture(scope="module")
def writer(farm: ServedFarm) -> RequestBuilder:
    return RequestBuilder(farm, list_routes(farm.app))


def make_own_request(
    gate: LeakDetector, wiki: ServedWiki, url: str, key: str = "read", method: str = "GET", **named: str
) -> BuiltRequest:
    """A request that its sender may make."""
    headers = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {wiki.keys[key]}",
        "X-Forwarded-For": make_random_address(RANDOM),
    }
    return BuiltRequest(method, url, headers | named, b"", frozenset({wiki.code}), caller=f"{wiki.slug} itself")


def _make_query(route: ApiRoute) -> str:
    return "?q=pump&n=100" if "q" in route.query else "?path=Home" if route.path.endswith("similar") else ""


def test_every_wiki_reads_its_own_on_every_route(farm: ServedFarm, gate: LeakDetector, writer: RequestBuilder) -> None:
    """What makes the rest worth anything: the words are there to be told, on every address that reads."""
    heard: dict[str, set[str]] = {}
    for route in (route for route in writer.routes if route.method == "GET" and not route.is_service_route):
        for wiki in farm.wikis[:3]:
            asks = {"/find": "?q=pump&n=100", "/read": "?page=Home"}.get(route.path) or _make_query(route)
            url = route.path.replace("{path}", "Home").replace("{slug}", wiki.slug)
            url = url.replace("{filename}", wiki.filename) + asks
            for prefix in ("", f"/w/{wiki.slug}"):
                answer = gate.send(make_own_request(gate, wiki, f"{prefix}{url}"))
                assert answer is not None
                heard.setdefault(route.path, set()).update(find_codes(answer.text))
                refused = route.is_farm_route or (route.is_admin_route and answer.status_code == 403)
                assert answer.status_code < 400 or refused, f"{url}: {answer.status_code} {answer.text}"
    assert gate.leaks == []
    told = [path for path, found in heard.items() if len(found) == 3]
    assert len(told) >= 8, heard


class BackgroundChanges:
    """What goes on meanwhile: edits, webhooks, syncs, reindexing, keys that come and go, wikis that are removed."""

    def __init__(self, farm: ServedFarm, gate: LeakDetector) -> None:
        self._farm, self._gate = farm, gate
        self._finished = threading.Event()
        self._threads = ThreadPoolExecutor(4)
        self._work = [
            self._threads.submit(work)
            for work in (self._edit_pages, self._reindex_wikis, self._change_keys, self._remove_wikis)
        ]

    def stop(self) -> None:
        self._finished.set()
        for work in self._work:
            work.result()
        self._threads.shutdown()

    def _wait(self, seconds: float) -> bool:
        return not self._finished.wait(seconds)

    def _edit_pages(self) -> None:
        number = 0
        while self._wait(0.05):
            wiki = self._farm.wikis[10 + number % 5]
            number += 1
            wiki.commit_edit(number)
            body = json.dumps({"ref": wiki.get_word("branch")}).encode()
            digest = hmac.new(wiki.secret.encode(), body, hashlib.sha256).hexdigest()
            headers = {"X-Hub-Signature-256": f"sha256={digest}", "Content-Type": "application/json"}
            headers |= {"X-Forwarded-For": make_random_address(RANDOM)}
            answer = self._gate.send(
                BuiltRequest(
                    "POST", f"/w/{wiki.slug}/api/v1/webhook", headers, body, frozenset({wiki.code}), caller="git host"
                )
            )
            assert answer is not None
            assert answer.status_code == 202, answer.text

    def _reindex_wikis(self) -> None:
        number = 0
        while self._wait(0.2):
            wiki = self._farm.wikis[15]
            number += 1
            answer = self._gate.send(make_own_request(self._gate, wiki, "/api/v1/reindex", "admin", "POST"))
            assert answer is not None
            assert answer.status_code in (202, 409), answer.text
            self._gate.send(make_own_request(self._gate, wiki, "/api/v1/reindex/status"))

    def _change_keys(self) -> None:
        keys = self._farm.application.service.registry.keys
        while self._wait(0.05):
            for wiki in self._farm.wikis[4:7]:
                made, token = keys.create(wiki.id, Scope.READ, wiki.get_word("label"))
                sent = make_own_request(self._gate, wiki, "/api/v1/search?q=pump")
                right = replace(sent, headers=sent.headers | {"Authorization": f"Bearer {token}"})
                answer = self._gate.send(right)
                assert answer is not None
                assert answer.status_code == 200, answer.text
                keys.revoke(made.id)
                answer = self._gate.send(replace(right, allowed_wikis=frozenset(), caller="revoked just now"))
                assert answer is not None
                assert answer.status_code == 401, answer.text

    def _remove_wikis(self) -> None:
        for wiki in self._farm.wikis_to_remove:
            self._wait(0.5)
            removed = self._farm.application.service.remove(wiki.slug)
            assert find_codes(repr(removed)) == {wiki.code}


def test_no_request_of_anybody_is_told_of_a_wiki_that_is_not_theirs(
    farm: ServedFarm, gate: LeakDetector, writer: RequestBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    run_load(farm, gate, writer, caplog, BATCH_COUNT)
    assert gate.statuses[200] >= 100
    assert gate.leaks == []


def run_load(
    farm: ServedFarm, gate: LeakDetector, writer: RequestBuilder, caplog: pytest.LogCaptureFixture, batches: int
) -> None:
    """Send so many batches of requests while all kinds of work go on, and look at every answer and at what is left."""
    caplog.set_level(logging.DEBUG, "wikiholt")
    caplog.set_level(logging.INFO, "uvicorn.error")
    quiet = {wiki.slug: (read_stored(farm, wiki), wiki.repository.get_head()) for wiki in farm.read_only_wikis}
    sent: list[BuiltRequest] = []

    @given(
        st.lists(request_cases(len(writer.routes), WIKI_COUNT), min_size=BATCH_SIZE // 3, max_size=BATCH_SIZE // 3),
        st.integers(0, 2**64),
    )
    @settings(
        max_examples=batches,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def visited(batch: list[RequestCase], seed: int) -> None:
        rng = Random(f"{seed}/{len(sent)}")
        batch += [make_random_case(rng, len(writer.routes), WIKI_COUNT) for _ in range(BATCH_SIZE - len(batch))]
        # Among them those who may, so that there is something to be mixed up.
        for case in batch[-BATCH_SIZE // 3 :]:
            at = writer.read_routes[case.route % len(writer.read_routes)]
            batch.append(replace(case, route=at, caller="read", host="own", prefix=rng.choice(["none", "mine"])))
        requests = [writer.build(case) for case in batch]
        requests += [make_mcp_request(writer, rng) for _ in range(MCP_REQUESTS_PER_BATCH)]
        sent.extend(requests)
        gate.send_all(requests)

    gate.send_all(make_own_request(gate, wiki, "/api/v1/search?q=pump&n=100") for wiki in farm.wikis)
    weather = BackgroundChanges(farm, gate)
    try:
        visited()
    finally:
        weather.stop()
    assert not gate.leaks, f"{len(gate.leaks)} leaks; the first: {gate.leaks[0]}"
    assert len(sent) >= BATCH_SIZE * batches // 2
    assert_enough_load(gate)
    for wiki in farm.read_only_wikis:
        before = quiet[wiki.slug]
        assert (read_stored(farm, wiki), wiki.repository.get_head()) == before, wiki.slug
    assert_logs_clean(caplog)
    assert_own_content_only(farm)


def read_stored(farm: ServedFarm, wiki: ServedWiki) -> Mapping[str, object]:
    """What is kept of a wiki, but for small notes in a database, where each node leaves some that looks at it."""
    return {name: held for name, held in farm.backend.read_wiki(wiki.id).items() if not name.endswith(".notes")}


def assert_enough_load(gate: LeakDetector) -> None:
    """That the gate was passed by answers, not by silence."""
    assert len(gate.own_codes_seen) == WIKI_COUNT, (
        f"only {len(gate.own_codes_seen)} wikis were ever told of to their own visitors"
    )
    assert gate.mcp_outcomes["answered"] >= 3, gate.mcp_outcomes
    assert gate.mcp_outcomes["refused"] >= 3, gate.mcp_outcomes
    for status, least in ((200, 100), (401, 100), (403, 50), (404, 5), (422, 20)):
        assert gate.statuses[status] >= least, gate.statuses


def assert_logs_clean(caplog: pytest.LogCaptureFixture) -> None:
    """A line of the log may name the wiki it is about, and never two; and nothing that stands on a page."""
    for record in caplog.records:
        if record.name.startswith(("wikiholt", "uvicorn.error")):
            line = record.getMessage() + str(record.exc_text or "")
            assert len(find_codes(line)) <= 1, line
            assert SECRET_WORD not in line, line


def assert_own_content_only(farm: ServedFarm) -> None:
    """That no write went astray: neither an index nor a repository holds another wiki's words."""
    for wiki in farm.wikis:
        if wiki in farm.wikis_to_remove:
            assert not farm.backend.read_wiki(wiki.id)
            continue
        assert farm.backend.find_wiki_codes(wiki.id) <= {wiki.code}
        log = wiki.repository.run_git("log", "--all", "-p", "--text").decode("latin-1")
        assert find_codes(log) == {wiki.code}, wiki.slug


def test_the_command_line_tells_of_the_one_wiki_it_is_asked_about(
    farm: ServedFarm, capsys: pytest.CaptureFixture[str]
) -> None:
    for me, other in ((farm.wikis[1], farm.wikis[2]), (farm.wikis[11], farm.wikis[3])):
        asked = [["status", me.slug], ["key", "list", me.slug], ["search", me.slug, "pump", "--mode", "keyword"]]
        asked += [["search", me.slug, "pump", "--mode", "keyword", "--tag", other.get_word("tag")]]
        asked += [["set", me.slug, f"hosts={other.host}"], ["key", "revoke", "aaaaaaaaaaaa"]]
        for arguments in asked:
            for ending in ([], ["--json"]):
                main(["--data", str(farm.data), *arguments, *ending])
                told = "".join(capsys.readouterr())
                assert told.strip()
                assert find_foreign_words(told, " ".join(arguments), {me.code}) == [], arguments
                assert me.secret not in told
                assert farm.operator not in told


def test_figures_name_no_wiki(farm: ServedFarm, gate: LeakDetector) -> None:
    sent = BuiltRequest(
        "GET", "/metrics", {"Authorization": f"Bearer {farm.operator}"}, is_open=True, caller="operator"
    )
    answer = gate.send(sent)
    assert answer is not None
    assert answer.status_code == 200
    assert "wikiholt_requests" in answer.text
    assert find_codes(answer.text) == set()
    assert not any(wiki.id in answer.text for wiki in farm.wikis)
    assert gate.leaks == []


def test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike(
    farm: ServedFarm, gate: LeakDetector
) -> None:
    me, other = farm.wikis[0], farm.wikis[1]
    for key in (me.keys["read"], None, other.keys["expired"]):
        headers = {"Host": "127.0.0.1", "X-Forwarded-For": make_random_address(RANDOM)} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        for url in ("/api/v1/search?q=pump", "/api/v1/pages/Home", "/api/v1/status", "/api/v1/reindex/status"):
            answers = []
            for slug in (other.slug, "wiki-that-is-not-there"):
                answer = gate.send(BuiltRequest("GET", f"/w/{slug}{url}", headers, caller="somebody else"))
                assert answer is not None
                fixed = {name: text for name, text in answer.headers.items() if name not in ("date", "ratelimit")}
                answers.append((answer.status_code, answer.text.replace(slug, "SLUG"), fixed))
            assert answers[0] == answers[1]
            assert answers[0][0] in (401, 403)
    assert gate.leaks == []


# ── a gate that cannot fail is none ──────────────────────────────────────────────────────────────────────────────────


class Forgetful(AccessPolicy):
    """The rules, with the one check left out that a key opens one wiki."""

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        try:
            return super().authorize(identity, required_scope)
        except Forbidden:
            return Grant(self._registry.get(identity.slug or ""), Scope.READ, None)


class Talkative(AccessPolicy):
    """The rules, with a refusal that helps too much."""

    def authorize(self, identity: RequestIdentity, required_scope: Scope) -> Grant:
        try:
            return super().authorize(identity, required_scope)
        except Forbidden:
            wikis = self._registry.list_wikis()
            raise WikiNotFound(f"Not this one. There are {wikis[0].slug} and {wikis[1].id}.") from None


def find_leaks(farm: ServedFarm, writer: RequestBuilder, access: AccessPolicy) -> list[str]:
    """What the gate says of a service with these rules."""
    app = create_app(replace(farm.application, access=access))
    with run_server(app) as address:
        gate = LeakDetector(farm, address)
        rng = Random(3)
        found = [writer.build(_make_case(rng, len(writer.routes))) for _ in range(400)]
        gate.send_all(each for each in found if each.method == "GET")
        gate.close()
    return gate.leaks


def _make_case(rng: Random, routes: int) -> RequestCase:
    living = WIKI_COUNT - 4
    me, other = rng.randrange(living), rng.randrange(living)
    return RequestCase(rng.randrange(routes), "read", "own", "other's", me, other, rng.randrange(2**32))


@pytest.mark.parametrize("kind", [Forgetful, Talkative])
def test_the_gate_catches_rules_that_forget(farm: ServedFarm, writer: RequestBuilder, kind: type[AccessPolicy]) -> None:
    hosts = {"domain": farm.application.settings.serve_domain, "public": False, "own_hosts": ()}
    registry = farm.application.service.registry
    assert find_leaks(farm, writer, AccessPolicy(registry, **hosts)) == []
    assert len(find_leaks(farm, writer, kind(registry, **hosts))) > 10


def test_the_gate_catches_a_search_that_looks_elsewhere(
    farm: ServedFarm, writer: RequestBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = farm.application.service.get_handle(farm.wikis[3].slug)
    meant = WikiHandle.search

    def search(self: WikiHandle, request: SearchRequest, *, interface: SearchInterface | None = None) -> SearchResult:
        return meant(stray, request, interface=interface)

    monkeypatch.setattr(WikiHandle, "search", search)
    with run_server(farm.app) as address:
        gate = LeakDetector(farm, address)
        gate.send(make_own_request(gate, farm.wikis[0], "/api/v1/search?q=pump&mode=keyword"))
        gate.close()
    assert len(gate.leaks) == 1
    assert farm.wikis[3].get_word(SECRET_WORD) in gate.leaks[0]
    assert "GET /api/v1/search" in gate.leaks[0]


@pytest.mark.parametrize("text", ["zqbbchushx", "a%7Aqbbchushx", "enFiYmNodXNoeCBhbmQgbW9yZQ==", "&#122;qbbchushx"])
def test_the_gate_hears_words_however_they_are_written(text: str) -> None:
    assert find_foreign_words(f"x {text} y", "GET /?q=zqbbcbodyx", {"bbd"})
    assert not find_foreign_words(f"x {text} y", "", {"bbc"})


def test_what_a_visitor_said_may_be_said_back() -> None:
    assert not find_foreign_words("there is no page zqbbcpathx", "GET /zqbbcpathx", {"bbd"})
    assert find_foreign_words("there is no page zqbbcpathx, but zqbbctitlex", "GET /zqbbcpathx", {"bbd"}) == [
        "zqbbctitlex"
    ]


def test_the_routes_driven_are_all_there_are(farm: ServedFarm, writer: RequestBuilder) -> None:
    assert len(writer.routes) > 25
    assert ApiRoute("GET", "/api/v1/status", (), ()) in writer.routes
    assert all(
        "{" not in Path(writer._fill_path(route, _AnyWords(), RequestCase(0, "", "", "", 0, 1, 0))).as_posix()
        for route in writer.routes
    )


class _AnyWords:
    """Words that say nothing, to fill addresses with."""

    def __getattr__(self, name: str) -> object:
        return lambda: "x"
