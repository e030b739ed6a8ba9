"""Wikis of real repositories with real indexes and backups, and a stand-in for the model."""

import os
from datetime import timedelta
from pathlib import Path

from git_repository import Repository

from wikiholt.backups import BackupPlan, Kept, Shelf
from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.model import Mode, Wiki
from wikiholt.pages import Pipeline
from wikiholt.registry import Registry
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache

PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\nThe heron stands by the pond.",
    "Boat.md": "# Boat\n\nTar the hull in spring.",
}


class Ground:
    """What a test stands on: a data directory, and as many services over it as it likes."""

    def __init__(self, directory: Path, keep: int = 7, lock_timeout: float = 5.0) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.place = self.data / "backups"
        self.plan = BackupPlan(self.place, keep)
        self.embedder = FakeEmbedder()
        self.lock_timeout = lock_timeout
        self.service = self.opened()

    def opened(self) -> Service:
        store = SqliteStore(self.data / "wikis")
        shop = Workshop(
            store,
            lambda: self.embedder,
            lambda index, wiki_id: ExactCache(index, store.directory(wiki_id)),
            lambda _, __: None,
            self.lock_timeout,
            self.plan,
        )
        return Service(Registry(self.data / "registry.sqlite", backups=self.plan), shop, self.parts)

    def parts(self, wiki: Wiki) -> Parts:
        return Parts(GitSource(Path(wiki.source)), Pipeline(), "{path}")

    def add(self, slug: str, pages: dict[str, str | bytes | None] | None = None) -> Repository:
        """A wiki that is registered and indexed."""
        repository = Repository(self.directory / slug)
        repository.commit(pages or PAGES)
        self.service.add(slug, str(repository.path), {})
        self.service.wiki(slug).sync()
        return repository

    def wiki(self, slug: str = "one") -> WikiHandle:
        return self.service.wiki(slug)

    def shelf(self, slug: str = "one") -> Shelf:
        return Shelf(self.place / self.wiki(slug).wiki.id)

    def index_file(self, slug: str = "one") -> Path:
        store = self.service.workshop.store
        wiki_id = self.wiki(slug).wiki.id
        return store.directory(wiki_id) / f"g{store.published(wiki_id):06d}.sqlite"

    def found(self, query: str, slug: str = "one") -> list[str]:
        return [hit.path for hit in self.wiki(slug).search(Request(query, mode=Mode.KEYWORD)).hits]


def age(kept: Kept, days: float) -> None:
    """Have a backup be so many days older than it is."""
    then = kept.taken_at - timedelta(days=days)
    _, rest = kept.file.name.split("-", 1)
    kept.file.rename(kept.file.with_name(f"{then:%Y%m%dT%H%M%S%fZ}-{rest}"))


def flip(file: Path, at: float) -> None:
    """Turn over the bits of a byte, so far into the file."""
    with file.open("r+b") as opened:
        opened.seek(int(file.stat().st_size * at))
        byte = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte[0] ^ 0xFF]))


def bytes_below(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
