"""The stores that are compared, each behind a service as `wikiholt serve` has it."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.embedders import CachingEmbedder
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import IndexChange, Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.wikis.service import WikiService


class Side:
    """A service over one store, with wikis that have the same ids and pages on every side."""

    def __init__(self, name: str, data: Path, embedder: CachingEmbedder, store: str = "", **settings: object) -> None:
        self.name = name
        self.data = data
        self.address = store
        self.embedder = embedder
        given = {"search.stale_check": False, "store": store} | {k.replace("__", "."): v for k, v in settings.items()}
        self.service: WikiService = build_service(load_settings(data, overrides=given))
        self.set_embedder(embedder)
        self._ids: dict[str, str] = {}
        self._open: dict[str, WikiIndex] = {}

    def set_embedder(self, embedder: Embedder) -> None:
        """Use this embedder from now on."""
        self.service.components = dataclasses.replace(self.service.components, embedder=lambda: embedder, identity=None)

    @property
    def store(self) -> IndexStore:
        return self.service.components.store

    def register(self, slugs: Sequence[str], source: Path) -> None:
        added = self.service.registry.add_many([(slug, str(source), {}) for slug in slugs])
        self._ids |= {wiki.slug: wiki.id for wiki in added}

    def get_id(self, slug: str) -> str:
        return self._ids[slug]

    def create(self, slug: str, recipe: Recipe) -> None:
        """Provision the wiki: an empty index that can be searched."""
        self.store.create(self._ids[slug], recipe).close()

    def fill(self, slug: str, *changes: IndexChange) -> None:
        with self.open_for_writing(slug) as index:
            for change in changes:
                index.apply(change)

    def build_indexes(self, wiki_id: str) -> None:
        """Build the indexes that a large wiki gets after a sync."""
        if isinstance(self.store, PostgresStore):
            placement = self.store.placements.find(wiki_id)
            assert placement is not None
            self.store.create_missing_indexes(placement)

    @contextmanager
    def open_for_writing(self, slug: str) -> Iterator[WikiIndex]:
        """The index of a wiki under the writer lock, as in a sync."""
        with self.store.write_lock(self._ids[slug], 60):
            index = self.store.open(self._ids[slug])
            try:
                yield index
            finally:
                index.close()

    def open_index(self, slug: str) -> WikiIndex:
        """The wiki's index, which stays open."""
        if slug not in self._open:
            self._open[slug] = self.store.open(self._ids[slug])
        return self._open[slug]

    def open_searched(self, slug: str) -> WikiIndex:
        """The index that a search reads: the node's copy, if there is one."""
        copy = self.service.components.open_copy(self.open_index(slug))
        if copy is None:
            return self.open_index(slug)
        copy.refresh()
        copy.wait_idle(600)
        current = copy.get_current()
        assert current is not None
        return current

    def close(self) -> None:
        for index in self._open.values():
            index.close()
        self.service.close()
