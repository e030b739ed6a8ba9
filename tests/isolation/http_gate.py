"""Sends requests and detects words that the caller may not read."""

import base64
import binascii
import re
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import unquote

import httpx

from tests.isolation.canaries import WORD_PATTERN
from tests.isolation.http_cases import BuiltRequest
from tests.isolation.http_environment import ServedEnvironment
from tests.support.wait import TIMEOUT_S

THREAD_COUNT = 16
_WORD = re.compile(rf"{WORD_PATTERN}[a-z]*")
_TOKEN = re.compile(r"[A-Za-z0-9_\-+/]{16,}={0,2}")


@dataclass
class LeakDetector:
    """Statistics of all requests to one environment, and every leak with its request."""

    env: ServedEnvironment
    base: str
    leaks: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    own_codes_seen: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    mcp_outcomes: Counter[str] = field(default_factory=Counter)
    """Counts of MCP responses: with content of the own wiki, refused, or without content."""
    _local: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: list[httpx.Client] = field(default_factory=list)

    def send_all(self, requests: Iterable[BuiltRequest]) -> None:
        """Send all requests, sixteen at a time."""
        with ThreadPoolExecutor(THREAD_COUNT) as threads:
            list(threads.map(self.send, requests))

    def send(self, request: BuiltRequest) -> httpx.Response | None:
        try:
            answer = self._get_client().request(
                request.method, request.url, headers=request.headers, content=request.body or None
            )
        except httpx.InvalidURL:
            return None
        self.check_response(request, answer)
        return answer

    def check_response(self, request: BuiltRequest, response: httpx.Response) -> None:
        """Count a response and record its leaks."""
        text = f"{response.reason_phrase}\n{response.headers}\n{response.text}"
        foreign = self.find_foreign(text, request)
        codes = {found[1] for found in _WORD.finditer(response.text)}
        refused = response.status_code >= 400 or 300 <= response.status_code < 400
        with self._lock:
            self.statuses[response.status_code] += 1
            self.own_codes_seen.update(codes & request.allowed_wikis)
            if request.caller.startswith("agent"):
                self.mcp_outcomes[
                    "answered" if codes & request.allowed_wikis else "refused" if refused else "empty"
                ] += 1
            self.routes[f"{request.method} {response.status_code // 100}xx"] += 1
            if foreign:
                self.leaks.append(
                    f"{request.caller}: {request.to_text()}\n→ {response.status_code} with {foreign}: {text[:2000]}"
                )
            if not (request.allowed_wikis or request.is_open or refused):
                self.leaks.append(
                    f"{request.caller}: {request.to_text()}\n→ was not refused: {response.status_code} {text[:2000]}"
                )
            if response.status_code >= 500 and response.status_code != 503:
                self.leaks.append(
                    f"{request.caller}: {request.to_text()}\n→ broke the service: {response.status_code} {text[:2000]}"
                )

    def find_foreign(self, text: str, request: BuiltRequest) -> list[str]:
        """Words, ids, commits, keys and paths of other wikis that are in a text and not in the request."""
        request_text = _decode_text(request.to_text())
        own = {wiki.id for wiki in self.env.wikis if wiki.code in request.allowed_wikis}
        found = find_foreign_words(text, " ".join((request_text, *request.own_words)), request.allowed_wikis)
        for wiki in self.env.wikis:
            if wiki.id not in own:
                marks = (wiki.id, *wiki.key_ids, *wiki.heads[-3:])
                found += [mark for mark in marks if mark in text and mark not in request_text]
        if request.caller != "operator" and str(self.env.directory) in text:
            found.append("a path of the server")
        return found

    def _get_client(self) -> httpx.Client:
        client: httpx.Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = httpx.Client(base_url=self.base, timeout=TIMEOUT_S)
            with self._lock:
                self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


def find_foreign_words(text: str, request_text: str, allowed: Iterable[str]) -> list[str]:
    """Words of wikis that are not allowed, except words (or beginnings of words) of the request."""
    sent = {match[0] for match in _WORD.finditer(request_text)}
    received = {match[0]: match[1] for match in _WORD.finditer(_decode_text(text))}
    own = set(allowed)
    return sorted(
        word
        for word, code in received.items()
        if code not in own and not any(sent_word.startswith(word) for sent_word in sent)
    )


def _decode_text(text: str) -> str:
    """A text together with its decoded forms: percent encoding, entities, Base64."""
    decoded = []
    for token in _TOKEN.findall(text):
        for alphabet in (None, b"-_"):
            try:
                padded = token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4)
                decoded.append(base64.b64decode(padded, altchars=alphabet, validate=True).decode("utf-8", "ignore"))
            except (binascii.Error, ValueError):
                continue
    return "\n".join([text, unquote(text), unescape(text), *decoded]).lower()
