"""Twenty wikis behind one server, each with words of its own in every place that a service can show."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn
from canaries import ALIKE, CanaryWiki
from fastapi import FastAPI
from gate_grounds import Files, Ground

from wikiholt.model import Scope
from wikiholt.settings import load
from wikiholt.surfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import Farm, build, open_farm

WIKIS, READ_ONLY, DOOMED = 20, 10, 4
"""Wikis; the first of them have keys for reading alone, the last of them are removed while they are asked."""
PUBLIC = (2, 12)
DOMAIN = "farm.example"
HUSH = "hush"
"""The word of a wiki that no request ever says: where it is heard, something was told."""


class ServedWiki(CanaryWiki):
    """A wiki whose pages, paths, tags, authors, messages, host, settings and keys hold its words."""

    def __init__(self, directory: Path, number: int) -> None:
        super().__init__(directory, number)
        self.number = number
        self.host = f"{self.word('host')}.example"
        self.secret = self.word("secret")
        self.repository.git("commit", "--quiet", "--allow-empty", f"--author={self.author}", "-m", self._message())
        self.heads: list[str] = []
        self.edit(0)
        self.keys: dict[str, str] = {}
        self.key_ids: list[str] = []
        self.id = ""

    @property
    def author(self) -> str:
        return f"{self.word('author')} {self.word(HUSH)} <{self.word('address')}@example.org>"

    @property
    def public(self) -> bool:
        return self.number in PUBLIC

    @property
    def settings(self) -> dict[str, str]:
        own = {"hosts": self.host, "webhook_secret": self.secret, "public": "true" if self.public else "false"}
        return own | {"url": f"/{self.word('url')}/{{path}}", "ignore": f"{self.word('ignored')}.md"}

    @property
    def paths(self) -> list[str]:
        return ["Home", f"{self.word('path')}/Pump", self.word("path"), "Rota", f"{self.word('path')}/Pump.md"]

    @property
    def filename(self) -> str:
        """Of a file that is attached to Home."""
        return f"{self.word('file')}.txt"

    def edit(self, number: int) -> None:
        text = f"# Home\n\n{ALIKE} {self.word('body')} {self.word('edit')} {self.word(HUSH)} {number} [[Rota]]"
        file = self.repository.path / "Home.md"
        file.write_text(text)
        self.repository.git("add", "Home.md")
        self.repository.git("commit", "--quiet", f"--author={self.author}", "-m", self._message())
        self.heads.append(self.repository.head())

    def _message(self) -> str:
        return f"Say {self.word('message')} {self.word(HUSH)}"

    def _pages(self) -> dict[str, str | bytes | None]:
        word, hush = self.word, self.word(HUSH)
        return {
            "Home.md": f"# Home\n\n{ALIKE} {word('body')} {hush}",
            f"{word('path')}/Pump.md": f"---\ntitle: Pump {word('title')} {hush}\ntags: [pump, {word('tag')}, {hush}]\n"
            f"category: {word('category')}\n---\n## Restart {word('heading')}\n\n{ALIKE} {hush} [see]({word('link')})",
            f"{word('path')}.md": f"# {word('title')}\n\n{ALIKE} {hush} [home](Home.md) [pump]({word('path')}/Pump.md)",
            "Rota.md": f"---\ntags: people\n---\n# Rota\n\n{ALIKE} Ask {word('text')} {hush} first.",
            f"Home/{self.filename}": f"{word('attached')} {hush}",
            f"{word('problem')}.md": b"\x00\xff" * 40 + hush.encode(),
        }


class ServedFarm:
    """The wikis, their keys, and the parts of a service over them; the keeper is at work."""

    def __init__(self, directory: Path, ground: Ground | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.ground = ground or Files(self.data)
        self.wikis = [ServedWiki(directory / "r", number) for number in range(WIKIS)]
        self.farm = self._opened()
        for wiki in self.wikis:
            wiki.id = self.farm.service.add(wiki.slug, str(wiki.repository.path), wiki.settings).id
            self.farm.service.wiki(wiki.slug).sync()
            self._give_keys(wiki)
        self.operator = self._key(None, Scope.ADMIN, "operator")
        time.sleep(0.3)  # until the keys that shall have expired have
        self.app = create_app(self.farm)

    @property
    def doomed(self) -> list[ServedWiki]:
        return self.wikis[-DOOMED:]

    @property
    def quiet(self) -> list[ServedWiki]:
        """Those that nobody may write to."""
        return self.wikis[:READ_ONLY]

    def _opened(self) -> Farm:
        none = {"limit.key_per_minute": 0, "limit.address_per_minute": 0}
        settings = load(self.data, overrides={"serve.domain": DOMAIN, "sync.interval": 1, "log.level": "debug"} | none)
        service = build(settings)
        embedder = FakeEmbedder()
        service.workshop = dataclasses.replace(service.workshop, embedder=lambda: embedder, identity=None)
        return open_farm(settings, service=service)

    def _give_keys(self, wiki: ServedWiki) -> None:
        for scope in (Scope.READ,) if wiki.number < READ_ONLY else tuple(Scope):
            wiki.keys[scope] = self._key(wiki, scope, wiki.word("label"))
        wiki.keys["revoked"] = self._key(wiki, Scope.ADMIN, wiki.word("label"))
        self.farm.service.registry.keys.revoke(wiki.key_ids[-1])
        wiki.keys["expired"] = self._key(wiki, Scope.ADMIN, wiki.word("label"), timedelta(seconds=0.2))

    def _key(self, wiki: ServedWiki | None, scope: Scope, label: str, life: timedelta | None = None) -> str:
        expires = datetime.now(UTC) + life if life else None
        key, token = self.farm.service.registry.keys.create(wiki.id if wiki else None, scope, label, expires)
        if wiki:
            wiki.key_ids.append(key.id)
        return token


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """The application behind a real server on a port of its own; visitors say for themselves where they come from."""
    config = uvicorn.Config(app, port=0, log_config=None, proxy_headers=True, forwarded_allow_ips="127.0.0.1")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
