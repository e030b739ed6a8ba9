"""What surfaces call. Owns the open wikis; gives out handles, each bound to one wiki."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock

from wikiholt.backups import Backups
from wikiholt.errors import IndexCorrupt, InvalidSource, NoCommits, RepositoryReplaced, WikiholtError, WikiNotFound
from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.leaving import Leaving
from wikiholt.model import Key, Wiki
from wikiholt.ports import Embedder, Repositories, Source, WikiIndex, WordCache
from wikiholt.registry import RECOVER, Registry, validate_slug

_LOG = logging.getLogger(__name__)


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
        self,
        registry: Registry,
        workshop: Workshop,
        parts_of: Callable[[Wiki], Parts],
        *,
        open_wikis: int = 64,
        repositories: Repositories | None = None,
    ) -> None:
        """`open_wikis` handles are kept open; the one unused for longest is closed first.

        Without `repositories` one repository is not told from another at the same path.
        """
        self.registry = registry
        self.workshop = workshop
        self._parts_of = parts_of
        self._open_wikis = open_wikis
        self._open: OrderedDict[str, WikiHandle] = OrderedDict()
        self._leaving = Leaving(workshop.store, workshop.lock_timeout, told=workshop.databases is not None)
        self.on_broken: Callable[[str], None] = lambda _: None
        """Told the id of a wiki whose index proved broken, by whoever searches or checks it."""
        self._lock = Lock()
        self._repositories = repositories
        registry.backups.drop_rest = self._drop_rest
        if repositories is not None:
            registry.bind = repositories.bind

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

    def remove(self, slug: str, wiki_id: str | None = None) -> Removed:
        """Remove a wiki's index and then its registration, keys and hosts; its pages and commits are never touched.

        With `wiki_id`, only if the slug is still that wiki's; raises WikiNotFound.
        """
        wiki = self.registry.get(slug)
        if wiki_id not in (None, wiki.id):
            raise WikiNotFound("The wiki is not there any more.", hint="`wikiholt list` shows the wikis there are.")
        handle = self._handle(wiki, asked=True)
        with self._leaving.begun(wiki.id):  # a sync at work stops at its next batch
            removed = handle.remove()
            with self._lock:
                self._open.pop(wiki.id, None)
            struck = self.registry.remove(slug, wiki.id)
            if self._repositories is not None:
                self._repositories.release(wiki)
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
        if found or self.registry.is_rebuilt():
            return found
        if any(store.published(wiki_id) is not None for wiki_id in store.ids()):
            raise IndexCorrupt(
                "The registry lists no wiki, but there are indexes.",
                hint=RECOVER,
            )
        return found

    def wiki(self, slug: str) -> WikiHandle:
        """The handle of the wiki with this slug; raises WikiNotFound and RepositoryReplaced."""
        return self._handle(self._checked(slug), asked=True)

    def background(self, slug: str) -> WikiHandle:
        """The same for work that nobody waits for: it keeps no wiki open in the place of one that people search."""
        return self._handle(self._checked(slug), asked=False)

    def is_replaced(self, wiki: Wiki) -> bool:
        """Whether another repository lies where this wiki's was: what is known of the wiki is none of its business."""
        return self._repositories is not None and not self._repositories.matches(wiki)

    def identify_repository(self, source: str) -> str:
        """When the repository at this path was created, in a form to compare; empty where that cannot be told."""
        return self._repositories.identify(source) if self._repositories is not None else ""

    def check_repository(self, wiki: Wiki) -> None:
        """Raise RepositoryReplaced where another repository lies at the wiki's path than the one it was made from."""
        if self.is_replaced(wiki):
            with suppress(NoCommits):
                self.source(wiki).head()  # one that leads elsewhere, or is damaged, is refused for that reason
            raise RepositoryReplaced(
                "Another repository lies where this wiki's was, so nothing of the wiki is shown.",
                hint=f"If it is a new wiki: `wikiholt remove {wiki.slug}`, then add it again. If it is the same one,"
                f" restored from a copy: `wikiholt rebind {wiki.slug}`",
            )

    def discard_replaced(self, wiki: Wiki) -> bool:
        """Remove the wiki if another repository lies at its path that is surely no copy of its own; whether it was.

        For those who register what they find at a path. Raises what `remove` raises.
        """
        if not self.is_replaced(wiki):
            return False
        if not wiki.repository.startswith("marked") and self._shares_history(wiki):
            return False  # without a marker a copy that was restored looks like this too: the operator decides
        removed = self.remove(wiki.slug, wiki.id)
        _LOG.warning(
            "%s: another repository lies at its path, which makes it a new wiki: index, backups and %d keys of the"
            " one before were removed",
            wiki.slug,
            len(removed.keys),
        )
        return True

    def _shares_history(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path has the commit that the wiki's index stands for."""
        try:
            index = self.workshop.store.open(wiki.id)
            try:
                revision = index.state().revision
            finally:
                index.close()
            return revision is not None and bool(self.source(wiki).resolve(revision))
        except WikiholtError:
            return False

    def rebind(self, slug: str) -> Wiki:
        """Take the repository at the wiki's path for the wiki's own: index, keys and backups stay."""
        wiki = self.registry.get(slug)
        self._try(wiki)
        return self.registry.rebind(wiki)

    def forget(self, path_or_slug: str) -> Sequence[Removed]:
        """Remove the wiki of this slug, or every wiki whose repository lies at or below this path.

        For farms that delete wikis: the repository may be gone already. A wiki that is not registered is no error.
        """
        place = path_or_slug.rstrip("/") if path_or_slug.startswith("/") else None
        if path_or_slug.strip("/ ") == "":
            raise InvalidSource("Which wiki is gone is not said.", hint="Give its slug, or the path of its directory.")
        gone = []
        for wiki in self.registry.list():
            below = place is not None and (wiki.source == place or wiki.source.startswith(f"{place}/"))
            if below or (place is None and wiki.slug == path_or_slug):
                with suppress(WikiNotFound):  # somebody else has removed it meanwhile
                    gone.append(self.remove(wiki.slug, wiki.id))
        return gone

    def in_use(self, wiki_id: str) -> WikiHandle | None:
        """The handle of a wiki that is open; None for one that is not."""
        with self._lock:
            return self._open.get(wiki_id)

    def lent(self, slug: str, embedder: Embedder) -> WikiHandle:
        """A handle of the caller's own that embeds with this; whoever asked for it closes it."""
        return self._made(self._checked(slug), replace(self.workshop, embedder=lambda: embedder))

    def reworded(self, slug: str, cache: Callable[[WikiIndex], WordCache]) -> WikiHandle:
        """A handle of the caller's own that finds words by this cache; whoever asked for it closes it."""
        return self._made(self._checked(slug), replace(self.workshop, word_cache=lambda index, _: cache(index)))

    def source(self, wiki: Wiki) -> Source:
        """Where a wiki's pages come from, without opening anything."""
        return self.parts(wiki).source

    def parts(self, wiki: Wiki) -> Parts:
        """What the general settings and a wiki's own make of it, without opening anything."""
        return self._parts_of(wiki)

    def _checked(self, slug: str) -> Wiki:
        """The wiki of this slug, whose repository is the one it was made from; raises RepositoryReplaced."""
        wiki = self.registry.get(slug)
        self.check_repository(wiki)
        if self._repositories is not None and wiki.id not in self._open:
            wiki = self._recorded(wiki, self._repositories.bind(wiki))
        return wiki

    def _recorded(self, wiki: Wiki, repository: str) -> Wiki:
        """The wiki, with its repository recorded as it is now: a copy with its marker was created at another time."""
        if not repository or repository == wiki.repository:
            return wiki
        try:
            return self.registry.rebind(wiki)
        except WikiholtError:  # whoever can only read the registry goes on with what it says
            return wiki

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
