"""Twenty wikis behind one server, each with unique words in every place that a service can return."""

import dataclasses
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tests.isolation.backends import FileBackend, IsolationBackend
from tests.isolation.canaries import COMMON_TEXT, CanaryWiki
from tests.support.tiers import choose
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.http.sign_in import PeerMiddleware
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis import keys

WIKI_COUNT, READ_ONLY_COUNT, REMOVED_COUNT = 20, 10, 4
"""Number of wikis. The first ones have only read keys, the last ones are removed during the requests."""
PUBLIC_WIKIS = (2, 12)
DOMAIN = "farm.example"
SECRET_WORD = "hush"
"""The word of a wiki that no request contains: a response with it returned content."""


class ServedWiki(CanaryWiki):
    """A wiki whose pages, paths, tags, authors, messages, host, settings and keys contain its words."""

    def __init__(self, directory: Path, number: int) -> None:
        super().__init__(directory, number)
        self.number = number
        self.host = f"{self.get_word('host')}.example"
        self.secret = self.get_word("secret")
        self.repository.run_git(
            "commit", "--quiet", "--allow-empty", f"--author={self.author}", "-m", self._make_message()
        )
        self.heads: list[str] = []
        self.commit_edit(0)
        self.keys: dict[str, str] = {}
        self.key_ids: list[str] = []
        self.sign_in = ""
        self.id = ""

    @property
    def group(self) -> str:
        """The group of the persons who may read this wiki."""
        return f"readers of {self.get_word('group')}"

    @property
    def author(self) -> str:
        return f"{self.get_word('author')} {self.get_word(SECRET_WORD)} <{self.get_word('address')}@example.org>"

    @property
    def public(self) -> bool:
        return self.number in PUBLIC_WIKIS

    @property
    def settings(self) -> dict[str, str]:
        own = {"hosts": self.host, "webhook_secret": self.secret, "public": "true" if self.public else "false"}
        return own | {"url": f"/{self.get_word('url')}/{{path}}", "ignore": f"{self.get_word('ignored')}.md"}

    @property
    def paths(self) -> list[str]:
        return [
            "Home",
            f"{self.get_word('path')}/Pump",
            self.get_word("path"),
            "Rota",
            f"{self.get_word('path')}/Pump.md",
        ]

    @property
    def filename(self) -> str:
        """The name of a file that is attached to Home."""
        return f"{self.get_word('file')}.txt"

    def commit_edit(self, number: int) -> None:
        words = " ".join(self.get_word(kind) for kind in ("body", "edit", SECRET_WORD))
        text = f"# Home\n\n{COMMON_TEXT} {words} {number} [[Rota]]"
        file = self.repository.path / "Home.md"
        file.write_text(text)
        self._run_git_unlocked("add", "Home.md")
        # A request that writes the same page at this moment may have restored its text.
        options = ("--quiet", "--allow-empty", f"--author={self.author}")
        self._run_git_unlocked("commit", *options, "-m", self._make_message())
        self.heads.append(self.repository.get_head())

    def _run_git_unlocked(self, *arguments: str) -> None:
        """Run git, again while a request that writes a page has a lock of the repository."""

        def has_run() -> bool:
            try:
                self.repository.run_git(*arguments)
            except AssertionError as error:
                if "lock" not in str(error):
                    raise
                return False
            return True

        wait_until(has_run)

    def _make_message(self) -> str:
        return f"Say {self.get_word('message')} {self.get_word(SECRET_WORD)}"

    def _make_pages(self) -> dict[str, str | bytes | None]:
        word, term = self.get_word, self.get_word(SECRET_WORD)
        return {
            "Home.md": f"# Home\n\n{COMMON_TEXT} {word('body')} {term}",
            f"{word('path')}/Pump.md": f"---\ntitle: Pump {word('title')} {term}\ntags: [pump, {word('tag')}, {term}]\n"
            f"category: {word('category')}\n---\n## Restart {word('heading')}\n\n"
            f"{COMMON_TEXT} {term} [see]({word('link')})",
            f"{word('path')}.md": f"# {word('title')}\n\n"
            f"{COMMON_TEXT} {term} [home](Home.md) [pump]({word('path')}/Pump.md)",
            "Rota.md": f"---\ntags: people\n---\n# Rota\n\n{COMMON_TEXT} Ask {word('text')} {term} first.",
            f"Home/{self.filename}": f"{word('attached')} {term}",
            f"{word('problem')}.md": b"\x00\xff" * 40 + term.encode(),
        }


class ServedEnvironment:
    """The wikis, their keys, and the application that serves them."""

    def __init__(self, directory: Path, backend: IsolationBackend | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.backend = backend or FileBackend(self.data)
        self.wikis = [ServedWiki(directory / "r", number) for number in range(WIKI_COUNT)]
        self.application = self._open_application()
        for wiki in self.wikis:
            wiki.id = self.application.service.add(wiki.slug, str(wiki.repository.path), wiki.settings).id
            self.application.service.get_handle(wiki.slug).sync()
            self._create_keys(wiki)
        self.operator = self._create_key(None, Scope.ADMIN, "operator")
        self.app = create_app(self.application)

    @property
    def wikis_to_remove(self) -> list[ServedWiki]:
        return self.wikis[-REMOVED_COUNT:]

    @property
    def read_only_wikis(self) -> list[ServedWiki]:
        """The wikis without a write key."""
        return self.wikis[:READ_ONLY_COUNT]

    def _open_application(self) -> Application:
        no_limits = {"limit.key_per_minute": 0, "limit.address_per_minute": 0}
        people = {
            "people.remember_days": 1,
            "people.proxy_user_header": "Remote-User",
            "people.proxy_groups_header": "Remote-Groups",
            "people.groups": [f"{wiki.group}={wiki.slug}:read" for wiki in self.wikis],
            "serve.trusted_proxies": ["127.0.0.1"],
        }
        overrides = {"serve.domain": DOMAIN, "sync.interval": choose(1, 4), "log.level": "debug"}
        # A scheduled check or backup writes notes, and some wikis must not change.
        overrides |= {"check.interval": 0, "backup.interval": 0, "lock.timeout": TIMEOUT_S}
        settings = load_settings(self.data, overrides=overrides | no_limits | people)
        service = build_service(settings)
        embedder = FakeEmbedder()
        service.components = dataclasses.replace(service.components, embedder=lambda: embedder, identity=None)
        return open_application(settings, service=service)

    def _create_keys(self, wiki: ServedWiki) -> None:
        for scope in (Scope.READ,) if wiki.number < READ_ONLY_COUNT else tuple(Scope):
            wiki.keys[scope] = self._create_key(wiki, scope, wiki.get_word("label"))
        registry = self.application.service.registry
        key = registry.keys.find_by_token(wiki.keys[Scope.READ])
        assert key is not None
        _, wiki.sign_in = registry.sign_ins.create(key, timedelta(days=1))
        wiki.keys["revoked"] = self._create_key(wiki, Scope.ADMIN, wiki.get_word("label"))
        self.application.service.registry.keys.revoke(wiki.key_ids[-1])
        with patch.object(keys, "_is_future", return_value=True):
            wiki.keys["expired"] = self._create_key(wiki, Scope.ADMIN, wiki.get_word("label"), timedelta(hours=-1))

    def _create_key(self, wiki: ServedWiki | None, scope: Scope, label: str, lifetime: timedelta | None = None) -> str:
        expires = datetime.now(UTC) + lifetime if lifetime else None
        key, token = self.application.service.registry.keys.create(wiki.id if wiki else None, scope, label, expires)
        if wiki:
            wiki.key_ids.append(key.id)
        return token


def run_behind_proxy(app: FastAPI) -> AbstractContextManager[str]:
    """Run the application on a free port. Clients set their own address with X-Forwarded-For."""
    behind_proxy = PeerMiddleware(ProxyHeadersMiddleware(app, "127.0.0.1"))  # type: ignore[arg-type]
    return run_server(behind_proxy, proxy_headers=False)
