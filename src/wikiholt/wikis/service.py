"""What surfaces call. Owns the open wikis; gives out handles, each bound to one wiki."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock

from wikiholt.domain.protocols import Embedder, KeywordCache, RepositoryIdentities, Source, VectorEngine
from wikiholt.domain.storage_protocols import DatabaseAdmin, WikiIndex
from wikiholt.domain.wiki import Key, Wiki
from wikiholt.errors import IndexCorrupt, InvalidSource, NoCommits, RepositoryReplaced, WikiholtError, WikiNotFound
from wikiholt.indexing.index_backups import IndexBackups
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_files import RECOVERY_HINT
from wikiholt.wikis.removal import PendingRemovals
from wikiholt.wikis.slugs import validate_slug

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemovedWiki:
    """What went with a wiki: files of its index by name, keys and hosts."""

    wiki: Wiki
    files: tuple[str, ...]
    keys: tuple[Key, ...]
    hosts: tuple[str, ...]


class WikiService:
    """The wikis of one data directory."""

    def __init__(
        self,
        registry: Registry,
        components: Components,
        config_for: Callable[[Wiki], WikiConfig],
        *,
        max_open: int = 64,
        repositories: RepositoryIdentities | None = None,
    ) -> None:
        """`open_wikis` handles are kept open; the one unused for longest is closed first.

        Without `repositories` one repository is not told from another at the same path.
        """
        self.registry = registry
        self.components = components
        self._config_for = config_for
        self._max_open = max_open
        self._handles: OrderedDict[str, WikiHandle] = OrderedDict()
        self._removals = PendingRemovals(
            components.store, components.lock_timeout, shared=components.databases is not None
        )
        self.on_damage: Callable[[str], None] = lambda _: None
        """Told the id of a wiki whose index proved broken, by whoever searches or checks it."""
        self._lock = Lock()
        self._repositories = repositories
        registry.backups.remove_leftovers = self._remove_leftovers
        if repositories is not None:
            registry.bind = repositories.bind

    def add(self, slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
        """Register a wiki, once its repository and settings have proved usable."""
        self._validate(Wiki("", validate_slug(slug), source, datetime.now(UTC), settings))
        return self.registry.add(slug, source, settings)

    def configure(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change settings of a wiki, once they have proved usable; an empty text unsets one."""
        wiki = self.registry.get(slug)
        settings = {name: text for name, text in {**wiki.settings, **changes}.items() if text}
        self._validate(replace(wiki, settings=settings))
        return self.registry.update_settings(slug, changes)

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedWiki:
        """Remove a wiki's index and then its registration, keys and hosts; its pages and commits are never touched.

        With `wiki_id`, only if the slug is still that wiki's; raises WikiNotFound.
        """
        wiki = self.registry.get(slug)
        if wiki_id not in (None, wiki.id):
            raise WikiNotFound("The wiki is not there any more.", hint="`wikiholt list` shows the wikis there are.")
        handle = self._get_handle(wiki, interactive=True)
        with self._removals.mark_removing(wiki.id):  # a sync at work stops at its next batch
            removed = handle.remove()
            with self._lock:
                self._handles.pop(wiki.id, None)
            struck = self.registry.remove(slug, wiki.id)
            if self._repositories is not None:
                self._repositories.release(wiki)
            if self.components.vector_engine is not None:
                self.components.vector_engine.delete_wiki(wiki.id, wiki.slug)
            # A sync that came between the two has made the index once more; from now on none can.
            return RemovedWiki(wiki, (*removed, *handle.remove()), struck.keys, struck.hosts)

    def _remove_leftovers(self, wiki_id: str) -> None:
        """Remove what a sync has made again of a wiki while it was being removed, by whoever was killed then."""
        shop = self.components
        backups = IndexBackups(wiki_id, shop.store, shop.backup_policy, shop.lock_timeout)
        if not shop.store.exists(wiki_id):
            backups.delete_all()
            shop.store.delete(wiki_id)
            return
        with shop.store.write_lock(wiki_id, shop.lock_timeout):
            backups.delete_all()
            shop.store.delete(wiki_id)

    def is_being_removed(self, wiki_id: str) -> bool:
        """Whether this wiki is just being removed, so that its index had better not be written."""
        return wiki_id in self._removals

    def list_wikis(self) -> Sequence[Wiki]:
        """Every wiki, by slug; a registry that is gone while indexes are there is an error, not a short list."""
        found = self.registry.list_wikis()
        store = self.components.store
        if found or self.registry.is_rebuilt():
            return found
        if any(store.get_published(wiki_id) is not None for wiki_id in store.list_wiki_ids()):
            raise IndexCorrupt(
                "The registry lists no wiki, but there are indexes.",
                hint=RECOVERY_HINT,
            )
        return found

    def get_handle(self, slug: str) -> WikiHandle:
        """The handle of the wiki with this slug; raises WikiNotFound and RepositoryReplaced."""
        return self._get_handle(self._get_checked(slug), interactive=True)

    def get_background_handle(self, slug: str) -> WikiHandle:
        """The same for work that nobody waits for: it keeps no wiki open in the place of one that people search."""
        return self._get_handle(self._get_checked(slug), interactive=False)

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
                self.get_source(wiki).get_head()  # one that leads elsewhere, or is damaged, is refused for that reason
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
            index = self.components.store.open(wiki.id)
            try:
                revision = index.get_state().revision
            finally:
                index.close()
            return revision is not None and bool(self.get_source(wiki).resolve_revision(revision))
        except WikiholtError:
            return False

    def rebind(self, slug: str) -> Wiki:
        """Take the repository at the wiki's path for the wiki's own: index, keys and backups stay."""
        wiki = self.registry.get(slug)
        self._validate(wiki)
        return self.registry.rebind(wiki)

    def forget(self, path_or_slug: str) -> Sequence[RemovedWiki]:
        """Remove the wiki of this slug, or every wiki whose repository lies at or below this path.

        For farms that delete wikis: the repository may be gone already. A wiki that is not registered is no error.
        """
        place = path_or_slug.rstrip("/") if path_or_slug.startswith("/") else None
        if path_or_slug.strip("/ ") == "":
            raise InvalidSource("Which wiki is gone is not said.", hint="Give its slug, or the path of its directory.")
        gone = []
        for wiki in self.registry.list_wikis():
            below = place is not None and (wiki.source == place or wiki.source.startswith(f"{place}/"))
            if below or (place is None and wiki.slug == path_or_slug):
                with suppress(WikiNotFound):  # somebody else has removed it meanwhile
                    gone.append(self.remove(wiki.slug, wiki.id))
        return gone

    def is_in_use(self, wiki_id: str) -> WikiHandle | None:
        """The handle of a wiki that is open; None for one that is not."""
        with self._lock:
            return self._handles.get(wiki_id)

    def open_with_embedder(self, slug: str, embedder: Embedder) -> WikiHandle:
        """A handle of the caller's own that embeds with this; whoever asked for it closes it."""
        return self._create_handle(self._get_checked(slug), replace(self.components, embedder=lambda: embedder))

    def open_with_keyword_cache(self, slug: str, make_cache: Callable[[WikiIndex], KeywordCache]) -> WikiHandle:
        """A handle of the caller's own that finds words by this cache; whoever asked for it closes it."""
        return self._create_handle(
            self._get_checked(slug), replace(self.components, keyword_cache=lambda index, _: make_cache(index))
        )

    def get_source(self, wiki: Wiki) -> Source:
        """Where a wiki's pages come from, without opening anything."""
        return self.get_config(wiki).source

    def get_config(self, wiki: Wiki) -> WikiConfig:
        """What the general settings and a wiki's own make of it, without opening anything."""
        return self._config_for(wiki)

    def _get_checked(self, slug: str) -> Wiki:
        """The wiki of this slug, whose repository is the one it was made from; raises RepositoryReplaced."""
        wiki = self.registry.get(slug)
        self.check_repository(wiki)
        if self._repositories is not None and wiki.id not in self._handles:
            wiki = self._record_repository(wiki, self._repositories.bind(wiki))
        return wiki

    def _record_repository(self, wiki: Wiki, repository: str) -> Wiki:
        """The wiki, with its repository recorded as it is now: a copy with its marker was created at another time."""
        if not repository or repository == wiki.repository:
            return wiki
        try:
            return self.registry.rebind(wiki)
        except WikiholtError:  # whoever can only read the registry goes on with what it says
            return wiki

    def _get_handle(self, wiki: Wiki, *, interactive: bool) -> WikiHandle:
        with self._lock:
            handle, spare = self._handles.get(wiki.id), []
            if handle is None or handle.wiki != wiki:
                spare += [handle] if handle else []
                handle = self._create_handle(wiki, self.components)
                self._handles[wiki.id] = handle
                self._handles.move_to_end(wiki.id, last=interactive)
            if interactive:
                self._handles.move_to_end(wiki.id)
            spare += [self._handles.popitem(last=False)[1] for _ in range(len(self._handles) - self._max_open)]
        for old in spare:
            old.close()
        return handle

    def _create_handle(self, wiki: Wiki, components: Components) -> WikiHandle:
        return WikiHandle(
            wiki,
            self._config_for(wiki),
            components,
            is_registered=lambda: self._is_registered(wiki),
            is_being_removed=lambda: self.is_being_removed(wiki.id),
            on_damage=lambda: self.on_damage(wiki.id),
        )

    def _validate(self, wiki: Wiki) -> None:
        """Read the wiki's tree as its settings would have it; whatever cannot be is raised."""
        for text in (wiki.source, *wiki.settings.values()):
            if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidSource(
                    "a path or setting is not UTF-8 text", hint="rename it, or link to it by another name"
                )
        self._config_for(wiki).source.check_readable()

    def _is_registered(self, wiki: Wiki) -> bool:
        try:
            return self.registry.get(wiki.slug).id == wiki.id
        except WikiNotFound:
            return False

    def load_embedder(self) -> Embedder:
        """Load the embedding model, or return it if it is loaded already. Raises ModelError."""
        return self.components.embedder()

    @property
    def databases(self) -> DatabaseAdmin | None:
        """The databases that store indexes; None if indexes are files."""
        return self.components.databases

    @property
    def vector_engine(self) -> VectorEngine | None:
        """The external vector engine, if one is configured."""
        return self.components.vector_engine

    @property
    def query_log_writer(self) -> QueryLogWriter | None:
        """The writer of the query logs of all wikis, if queries can be logged."""
        return self.components.query_log_writer

    def close(self) -> None:
        with self._lock:
            handles, self._handles = list(self._handles.values()), OrderedDict()
        for handle in handles:
            handle.close()
        if self.components.query_log_writer is not None:
            self.components.query_log_writer.close()
        if self.components.vector_engine is not None:
            self.components.vector_engine.close()
        self.registry.close()
        if self.components.databases is not None:
            self.components.databases.close()
