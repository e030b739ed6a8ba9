"""Wikis with a damaged index: a repository, a data directory with the real components, ways to damage files."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S
from wikiholt.api import bootstrap
from wikiholt.api.backends import open_backend
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray, Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import SearchMode
from wikiholt.index.rows import encode_content
from wikiholt.search.request import SearchRequest
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

PAGE_COUNT, KEYWORD_CACHE_MIN_PAGES = 40, 10
"""Number of pages of the default wiki, and the minimum for a keyword cache."""


class GatedEmbedder(FakeEmbedder):
    """Calls `gate` before every batch, if it is set."""

    gate: Callable[[], None] | None = None

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        if self.gate is not None:
            self.gate()
        return super().embed_passages(texts)


class DamagedWiki:
    """One synced wiki, `notes`. By default it is small but has all caches of a large one."""

    def __init__(self, place: Path, pages: int | None = None, settings: dict[str, object] | None = None) -> None:
        self.place = place
        self._caches_keywords = pages is None
        pages = PAGE_COUNT if pages is None else pages
        self.repository = Repository(place / "repository")
        self.repository.commit({f"page-{n}.md": f"# Page {n}\n\nunique{n} everywhere\n" for n in range(pages)})
        self.embedder = GatedEmbedder()
        self.models: dict[str, FakeEmbedder] = {self.embedder.fingerprint: self.embedder}
        self.settings = settings or {}
        self.schedulers: list[Scheduler] = []
        self.service = self.open_service()
        self.service.add("notes", str(self.repository.path), {})
        self.handle.sync()
        self.handle.wait_for_caches(TIMEOUT_S)

    def open_service(self) -> WikiService:
        settings = load_settings(self.place / "data", overrides=self.settings)
        backend = open_backend(settings, bootstrap._get_backup_policy(settings))
        if self._caches_keywords:
            backend = replace(backend, keyword_cache_min_pages=KEYWORD_CACHE_MIN_PAGES)
        service = bootstrap.build_service(settings, backend=backend)
        service.components = replace(
            service.components, embedder=lambda: self.embedder, identity=None, previous_model=self.load_previous_model
        )
        return service

    def load_previous_model(self, recipe: Recipe) -> Embedder:
        return self.models[recipe.fingerprint]

    def reopen(self) -> None:
        """Close and open the service, as a restart does."""
        self.service.close()
        self.service = self.open_service()

    def use_model(self, embedder: GatedEmbedder) -> None:
        """Switch to another model. The previous one can still be loaded by its recipe."""
        self.embedder = embedder
        self.models[embedder.fingerprint] = embedder
        self.reopen()

    @property
    def handle(self) -> WikiHandle:
        return self.service.get_handle("notes")

    @property
    def directory(self) -> Path:
        return self.service.components.store.get_directory(self.handle.wiki.id)

    @property
    def index_file(self) -> Path:
        return next(iter(sorted(self.directory.glob("g??????.sqlite"), reverse=True)))

    def start_scheduler(self, checks: float = 0.0) -> Scheduler:
        scheduler = Scheduler(
            self.service, SchedulerConfig(1, 0.5, 60.0, check_interval_s=checks, get_interval=lambda _: 0.2)
        )
        self.service.listen_for_damage(scheduler.request_repair)
        self.schedulers.append(scheduler)
        scheduler.start()
        return scheduler

    def assert_healthy(self) -> None:
        """Check that every search mode finds a page and that the index is intact and at HEAD."""
        handle = self.handle
        assert handle.check() == []
        state = handle.get_status().state
        assert state is not None
        assert state.revision == self.repository.get_head()
        for mode in (SearchMode.KEYWORD, SearchMode.SEMANTIC, SearchMode.HYBRID):
            answer = handle.search(SearchRequest("unique7", mode=mode))
            assert answer.hits[0].path == "page-7", mode
            assert not answer.degraded, answer.notes

    def corrupt_chunk_text(self) -> None:
        """Change the text of a chunk but keep the size and mtime of the file. SQLite itself detects nothing."""
        file = self.index_file
        before = file.stat()
        with closing(sqlite3.connect(file)) as db:
            content = encode_content("something else", "[]", "")
            db.execute("UPDATE chunks SET content = ? WHERE id = (SELECT max(id) FROM chunks)", (content,))
            db.commit()
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def close(self) -> None:
        for scheduler in self.schedulers:
            assert scheduler.stop(TIMEOUT_S)
        self.service.close()


def overwrite_bytes(file: Path, at: float, data: bytes) -> None:
    """Overwrite bytes at a position given as a fraction of the file size."""
    with file.open("r+b") as opened:
        opened.seek(int(file.stat().st_size * at))
        opened.write(data)


def truncate_file(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)


def remove_path(file: Path) -> None:
    shutil.rmtree(file) if file.is_dir() else file.unlink()
