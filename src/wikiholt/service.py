"""What surfaces call. Owns the open wikis; gives out handles, each bound to one wiki."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock

from wikiholt.backups import Backups
from wikiholt.errors import IndexCorrupt, InvalidSource, WikiNotFound
from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.leaving import Leaving
from wikiholt.model import Key, Wiki
from wikiholt.ports import Embedder, Source, WikiIndex, WordCache
from wikiholt.registry import RESTORE, Registry, validate_slug


@dataclass(frozen=True, slots=True)
class Removed:
    """What went with a wiki: files of its index by name, keys and hosts."""

    wiki: Wiki
    files: tuple[str, ...]
    keys: tuple[Key, ...]
    hosts: tuple[str, ...]


class Service:
    """The wikis of one data directory."""

    def __init__(
        self, registry: Registry, workshop: Workshop, parts_of: Callable[[Wiki], Parts], *, open_wikis: int = 64
    ) -> None:
        """`open_wikis` handles are kept open; the one unused for longest is closed first."""
        self.registry = registry
        self.workshop = workshop
        self._parts_of = parts_of
        self._open_wikis = open_wikis
        self._open: OrderedDict[str, WikiHandle] = OrderedDict()
        self._leaving = Leaving(workshop.store, workshop.lock_timeout, told=workshop.databases is not None)
        self.on_broken: Callable[[str], None] = lambda _: None
        """Told the id of a wiki whose index proved broken, by whoever searches or checks it."""
        self._lock = Lock()
        registry.backups.drop_rest = self._drop_rest

    def add(self, slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
        """Register a wiki, once its repository and settings have proved usable."""
        self._try(Wiki("", validate_slug(slug), source, datetime.now(UTC), settings))
        return self.registry.add(slug, source, settings)

    def configure(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change settings of a wiki, once they have proved usable; an empty text unsets one."""
        wiki = self.registry.get(slug)
        settings = {name: text for name, text in {**wiki.settings, **changes}.items() if text}
        self._try(replace(wiki, settings=settings))
        return self.registry.change(slug, changes)

    def remove(self, slug: str) -> Removed:
        """Remove a wiki's index and then its registration, keys and hosts; the git repository is never touched."""
        wiki = self.registry.get(slug)
        handle = self.wiki(slug)
        with self._leaving.begun(wiki.id):  # a sync at work stops at its next batch
            removed = handle.remove()
            with self._lock:
                self._open.pop(wiki.id, None)
            struck = self.registry.remove(slug)
            if self.workshop.engine is not None:
                self.workshop.engine.forget(wiki.id, wiki.slug)
            # A sync that came between the two has made the index once more; from now on none can.
            return Removed(wiki, (*removed, *handle.remove()), struck.keys, struck.hosts)

    def _drop_rest(self, wiki_id: str) -> None:
        """Remove what a sync has made again of a wiki while it was being removed, by whoever was killed then."""
        shop = self.workshop
        backups = Backups(wiki_id, shop.store, shop.backups, shop.lock_timeout)
        if not shop.store.holds(wiki_id):
            backups.drop()
            shop.store.drop(wiki_id)
            return
        with shop.store.writing(wiki_id, shop.lock_timeout):
            backups.drop()
            shop.store.drop(wiki_id)

    def leaving(self, wiki_id: str) -> bool:
        """Whether this wiki is just being removed, so that its index had better not be written."""
        return wiki_id in self._leaving

    def wikis(self) -> Sequence[Wiki]:
        """Every wiki, by slug; a registry that is gone while indexes are there is an error, not a short list."""
        found = self.registry.list()
        store = self.workshop.store
        if not found and any(store.published(wiki_id) is not None for wiki_id in store.ids()):
            raise IndexCorrupt(
                "The registry lists no wiki, but there are indexes.",
                hint=f"{RESTORE} Without a backup, add each wiki again.",
            )
        return found

    def wiki(self, slug: str) -> WikiHandle:
        """The handle of the wiki with this slug; raises WikiNotFound."""
        return self._handle(self.registry.get(slug), asked=True)

    def background(self, slug: str) -> WikiHandle:
        """The same for work that nobody waits for: it keeps no wiki open in the place of one that people search."""
        return self._handle(self.registry.get(slug), asked=False)

    def in_use(self, wiki_id: str) -> WikiHandle | None:
        """The handle of a wiki that is open; None for one that is not."""
        with self._lock:
            return self._open.get(wiki_id)

    def lent(self, slug: str, embedder: Embedder) -> WikiHandle:
        """A handle of the caller's own that embeds with this; whoever asked for it closes it."""
        return self._made(self.registry.get(slug), replace(self.workshop, embedder=lambda: embedder))

    def reworded(self, slug: str, cache: Callable[[WikiIndex], WordCache]) -> WikiHandle:
        """A handle of the caller's own that finds words by this cache; whoever asked for it closes it."""
        return self._made(self.registry.get(slug), replace(self.workshop, word_cache=lambda index, _: cache(index)))

    def source(self, wiki: Wiki) -> Source:
        """Where a wiki's pages come from, without opening anything."""
        return self.parts(wiki).source

    def parts(self, wiki: Wiki) -> Parts:
        """What the general settings and a wiki's own make of it, without opening anything."""
        return self._parts_of(wiki)

    def _handle(self, wiki: Wiki, *, asked: bool) -> WikiHandle:
        with self._lock:
            handle, spare = self._open.get(wiki.id), []
            if handle is None or handle.wiki != wiki:
                spare += [handle] if handle else []
                handle = self._made(wiki, self.workshop)
                self._open[wiki.id] = handle
                self._open.move_to_end(wiki.id, last=asked)
            if asked:
                self._open.move_to_end(wiki.id)
            spare += [self._open.popitem(last=False)[1] for _ in range(len(self._open) - self._open_wikis)]
        for old in spare:
            old.close()
        return handle

    def _made(self, wiki: Wiki, workshop: Workshop) -> WikiHandle:
        return WikiHandle(
            wiki,
            self._parts_of(wiki),
            workshop,
            wanted=lambda: self._has(wiki),
            leaving=lambda: self.leaving(wiki.id),
            alarm=lambda: self.on_broken(wiki.id),
        )

    def _try(self, wiki: Wiki) -> None:
        """Read the wiki's tree as its settings would have it; whatever cannot be is raised."""
        for text in (wiki.source, *wiki.settings.values()):
            if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidSource(
                    "a path or setting is not UTF-8 text", hint="rename it, or link to it by another name"
                )
        self._parts_of(wiki).source.prove()

    def _has(self, wiki: Wiki) -> bool:
        try:
            return self.registry.get(wiki.slug).id == wiki.id
        except WikiNotFound:
            return False

    def close(self) -> None:
        with self._lock:
            handles, self._open = list(self._open.values()), OrderedDict()
        for handle in handles:
            handle.close()
        if self.workshop.scribe is not None:
            self.workshop.scribe.close()
        if self.workshop.engine is not None:
            self.workshop.engine.close()
        self.registry.close()
        if self.workshop.databases is not None:
            self.workshop.databases.close()
