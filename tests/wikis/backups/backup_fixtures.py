"""Wikis with real repositories, indexes and backups, and a fake model."""

import os
from datetime import timedelta
from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import Wiki
from wikiholt.git.source import GitSource
from wikiholt.index.backup_directory import BackupDirectory, BackupFile, BackupPolicy
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService

PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\nThe heron stands by the pond.",
    "Boat.md": "# Boat\n\nTar the hull in spring.",
}


class BackupFixture:
    """A data directory, and any number of services on it."""

    def __init__(self, directory: Path, keep: int = 7, lock_timeout_s: float = 60.0) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.place = self.data / "backups"
        self.plan = BackupPolicy(self.place, keep)
        self.embedder = FakeEmbedder()
        self.lock_timeout_s = lock_timeout_s
        self.service = self.open_service()

    def open_service(self) -> WikiService:
        store = SqliteStore(self.data / "wikis")
        components = Components(
            store,
            lambda: self.embedder,
            lambda _, __: None,
            self.lock_timeout_s,
            self.plan,
        )
        return WikiService(Registry(self.data / "registry.sqlite", backups=self.plan), components, self.make_config)

    def make_config(self, wiki: Wiki) -> WikiConfig:
        return WikiConfig(GitSource(Path(wiki.source)), TextPipeline(), "{path}")

    def add_wiki(self, slug: str, pages: dict[str, str | bytes | None] | None = None) -> Repository:
        """Register and index a wiki."""
        repository = Repository(self.directory / slug)
        repository.commit(pages or PAGES)
        self.service.add(slug, str(repository.path), {})
        self.service.get_handle(slug).sync()
        return repository

    def get_wiki(self, slug: str = "one") -> WikiHandle:
        return self.service.get_handle(slug)

    def get_backup_directory(self, slug: str = "one") -> BackupDirectory:
        return BackupDirectory(self.place / self.get_wiki(slug).wiki.id)

    def get_index_file(self, slug: str = "one") -> Path:
        store = self.service.components.store
        wiki_id = self.get_wiki(slug).wiki.id
        return store.get_directory(wiki_id) / f"g{store.get_published(wiki_id):06d}.sqlite"

    def find_paths(self, query: str, slug: str = "one") -> list[str]:
        return [hit.path for hit in self.get_wiki(slug).search(SearchRequest(query, mode=SearchMode.KEYWORD)).hits]


def set_age(backup: BackupFile, days: float) -> None:
    """Make a backup `days` days older."""
    then = backup.taken_at - timedelta(days=days)
    _, rest = backup.file.name.split("-", 1)
    backup.file.rename(backup.file.with_name(f"{then:%Y%m%dT%H%M%S%fZ}-{rest}"))


def flip_bits(file: Path, at: float) -> None:
    """Invert the bits of the byte at this offset."""
    with file.open("r+b") as opened:
        opened.seek(int(file.stat().st_size * at))
        byte = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte[0] ^ 0xFF]))


def count_bytes(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
