"""Clients that write, search, and make and revoke keys, and what must be true of every answer.

An operation that was acknowledged must be true from then on, on every node: a page that was written, a key that was
made or revoked, a wiki that was created, and the version of an index that was seen.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.failover.service import Answer, Service, make_word

_OK, _CREATED, _UNAUTHORIZED, _CONFLICT, _TOO_MANY, _UNAVAILABLE = 200, 201, 401, 409, 429, 503
_PAUSES_S = {"search": 0.1, "write": 0.2, "key": 0.5, "status": 0.2, "wiki": 4.0}
_FOUND_SHARE = 0.3
"""The share of written pages that are searched at once."""
_CREATE_TRIES = 30
_CHECKING_THREADS = 4
_MAX_EXAMPLES = 20


@dataclass
class Wiki:
    """A wiki, and what was acknowledged of it: the word of each page, and the version of its index."""

    slug: str
    word: str
    pages: dict[str, str] = field(default_factory=dict)
    seen: tuple[int, int] = (0, 0)


@dataclass
class Outcome:
    """What the clients got."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Answers by kind of request and what became of it."""
    wrong: list[str] = field(default_factory=list)
    """Answers that contradict what was acknowledged, or are those of another wiki."""
    unexpected: Counter[str] = field(default_factory=Counter)
    """Failures that are neither 503 nor a broken connection."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Failures by kind of request, status and code of the error."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    """When, and what kind of request failed."""


class Clients:
    """Threads that use the service until they are stopped."""

    def __init__(self, service: Service, wikis: list[Wiki], pace: float = 1.0) -> None:
        self._service, self._pace = service, pace
        self.wikis = wikis
        self.outcome = Outcome()
        self.live_keys: dict[str, tuple[str, str]] = {}
        """Id and token of keys that were made, by slug of their wiki."""
        self.revoked: list[tuple[str, str]] = []
        self._stopping = threading.Event()
        kinds = {
            self._search: ("search", 3),
            self._write: ("write", 2),
            self._use_key: ("key", 1),
            self._watch_version: ("status", 1),
            self._create_wiki: ("wiki", 1),
        }
        self._threads = [
            threading.Thread(target=self._run, args=(work, kind), daemon=True)
            for work, (kind, count) in kinds.items()
            for _ in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(100)

    def _run(self, work: Callable[[random.Random], None], kind: str) -> None:
        rng = random.Random(f"{kind} {threading.get_ident()}")
        while not self._stopping.wait(_PAUSES_S[kind] * self._pace * rng.uniform(0.5, 1.5)):
            work(rng)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────

    def _search(self, rng: random.Random) -> None:
        wiki = rng.choice(self.wikis)
        mode = rng.choice(("hybrid", "keyword"))
        answer = self._service.ask("GET", f"/w/{wiki.slug}/api/v1/search?q={wiki.word}&mode={mode}&n=5")
        if not self._record("search", answer):
            return
        results = answer.document["results"]
        if any(wiki.slug not in result["path"] for result in results):
            self._report(f"{wiki.slug} got pages of another wiki: {[result['path'] for result in results]}")
        if not any(result["path"] == f"{wiki.slug}-Home" for result in results):
            self._report(f"{wiki.slug} did not find its own page: {answer.document}")

    def _write(self, rng: random.Random) -> None:
        wiki, word = rng.choice(self.wikis), make_word()
        name = f"{wiki.slug}-{word}"
        body = {"content": f"# {name}\n\nThe {word} is in {wiki.slug}.\n"}
        answer = self._service.ask("PUT", f"/w/{wiki.slug}/api/v1/pages/{name}", body)
        if not self._record("write", answer):
            return
        wiki.pages[name] = word
        if rng.random() < _FOUND_SHARE:
            self._find_written(wiki, name, word, answer.document["revision"])

    def _find_written(self, wiki: Wiki, name: str, word: str, revision: str) -> None:
        """Find a page that was just written, on any node."""
        path = f"/w/{wiki.slug}/api/v1/search?q={word}&mode=keyword&at_least={revision}"
        answer = self._service.ask("GET", path)
        if not self._record("at_least", answer) or answer.document["stale"]:
            return
        found = [result["path"] for result in answer.document["results"]]
        if name not in found:
            self._report(f"{wiki.slug} says it is not stale, and does not find {name}")

    def _use_key(self, rng: random.Random) -> None:
        """Make a key, use one, revoke one, or try a revoked one."""
        choice = rng.random()
        if choice < 0.3 or not self.live_keys:
            wiki = rng.choice(self.wikis)
            answer = self._service.ask("POST", f"/w/{wiki.slug}/api/v1/keys", {"scope": "read", "label": "bench"})
            if wiki.slug not in self.live_keys and self._record("key", answer):
                self.live_keys[wiki.slug] = (answer.document["id"], answer.document["token"])
        elif choice < 0.5:
            slug = rng.choice(list(self.live_keys))
            key_id, token = self.live_keys.pop(slug)
            if self._record("key", self._service.ask("DELETE", f"/api/v1/keys/{key_id}")):
                self.revoked.append((slug, token))
        elif choice < 0.75 or not self.revoked:
            slug, (_, token) = rng.choice(list(self.live_keys.items()))
            answer = self._service.ask("GET", f"/w/{slug}/api/v1/me", key=token)
            if answer.status == _UNAUTHORIZED:
                self._report(f"a key of {slug} that was acknowledged is not known")
            self._record("key", answer)
        else:
            slug, token = rng.choice(self.revoked)
            answer = self._service.ask("GET", f"/w/{slug}/api/v1/me", key=token)
            if answer.status == _OK:
                self._report(f"a revoked key of {slug} opens it")
            if answer.status not in (_UNAUTHORIZED, _TOO_MANY):
                self._record("key", answer)

    def _watch_version(self, rng: random.Random) -> None:
        """The version of an index never goes back, whichever node says it."""
        wiki = rng.choice(self.wikis)
        before = wiki.seen
        answer = self._service.ask("GET", f"/w/{wiki.slug}/api/v1/status")
        if not self._record("status", answer) or answer.document.get("version") is None:
            return
        now = (answer.document["generation"] or 0, answer.document["version"])
        if now < before:
            self._report(f"the index of {wiki.slug} went back from {before} to {now}")
        wiki.seen = max(wiki.seen, now)

    def _create_wiki(self, _: random.Random) -> None:
        wiki = create_wiki(self._service, f"late{len(self.wikis)}{make_word()[:5]}", self._record)
        if wiki is not None:
            self.wikis.append(wiki)

    # ── records ──────────────────────────────────────────────────────────────────────────────────

    def _record(self, kind: str, answer: Answer) -> bool:
        """Record an answer; returns whether the operation was acknowledged."""
        now = time.monotonic()
        if answer.status in (_OK, _CREATED):
            self.outcome.counts[kind, "ok"] += 1
            return True
        self.outcome.counts[kind, str(answer.status or "broken")] += 1
        self.outcome.failures.append((now, kind))
        self.outcome.reasons[f"{kind} {answer.status} {answer.document.get('code', '')}"] += 1
        # A busy lock and a broken connection can be tried again, as 503; a gateway's 502 and 504 are those of HAProxy.
        if answer.status not in (0, _UNAVAILABLE, 502, 504):
            self.outcome.unexpected[f"{kind} {answer.status} {answer.error[:160]}"] += 1
        return False

    def _report(self, text: str) -> None:
        if len(self.outcome.wrong) < _MAX_EXAMPLES:
            print(f"WRONG: {text}", flush=True)
        self.outcome.wrong.append(text)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    def count_lost(self) -> Counter[str]:
        """What was acknowledged and is not there any more, asked of all nodes in turn."""
        lost: Counter[str] = Counter()
        with ThreadPoolExecutor(_CHECKING_THREADS) as threads:
            for names in threads.map(self._list_lost, range(len(self.wikis))):
                lost.update(names)
        for slug, (_, token) in self.live_keys.items():
            lost["keys"] += self._service.ask("GET", f"/w/{slug}/api/v1/me", key=token).status != _OK
        for slug, token in self.revoked:  # after many unknown keys an address has to wait: 429
            status = self._service.ask("GET", f"/w/{slug}/api/v1/me", key=token).status
            lost["revocations"] += status == _OK
        return +lost

    def _list_lost(self, number: int) -> list[str]:
        """What a wiki has lost: the text of a page, or its place in the index."""
        wiki, ports = self.wikis[number], self._service.ports[1:]
        port, lost = ports[number % len(ports)], []
        for name, word in wiki.pages.items():
            answer = self._service.ask("GET", f"/w/{wiki.slug}/api/v1/pages/{name}", port=port)
            if word not in answer.document.get("content", ""):
                self._report(f"{wiki.slug} has lost {name}: {answer.status} {answer.error[:200]}")
                lost.append("pages")
            path = f"/w/{wiki.slug}/api/v1/search?q={word}&mode=keyword&fresh=true"
            found = self._service.ask("GET", path, port=port)
            if name not in [result["path"] for result in found.document.get("results", [])]:
                self._report(f"{wiki.slug} does not find {name}: {found.status} {found.error[:200]}")
                lost.append("index")
        return lost


def create_wiki(service: Service, slug: str, record: Callable[[str, Answer], bool]) -> Wiki | None:
    """Create a wiki with one page that has its own word; None if that was not acknowledged."""
    wiki = Wiki(slug, make_word())
    if not record("wiki", service.ask("POST", "/api/v1/wikis", {"slug": slug})):
        return None
    name = f"{slug}-Home"
    body = {"content": f"# {name}\n\nHere is {slug}, with {wiki.word}.\n"}
    for _ in range(_CREATE_TRIES):
        answer = service.ask("PUT", f"/w/{slug}/api/v1/pages/{name}", body)
        # A write that was answered with 503 may have been done.
        if answer.status == _CONFLICT or record("write", answer):
            found = service.ask("GET", f"/w/{slug}/api/v1/search?q={wiki.word}&mode=keyword&fresh=true")
            if found.status == _OK and found.document["results"]:
                wiki.pages[name] = wiki.word
                return wiki
        time.sleep(1)
    return None
