"""Requests of every kind during concurrent changes, and what must be true of the responses, logs and files."""

import hashlib
import hmac
import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.isolation.canaries import WORD_PATTERN, find_codes
from tests.isolation.http_cases import (
    BuiltRequest,
    RequestBuilder,
    RequestCase,
    make_random_address,
    make_random_case,
    request_cases,
)
from tests.isolation.http_environment import SECRET_WORD, WIKI_COUNT, ServedEnvironment, ServedWiki
from tests.isolation.http_gate import LeakDetector
from tests.isolation.mcp_cases import make_mcp_request
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.wiki import Scope

BATCH_SIZE, BATCH_COUNT = 48, int(os.environ.get("GATE_BATCHES", choose(16, 6)))
"""Requests in a batch, and number of batches; `make gate` sends more."""
MCP_REQUESTS_PER_BATCH = 6
"""MCP messages in every batch."""
RANDOM = Random(1)
_SECRET = re.compile(f"{WORD_PATTERN}{SECRET_WORD}")
"""The word with its code: random ids contain the word alone now and then."""


def make_own_request(
    detector: LeakDetector, wiki: ServedWiki, url: str, key: str = "read", method: str = "GET", **named: str
) -> BuiltRequest:
    """A request that the caller is allowed to make."""
    headers = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {wiki.keys[key]}",
        "X-Forwarded-For": make_random_address(RANDOM),
    }
    return BuiltRequest(method, url, headers | named, b"", frozenset({wiki.code}), caller=f"{wiki.slug} itself")


class BackgroundChanges:
    """Concurrent work: edits, webhooks, syncs, reindexes, created and revoked keys, removed wikis."""

    def __init__(self, env: ServedEnvironment, detector: LeakDetector) -> None:
        self._env, self._gate = env, detector
        self._finished = threading.Event()
        self._threads = ThreadPoolExecutor(4)
        self._tasks = [
            self._threads.submit(task)
            for task in (self._edit_pages, self._reindex_wikis, self._change_keys, self._remove_wikis)
        ]

    def stop(self) -> None:
        self._finished.set()
        for task in self._tasks:
            task.result()
        self._threads.shutdown()

    def _wait(self, seconds: float) -> bool:
        return not self._finished.wait(seconds)

    def _edit_pages(self) -> None:
        number = 0
        while self._wait(0.05):
            wiki = self._env.wikis[10 + number % 5]
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
            wiki = self._env.wikis[15]
            number += 1
            answer = self._gate.send(make_own_request(self._gate, wiki, "/api/v1/reindex", "admin", "POST"))
            assert answer is not None
            assert answer.status_code in (202, 409), answer.text
            self._gate.send(make_own_request(self._gate, wiki, "/api/v1/reindex/status"))

    def _change_keys(self) -> None:
        keys = self._env.application.service.registry.keys
        while self._wait(0.05):
            for wiki in self._env.wikis[4:7]:
                made, token = keys.create(wiki.id, Scope.READ, wiki.get_word("label"))
                sent = make_own_request(self._gate, wiki, "/api/v1/search?q=pump")
                right = replace(sent, headers=sent.headers | {"Authorization": f"Bearer {token}"})
                answer = self._gate.send(right)
                assert answer is not None
                assert answer.status_code == 200, answer.text
                keys.revoke(made.id)
                answer = self._gate.send(replace(right, allowed_wikis=frozenset(), caller="revoked key"))
                assert answer is not None
                assert answer.status_code == 401, answer.text

    def _remove_wikis(self) -> None:
        for wiki in self._env.wikis_to_remove:
            self._wait(0.5)
            removed = self._env.application.service.remove(wiki.slug)
            assert find_codes(repr(removed)) == {wiki.code}


def run_load(
    env: ServedEnvironment,
    detector: LeakDetector,
    builder: RequestBuilder,
    caplog: pytest.LogCaptureFixture,
    batches: int,
) -> None:
    """Send batches of requests during concurrent work, and check every response and the stored data."""
    caplog.set_level(logging.DEBUG, "wikiholt")
    caplog.set_level(logging.INFO, "uvicorn.error")
    quiet = {wiki.slug: (read_stored(env, wiki), wiki.repository.get_head()) for wiki in env.read_only_wikis}
    sent: list[BuiltRequest] = []

    @given(
        st.lists(request_cases(len(builder.routes), WIKI_COUNT), min_size=BATCH_SIZE // 3, max_size=BATCH_SIZE // 3),
        st.integers(0, 2**64),
    )
    @settings(
        max_examples=batches,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send_batch(batch: list[RequestCase], seed: int) -> None:
        rng = Random(f"{seed}/{len(sent)}")
        batch += [make_random_case(rng, len(builder.routes), WIKI_COUNT) for _ in range(BATCH_SIZE - len(batch))]
        # Add permitted requests, so that there is content that could be mixed up.
        for case in batch[-BATCH_SIZE // 3 :]:
            at = builder.read_routes[case.route % len(builder.read_routes)]
            batch.append(replace(case, route=at, caller="read", host="own", prefix=rng.choice(["none", "mine"])))
        requests = [builder.build(case) for case in batch]
        requests += [
            make_mcp_request(builder, rng, is_permitted=number % 3 == 0) for number in range(MCP_REQUESTS_PER_BATCH)
        ]
        sent.extend(requests)
        detector.send_all(requests)

    detector.send_all(make_own_request(detector, wiki, "/api/v1/search?q=pump&n=100") for wiki in env.wikis)
    changes = BackgroundChanges(env, detector)
    try:
        send_batch()
    finally:
        changes.stop()
    assert not detector.leaks, f"{len(detector.leaks)} leaks; the first: {detector.leaks[0]}"
    assert len(sent) >= BATCH_SIZE * batches // 2
    assert_enough_load(detector)
    for wiki in env.read_only_wikis:
        before = quiet[wiki.slug]
        assert (read_stored(env, wiki), wiki.repository.get_head()) == before, wiki.slug
    assert_logs_clean(caplog)
    assert_own_content_only(env)


def read_stored(env: ServedEnvironment, wiki: ServedWiki) -> Mapping[str, object]:
    """The stored data of a wiki, without the notes table, which every node writes, and the files of open connections.

    SQLite creates the shared memory and an empty log when a connection opens, and few idle ones stay open.
    """
    stored = env.backend.read_wiki(wiki.id)
    return {name: content for name, content in stored.items() if content and not name.endswith((".notes", "-shm"))}


def wait_until_idle(env: ServedEnvironment, wiki: ServedWiki) -> None:
    """Wait until the scheduler has synced all edits of a wiki, and does no more with it."""
    scheduler = env.application.scheduler
    assert scheduler.wait_until_fresh(wiki.id, TIMEOUT_S)
    wait_until(lambda: not scheduler._get_entry(wiki.id).running)


def assert_enough_load(detector: LeakDetector) -> None:
    """Check that there were enough responses with content."""
    assert len(detector.own_codes_seen) == WIKI_COUNT, (
        f"only {len(detector.own_codes_seen)} wikis were read by their own callers"
    )
    assert detector.mcp_outcomes["answered"] >= 3, detector.mcp_outcomes
    assert detector.mcp_outcomes["refused"] >= 3, detector.mcp_outcomes
    for status, least in ((200, 100), (401, 100), (403, 50), (404, 5), (422, 20)):
        assert detector.statuses[status] >= least, detector.statuses


def assert_logs_clean(caplog: pytest.LogCaptureFixture) -> None:
    """A log line names at most one wiki and contains nothing of a page."""
    for record in caplog.records:
        if record.name.startswith(("wikiholt", "uvicorn.error")):
            line = record.getMessage() + str(record.exc_text or "")
            assert len(find_codes(line)) <= 1, line
            assert not _SECRET.search(line), line


def assert_own_content_only(env: ServedEnvironment) -> None:
    """No index and no repository contains words of another wiki."""
    for wiki in env.wikis:
        if wiki in env.wikis_to_remove:
            assert not env.backend.read_wiki(wiki.id)
            continue
        assert env.backend.find_wiki_codes(wiki.id) <= {wiki.code}
        log = wiki.repository.run_git("log", "--all", "-p", "--text").decode("latin-1")
        assert find_codes(log) == {wiki.code}, wiki.slug
