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
from agent_cases import agent_case
from canaries import codes
from http_cases import Case, Route, Sent, Writer, any_case, cases, routes_of, somewhere
from http_farm import HUSH, WIKIS, ServedFarm, ServedWiki, listening
from http_gate import Gate, foreign_words
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from wikiholt.access import Access, Grant, Visit
from wikiholt.errors import Forbidden, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.model import Answer, Scope, Surface
from wikiholt.search import Request
from wikiholt.surfaces.cli.main import main
from wikiholt.surfaces.http.app import create_app

BATCH, BATCHES = 48, int(os.environ.get("GATE_BATCHES", "16"))
"""Requests sent at once, and how often; `make gate` sends more."""
AGENTS = 6
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
    made.farm.keeper.start()
    yield made
    assert made.farm.keeper.stop(30)
    made.farm.service.close()


@pytest.fixture(scope="module")
def base(farm: ServedFarm) -> Iterator[str]:
    with listening(farm.app) as address:
        yield address


@pytest.fixture(scope="module")
def gate(farm: ServedFarm, base: str) -> Iterator[Gate]:
    made = Gate(farm, base)
    yield made
    made.close()


@pytest.fixture(scope="module")
def writer(farm: ServedFarm) -> Writer:
    return Writer(farm, routes_of(farm.app))


def asked(gate: Gate, wiki: ServedWiki, url: str, key: str = "read", method: str = "GET", **named: str) -> Sent:
    """A request that its sender may make."""
    headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {wiki.keys[key]}", "X-Forwarded-For": somewhere(RANDOM)}
    return Sent(method, url, headers | named, b"", frozenset({wiki.code}), who=f"{wiki.slug} itself")


def _sane(route: Route) -> str:
    return "?q=pump&n=100" if "q" in route.query else "?path=Home" if route.path.endswith("similar") else ""


def test_every_wiki_reads_its_own_on_every_route(farm: ServedFarm, gate: Gate, writer: Writer) -> None:
    """What makes the rest worth anything: the words are there to be told, on every address that reads."""
    heard: dict[str, set[str]] = {}
    for route in (route for route in writer.routes if route.method == "GET" and not route.of_the_service):
        for wiki in farm.wikis[:3]:
            asks = {"/find": "?q=pump&n=100", "/read": "?page=Home"}.get(route.path) or _sane(route)
            url = route.path.replace("{path}", "Home").replace("{slug}", wiki.slug)
            url = url.replace("{filename}", wiki.filename) + asks
            for prefix in ("", f"/w/{wiki.slug}"):
                answer = gate.send(asked(gate, wiki, f"{prefix}{url}"))
                assert answer is not None
                heard.setdefault(route.path, set()).update(codes(answer.text))
                refused = route.of_the_farm or (route.of_admins and answer.status_code == 403)
                assert answer.status_code < 400 or refused, f"{url}: {answer.status_code} {answer.text}"
    assert gate.leaks == []
    told = [path for path, found in heard.items() if len(found) == 3]
    assert len(told) >= 8, heard


class Weather:
    """What goes on meanwhile: edits, webhooks, syncs, reindexing, keys that come and go, wikis that are removed."""

    def __init__(self, farm: ServedFarm, gate: Gate) -> None:
        self._farm, self._gate = farm, gate
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(4)
        self._work = [self._threads.submit(work) for work in (self._edit, self._reindex, self._keys, self._remove)]

    def end(self) -> None:
        self._over.set()
        for work in self._work:
            work.result()
        self._threads.shutdown()

    def _until_over(self, seconds: float) -> bool:
        return not self._over.wait(seconds)

    def _edit(self) -> None:
        number = 0
        while self._until_over(0.05):
            wiki = self._farm.wikis[10 + number % 5]
            number += 1
            wiki.edit(number)
            body = json.dumps({"ref": wiki.word("branch")}).encode()
            digest = hmac.new(wiki.secret.encode(), body, hashlib.sha256).hexdigest()
            headers = {"X-Hub-Signature-256": f"sha256={digest}", "Content-Type": "application/json"}
            headers |= {"X-Forwarded-For": somewhere(RANDOM)}
            answer = self._gate.send(
                Sent("POST", f"/w/{wiki.slug}/api/v1/webhook", headers, body, frozenset({wiki.code}), who="git host")
            )
            assert answer is not None
            assert answer.status_code == 202, answer.text

    def _reindex(self) -> None:
        number = 0
        while self._until_over(0.2):
            wiki = self._farm.wikis[15]
            number += 1
            answer = self._gate.send(asked(self._gate, wiki, "/api/v1/reindex", "admin", "POST"))
            assert answer is not None
            assert answer.status_code in (202, 409), answer.text
            self._gate.send(asked(self._gate, wiki, "/api/v1/reindex/status"))

    def _keys(self) -> None:
        keys = self._farm.farm.service.registry.keys
        while self._until_over(0.05):
            for wiki in self._farm.wikis[4:7]:
                made, token = keys.create(wiki.id, Scope.READ, wiki.word("label"))
                sent = asked(self._gate, wiki, "/api/v1/search?q=pump")
                right = replace(sent, headers=sent.headers | {"Authorization": f"Bearer {token}"})
                answer = self._gate.send(right)
                assert answer is not None
                assert answer.status_code == 200, answer.text
                keys.revoke(made.id)
                answer = self._gate.send(replace(right, allowed=frozenset(), who="revoked just now"))
                assert answer is not None
                assert answer.status_code == 401, answer.text

    def _remove(self) -> None:
        for wiki in self._farm.doomed:
            self._until_over(0.5)
            removed = self._farm.farm.service.remove(wiki.slug)
            assert codes(repr(removed)) == {wiki.code}


def test_no_request_of_anybody_is_told_of_a_wiki_that_is_not_theirs(
    farm: ServedFarm, gate: Gate, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    storm(farm, gate, writer, caplog, BATCHES)
    assert gate.statuses[200] >= 100
    assert gate.leaks == []


def storm(farm: ServedFarm, gate: Gate, writer: Writer, caplog: pytest.LogCaptureFixture, batches: int) -> None:
    """Send so many batches of requests while all kinds of work go on, and look at every answer and at what is left."""
    caplog.set_level(logging.DEBUG, "wikiholt")
    caplog.set_level(logging.INFO, "uvicorn.error")
    quiet = {wiki.slug: (kept(farm, wiki), wiki.repository.head()) for wiki in farm.quiet}
    sent: list[Sent] = []

    @given(st.lists(cases(len(writer.routes), WIKIS), min_size=BATCH // 3, max_size=BATCH // 3), st.integers(0, 2**64))
    @settings(
        max_examples=batches,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def visited(batch: list[Case], seed: int) -> None:
        rng = Random(f"{seed}/{len(sent)}")
        batch += [any_case(rng, len(writer.routes), WIKIS) for _ in range(BATCH - len(batch))]
        # Among them those who may, so that there is something to be mixed up.
        for case in batch[-BATCH // 3 :]:
            at = writer.reading[case.route % len(writer.reading)]
            batch.append(replace(case, route=at, who="read", host="own", prefix=rng.choice(["none", "mine"])))
        requests = [writer.sent(case) for case in batch]
        requests += [agent_case(writer, rng) for _ in range(AGENTS)]
        sent.extend(requests)
        gate.drive(requests)

    gate.drive(asked(gate, wiki, "/api/v1/search?q=pump&n=100") for wiki in farm.wikis)
    weather = Weather(farm, gate)
    try:
        visited()
    finally:
        weather.end()
    assert not gate.leaks, f"{len(gate.leaks)} leaks; the first: {gate.leaks[0]}"
    assert len(sent) >= BATCH * batches // 2
    assert_it_was_a_storm(gate)
    for wiki in farm.quiet:
        before = quiet[wiki.slug]
        assert (kept(farm, wiki), wiki.repository.head()) == before, wiki.slug
    assert_logs_tell_nothing(caplog)
    assert_each_holds_its_own(farm)


def kept(farm: ServedFarm, wiki: ServedWiki) -> Mapping[str, object]:
    """What is kept of a wiki, but for small notes in a database, where each node leaves some that looks at it."""
    return {name: held for name, held in farm.ground.held(wiki.id).items() if not name.endswith(".notes")}


def assert_it_was_a_storm(gate: Gate) -> None:
    """That the gate was passed by answers, not by silence."""
    assert len(gate.told) == WIKIS, f"only {len(gate.told)} wikis were ever told of to their own visitors"
    assert gate.agents["answered"] >= 3, gate.agents
    assert gate.agents["refused"] >= 3, gate.agents
    for status, least in ((200, 100), (401, 100), (403, 50), (404, 5), (422, 20)):
        assert gate.statuses[status] >= least, gate.statuses


def assert_logs_tell_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A line of the log may name the wiki it is about, and never two; and nothing that stands on a page."""
    for record in caplog.records:
        if record.name.startswith(("wikiholt", "uvicorn.error")):
            line = record.getMessage() + str(record.exc_text or "")
            assert len(codes(line)) <= 1, line
            assert HUSH not in line, line


def assert_each_holds_its_own(farm: ServedFarm) -> None:
    """That no write went astray: neither an index nor a repository holds another wiki's words."""
    for wiki in farm.wikis:
        if wiki in farm.doomed:
            assert not farm.ground.held(wiki.id)
            continue
        assert farm.ground.codes_of(wiki.id) <= {wiki.code}
        log = wiki.repository.git("log", "--all", "-p", "--text").decode("latin-1")
        assert codes(log) == {wiki.code}, wiki.slug


def test_the_command_line_tells_of_the_one_wiki_it_is_asked_about(
    farm: ServedFarm, capsys: pytest.CaptureFixture[str]
) -> None:
    for me, other in ((farm.wikis[1], farm.wikis[2]), (farm.wikis[11], farm.wikis[3])):
        asked = [["status", me.slug], ["key", "list", me.slug], ["search", me.slug, "pump", "--mode", "keyword"]]
        asked += [["search", me.slug, "pump", "--mode", "keyword", "--tag", other.word("tag")]]
        asked += [["set", me.slug, f"hosts={other.host}"], ["key", "revoke", "aaaaaaaaaaaa"]]
        for arguments in asked:
            for ending in ([], ["--json"]):
                main(["--data", str(farm.data), *arguments, *ending])
                told = "".join(capsys.readouterr())
                assert told.strip()
                assert foreign_words(told, " ".join(arguments), {me.code}) == [], arguments
                assert me.secret not in told
                assert farm.operator not in told


def test_figures_name_no_wiki(farm: ServedFarm, gate: Gate) -> None:
    sent = Sent("GET", "/metrics", {"Authorization": f"Bearer {farm.operator}"}, open=True, who="operator")
    answer = gate.send(sent)
    assert answer is not None
    assert answer.status_code == 200
    assert "wikiholt_requests" in answer.text
    assert codes(answer.text) == set()
    assert not any(wiki.id in answer.text for wiki in farm.wikis)
    assert gate.leaks == []


def test_a_wiki_that_is_not_there_and_one_that_is_not_yours_are_refused_alike(farm: ServedFarm, gate: Gate) -> None:
    me, other = farm.wikis[0], farm.wikis[1]
    for key in (me.keys["read"], None, other.keys["expired"]):
        headers = {"Host": "127.0.0.1", "X-Forwarded-For": somewhere(RANDOM)} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        for url in ("/api/v1/search?q=pump", "/api/v1/pages/Home", "/api/v1/status", "/api/v1/reindex/status"):
            answers = []
            for slug in (other.slug, "wiki-that-is-not-there"):
                answer = gate.send(Sent("GET", f"/w/{slug}{url}", headers, who="somebody else"))
                assert answer is not None
                fixed = {name: text for name, text in answer.headers.items() if name not in ("date", "ratelimit")}
                answers.append((answer.status_code, answer.text.replace(slug, "SLUG"), fixed))
            assert answers[0] == answers[1]
            assert answers[0][0] in (401, 403)
    assert gate.leaks == []


# ── a gate that cannot fail is none ──────────────────────────────────────────────────────────────────────────────────


class Forgetful(Access):
    """The rules, with the one check left out that a key opens one wiki."""

    def wiki(self, visit: Visit, needed: Scope) -> Grant:
        try:
            return super().wiki(visit, needed)
        except Forbidden:
            return Grant(self._registry.get(visit.named or ""), Scope.READ, None)


class Talkative(Access):
    """The rules, with a refusal that helps too much."""

    def wiki(self, visit: Visit, needed: Scope) -> Grant:
        try:
            return super().wiki(visit, needed)
        except Forbidden:
            wikis = self._registry.list()
            raise WikiNotFound(f"Not this one. There are {wikis[0].slug} and {wikis[1].id}.") from None


def caught(farm: ServedFarm, writer: Writer, access: Access) -> list[str]:
    """What the gate says of a service with these rules."""
    app = create_app(replace(farm.farm, access=access))
    with listening(app) as address:
        gate = Gate(farm, address)
        rng = Random(3)
        found = [writer.sent(_case(rng, len(writer.routes))) for _ in range(400)]
        gate.drive(each for each in found if each.method == "GET")
        gate.close()
    return gate.leaks


def _case(rng: Random, routes: int) -> Case:
    living = WIKIS - 4
    me, other = rng.randrange(living), rng.randrange(living)
    return Case(rng.randrange(routes), "read", "own", "other's", me, other, rng.randrange(2**32))


@pytest.mark.parametrize("kind", [Forgetful, Talkative])
def test_the_gate_catches_rules_that_forget(farm: ServedFarm, writer: Writer, kind: type[Access]) -> None:
    hosts = {"domain": farm.farm.settings.serve_domain, "public": False, "own_hosts": ()}
    registry = farm.farm.service.registry
    assert caught(farm, writer, Access(registry, **hosts)) == []
    assert len(caught(farm, writer, kind(registry, **hosts))) > 10


def test_the_gate_catches_a_search_that_looks_elsewhere(
    farm: ServedFarm, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = farm.farm.service.wiki(farm.wikis[3].slug)
    meant = WikiHandle.search

    def search(self: WikiHandle, request: Request, *, surface: Surface | None = None) -> Answer:
        return meant(stray, request, surface=surface)

    monkeypatch.setattr(WikiHandle, "search", search)
    with listening(farm.app) as address:
        gate = Gate(farm, address)
        gate.send(asked(gate, farm.wikis[0], "/api/v1/search?q=pump&mode=keyword"))
        gate.close()
    assert len(gate.leaks) == 1
    assert farm.wikis[3].word(HUSH) in gate.leaks[0]
    assert "GET /api/v1/search" in gate.leaks[0]


@pytest.mark.parametrize("text", ["zqbbchushx", "a%7Aqbbchushx", "enFiYmNodXNoeCBhbmQgbW9yZQ==", "&#122;qbbchushx"])
def test_the_gate_hears_words_however_they_are_written(text: str) -> None:
    assert foreign_words(f"x {text} y", "GET /?q=zqbbcbodyx", {"bbd"})
    assert not foreign_words(f"x {text} y", "", {"bbc"})


def test_what_a_visitor_said_may_be_said_back() -> None:
    assert not foreign_words("there is no page zqbbcpathx", "GET /zqbbcpathx", {"bbd"})
    assert foreign_words("there is no page zqbbcpathx, but zqbbctitlex", "GET /zqbbcpathx", {"bbd"}) == ["zqbbctitlex"]


def test_the_routes_driven_are_all_there_are(farm: ServedFarm, writer: Writer) -> None:
    assert len(writer.routes) > 25
    assert Route("GET", "/api/v1/status", (), ()) in writer.routes
    assert all(
        "{" not in Path(writer._filled(route, _AnyWords(), Case(0, "", "", "", 0, 1, 0))).as_posix()
        for route in writer.routes
    )


class _AnyWords:
    """Words that say nothing, to fill addresses with."""

    def __getattr__(self, name: str) -> object:
        return lambda: "x"
