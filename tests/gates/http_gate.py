"""Sends requests and looks for words that were not the visitor's to see."""

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
from http_cases import Sent
from http_farm import ServedFarm

THREADS = 16
_WORD = re.compile(r"zq([bcdfghjkl]{3})[a-z]*")
_TOKEN = re.compile(r"[A-Za-z0-9_\-+/]{16,}={0,2}")


@dataclass
class Gate:
    """All that was asked of one farm, and every leak with the request that got it."""

    farm: ServedFarm
    base: str
    leaks: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    """How agents were answered that were told something of their own wiki, or refused."""
    _local: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: list[httpx.Client] = field(default_factory=list)

    def drive(self, requests: Iterable[Sent]) -> None:
        """Send them all, sixteen at a time."""
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.send, requests))

    def send(self, sent: Sent) -> httpx.Response | None:
        try:
            answer = self._client().request(sent.method, sent.url, headers=sent.headers, content=sent.body or None)
        except httpx.InvalidURL:
            return None
        self.look(sent, answer)
        return answer

    def look(self, sent: Sent, answer: httpx.Response) -> None:
        """Note what an answer tells, and whether it may."""
        text = f"{answer.reason_phrase}\n{answer.headers}\n{answer.text}"
        foreign = self.foreign(text, sent)
        codes = {found[1] for found in _WORD.finditer(answer.text)}
        refused = answer.status_code >= 400 or 300 <= answer.status_code < 400
        with self._lock:
            self.statuses[answer.status_code] += 1
            self.told.update(codes & sent.allowed)
            if sent.who.startswith("agent"):
                self.agents["answered" if codes & sent.allowed else "refused" if refused else "told nothing"] += 1
            self.routes[f"{sent.method} {answer.status_code // 100}xx"] += 1
            if foreign:
                self.leaks.append(f"{sent.who}: {sent.text()}\n→ {answer.status_code} with {foreign}: {text[:2000]}")
            if not (sent.allowed or sent.open or refused):
                self.leaks.append(f"{sent.who}: {sent.text()}\n→ was not refused: {answer.status_code} {text[:2000]}")
            if answer.status_code >= 500 and answer.status_code != 503:
                self.leaks.append(f"{sent.who}: {sent.text()}\n→ broke the service: {answer.status_code} {text[:2000]}")

    def foreign(self, text: str, sent: Sent) -> list[str]:
        """Whatever is in a text, is another wiki's and was not in the request: words, ids, commits, keys, places."""
        said = _shown(sent.text())
        own = {wiki.id for wiki in self.farm.wikis if wiki.code in sent.allowed}
        found = foreign_words(text, said, sent.allowed)
        for wiki in self.farm.wikis:
            if wiki.id not in own:
                marks = (wiki.id, *wiki.key_ids, *wiki.heads[-3:])
                found += [mark for mark in marks if mark in text and mark not in said]
        if sent.who != "operator" and str(self.farm.directory) in text:
            found.append("a path of the machine")
        return found

    def _client(self) -> httpx.Client:
        client: httpx.Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = httpx.Client(base_url=self.base, timeout=60)
            with self._lock:
                self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


def foreign_words(text: str, said: str, allowed: Iterable[str]) -> list[str]:
    """Words of wikis that are not allowed, unless the visitor said them (or more than is left of them)."""
    spoken = {match[0] for match in _WORD.finditer(said)}
    heard = {match[0]: match[1] for match in _WORD.finditer(_shown(text))}
    mine = set(allowed)
    return sorted(
        word for word, code in heard.items() if code not in mine and not any(each.startswith(word) for each in spoken)
    )


def _shown(text: str) -> str:
    """A text with everything in it that is only written otherwise: percent signs, entities, Base64."""
    decoded = []
    for token in _TOKEN.findall(text):
        for alphabet in (None, b"-_"):
            try:
                padded = token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4)
                decoded.append(base64.b64decode(padded, altchars=alphabet, validate=True).decode("utf-8", "ignore"))
            except (binascii.Error, ValueError):
                continue
    return "\n".join([text, unquote(text), unescape(text), *decoded]).lower()
