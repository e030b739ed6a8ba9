"""Requests of a soak and their results: as expected, explained, or unexplained."""

import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from bench.soak.process import ServiceProcess
from bench.soak.wikis import SoakWiki

_CANARY = re.compile(rb"kanari[a-z]{10}")
_MAX_IDLE_S = 2.0
"""Seconds after which a connection is not used again: the service closes idle ones after five."""
_MAX_FAULTS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; status 0 means that there was none."""

    status: int
    document: Any
    headers: Mapping[str, str]
    seconds: float

    @property
    def code(self) -> str:
        return str(self.document.get("code", "")) if isinstance(self.document, dict) else ""


@dataclass(slots=True)
class Ledger:
    """The results of all threads."""

    began: float = field(default_factory=time.monotonic)
    done: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    unexplained_count: int = 0
    latencies: list[tuple[float, str, float]] = field(default_factory=list)
    """When, what kind of search, how many seconds."""
    freshness: dict[str, list[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_explained(self, kind: str) -> None:
        with self.lock:
            self.explained[kind] += 1

    def add_fault(self, what: str) -> None:
        with self.lock:
            self.unexplained_count += 1
            if len(self.unexplained) < _MAX_FAULTS:
                self.unexplained.append(f"{time.monotonic() - self.began:.1f} s: {what}")

    def add_latency(self, kind: str, reply: Reply) -> None:
        with self.lock:
            self.latencies.append((time.monotonic() - self.began, kind, reply.seconds))

    def add_freshness(self, kind: str, seconds: float) -> None:
        with self.lock:
            self.freshness.setdefault(kind, []).append(seconds)


class Session:
    """One visitor's connection; for one thread."""

    def __init__(self, service: ServiceProcess, ledger: Ledger) -> None:
        self._service = service
        self.ledger = ledger
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def send(
        self,
        what: str,
        wiki: SoakWiki | None,
        method: str,
        path: str,
        *,
        key: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        expects: Collection[int] = (200,),
        allows: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and record the reply; `allows` are further permitted problem codes, each with the reason."""
        address = (f"/w/{wiki.slug}" if wiki else "") + quote(path) + (f"?{urlencode(query)}" if query else "")
        sent = {"Authorization": f"Bearer {key}"} | dict(headers or {}) if key else dict(headers or {})
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        began = time.monotonic()
        reply, raw, fault = self._exchange(method, address, content, sent)
        with self.ledger.lock:
            self.ledger.done[what] += 1
        for word in set(_CANARY.findall(raw)):
            if wiki is None or word.decode() != wiki.canary:
                self.ledger.add_fault(
                    f"{what}: an answer of {wiki.slug if wiki else 'no wiki'} contains {word.decode()}"
                )
        if reply.status not in expects:
            self._record_problem(what, reply, fault, began, allows or {})
        return reply

    def _exchange(
        self, method: str, address: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[Reply, bytes, str]:
        began = time.monotonic()
        if began - self._used > _MAX_IDLE_S:
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=60)
        try:
            self._connection.request(method, address, content, headers)
            answer = self._connection.getresponse()
            raw = answer.read()
            document = json.loads(raw) if raw and "json" in answer.headers.get("Content-Type", "") else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Reply(0, None, {}, time.monotonic() - began), b"", f"{type(error).__name__}: {error}"
        self._used = time.monotonic()
        if answer.will_close:
            self.close()
        return Reply(answer.status, document, dict(answer.headers), self._used - began), raw, ""

    def _record_problem(self, what: str, reply: Reply, fault: str, began: float, allows: Mapping[str, str]) -> None:
        away = self._service.has_been_away(began)
        if reply.status == 0 and away:
            self.ledger.add_explained("no connection during a restart")
        elif reply.status == 503 and away:
            self.ledger.add_explained("503 during a restart")
        elif reply.code in allows:
            self.ledger.add_explained(f"{reply.status} {reply.code}: {allows[reply.code]}")
        else:
            document = fault or f"{reply.status} {json.dumps(reply.document)[:300]}"
            self.ledger.add_fault(f"{what}: {document}")
