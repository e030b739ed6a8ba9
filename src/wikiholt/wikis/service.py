"""The service that interfaces call. Owns the open wikis and returns handles, each bound to one wiki."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from wikiholt.domain.protocols import Embedder, KeywordCache, RepositoryIdentities, Source, VectorEngine
from wikiholt.domain.storage_protocols import DatabaseAdmin, IndexStore, WikiIndex
from wikiholt.domain.wiki import Key, Wiki
from wikiholt.errors import (
    Busy,
    IndexCorrupt,
    InvalidSource,
    NoCommits,
    RepositoryReplaced,
    WikiholtError,
    WikiNotFound,
)
from wikiholt.indexing.index_backups import IndexBackups
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_recovery import RECOVERY_HINT
from wikiholt.wikis.slugs import validate_slug

_NOTE_NAME = "leaving"
_POLL_INTERVAL_S = 0.5
"""Seconds between two reads of a wiki's note, because writers ask continuously."""
_NOTE_MARGIN_S = 60.0
"""Extra lifetime of a note, beyond the time a removal waits. It then expires if the removal was killed."""


class PendingRemovals:
    """Used from many threads. If `shared`, other nodes are informed by a note stored with the index."""

    def __init__(self, store: IndexStore, lock_timeout: float, *, shared: bool) -> None:
        """`lock_timeout` is how long a removal waits for a writer."""
        self._store = store
        self._note_ttl = timedelta(seconds=lock_timeout + _NOTE_MARGIN_S)
        self._shared = shared
        self._local: set[str] = set()
        self._cached: dict[str, tuple[float, bool]] = {}

    @contextmanager
    def mark_removing(self, wiki_id: str) -> Iterator[None]:
        """Mark the wiki as being removed for the duration of the block."""
        self._local.add(wiki_id)
        try:
            self._write_note(wiki_id, (datetime.now(UTC) + self._note_ttl).isoformat())
            yield
        finally:
            self._write_note(wiki_id, "")
            self._local.discard(wiki_id)

    def __contains__(self, wiki_id: str) -> bool:
        if wiki_id in self._local or not self._shared:
            return wiki_id in self._local
        read_at, removing = self._cached.get(wiki_id, (0.0, False))
        if time.monotonic() - read_at >= _POLL_INTERVAL_S:
            removing = self._read_note(wiki_id)
            self._cached[wiki_id] = (time.monotonic(), removing)
        return removing

    def _write_note(self, wiki_id: str, text: str) -> None:
        if self._shared:
            with suppress(WikiholtError):  # without the note the removal is only slower
                self._store.set_note(wiki_id, _NOTE_NAME, text)

    def _read_note(self, wiki_id: str) -> bool:
        try:
            note = self._store.get_note(wiki_id, _NOTE_NAME)
            return bool(note) and datetime.fromisoformat(note or "") > datetime.now(UTC)
        except (WikiholtError, ValueError, TypeError):
            return False


# The service


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemovedWiki:
    """What was removed with a wiki: the names of its index files, its keys and its hosts."""

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
        complete_settings: Callable[[str, Mapping[str, str]], Mapping[str, str]] = lambda _, settings: settings,
    ) -> None:
        """Up to `max_open` handles are kept open; the least recently used is closed first.

        Without `repositories`, a repository that replaces another at the same path is not detected.
        `complete_settings` adds what a new wiki's source implies to its settings.
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
        """Called with the id of a wiki whose index proves damaged."""
        self._lock = Lock()
        self._repositories = repositories
        self._complete_settings = complete_settings
        registry.backups.remove_leftovers = self._remove_leftovers
        if repositories is not None:
            registry.bind = repositories.bind

    def add(self, slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
        """Register a wiki, after checking its repository and settings."""
        validate_slug(slug)
        settings = self._complete_settings(source, settings)
        self._validate(Wiki("", slug, source, datetime.now(UTC), settings))
        return self.registry.add(slug, source, settings)

    def configure(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change settings of a wiki, after checking them. An empty value unsets a setting."""
        wiki = self.registry.get(slug)
        settings = {name: text for name, text in {**wiki.settings, **changes}.items() if text}
        self._validate(replace(wiki, settings=settings))
        changed = self.registry.update_settings(slug, changes)
        # Directories and repositories are identified in different ways.
        return changed if changed.is_directory == wiki.is_directory else self.registry.rebind(changed)

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedWiki:
        """Remove a wiki's index, then its registration, keys and hosts. Its pages and commits are never touched.

        With `wiki_id`, only if the slug still belongs to that wiki. Raises WikiNotFound.
        """
        wiki = self.registry.get(slug)
        if wiki_id not in (None, wiki.id):
            raise WikiNotFound("The wiki no longer exists.", hint="`wikiholt list` shows all wikis.")
        handle = self._get_handle(wiki, interactive=True)
        with self._removals.mark_removing(wiki.id):  # a running sync stops at its next batch
            removed = handle.remove()
            with self._lock:
                self._handles.pop(wiki.id, None)
            unregistered = self.registry.remove(slug, wiki.id)
            if self._repositories is not None:
                self._repositories.release(wiki)
            if self.components.vector_engine is not None:
                self.components.vector_engine.delete_wiki(wiki.id, wiki.slug)
            # A sync may have created the index again in between; from now on none can.
            return RemovedWiki(wiki, (*removed, *handle.remove()), unregistered.keys, unregistered.hosts)

    def _remove_leftovers(self, wiki_id: str) -> None:
        """Delete what a sync created again for a wiki whose removal was killed."""
        components = self.components
        backups = IndexBackups(wiki_id, components.store, components.backup_policy, components.lock_timeout)
        if not components.store.exists(wiki_id):
            backups.delete_all()
            components.store.delete(wiki_id)
            return
        with components.store.write_lock(wiki_id, components.lock_timeout):
            backups.delete_all()
            components.store.delete(wiki_id)

    def is_being_removed(self, wiki_id: str) -> bool:
        """Whether this wiki is being removed, so that its index should not be written."""
        return wiki_id in self._removals

    def list_wikis(self) -> Sequence[Wiki]:
        """All wikis, by slug. Raises IndexCorrupt if the registry is empty but there are indexes."""
        wikis = self.registry.list_wikis()
        store = self.components.store
        if wikis or self.registry.is_rebuilt():
            return wikis
        if any(store.get_published(wiki_id) is not None for wiki_id in store.list_wiki_ids()):
            raise IndexCorrupt("The registry lists no wiki, but there are indexes.", hint=RECOVERY_HINT)
        return wikis

    def list_unregistered_indexes(self) -> Sequence[str]:
        """The ids of indexes that belong to no registered wiki. Raises like `list_wikis`."""
        known = {wiki.id for wiki in self.list_wikis()}
        return [wiki_id for wiki_id in self.components.store.list_wiki_ids() if wiki_id not in known]

    def delete_unregistered_index(self, wiki_id: str) -> Sequence[str]:
        """Delete an index that belongs to no wiki and return the names of what was deleted. Raises Busy."""
        if any(wiki.id == wiki_id for wiki in self.registry.list_wikis()):
            raise Busy("this index belongs to a wiki", hint="remove the wiki with `wikiholt remove`")
        return self.components.store.delete(wiki_id)

    def get_handle(self, slug: str) -> WikiHandle:
        """The handle of the wiki with this slug. Raises WikiNotFound and RepositoryReplaced."""
        return self.get_handle_of(self.registry.get(slug))

    def get_handle_of(self, wiki: Wiki) -> WikiHandle:
        """The handle of a wiki that the caller has just read from the registry. Raises RepositoryReplaced."""
        return self._get_handle(self._check_wiki(wiki), interactive=True)

    def get_background_handle(self, slug: str) -> WikiHandle:
        """Like `get_handle`, for background work: does not displace a handle that people use for searches."""
        return self._get_handle(self._get_checked(slug), interactive=False)

    def is_replaced(self, wiki: Wiki) -> bool:
        """Whether the wiki's path now has another repository, which must not see anything of this wiki."""
        return self._repositories is not None and not self._repositories.matches(wiki)

    def identify_repository(self, source: str) -> str:
        """The creation time of the repository at this path, in a form to compare; empty if unknown."""
        return self._repositories.identify(source) if self._repositories is not None else ""

    def check_repository(self, wiki: Wiki) -> None:
        """Raise RepositoryReplaced if the wiki's path has another repository than the one it was created from."""
        if self.is_replaced(wiki):
            with suppress(NoCommits):
                self.get_source(wiki).get_head()  # a symbolic link or a damaged repository raises its own error
            raise RepositoryReplaced(
                "The path of this wiki has another repository now, so the wiki is not shown.",
                hint=f"If it is a new wiki: `wikiholt remove {wiki.slug}`, then add it again. If it is the same wiki,"
                f" restored from a backup: `wikiholt rebind {wiki.slug}`",
            )

    def discard_replaced(self, wiki: Wiki) -> bool:
        """Remove the wiki if its path has another repository that is certainly not a copy. Returns whether it did.

        For callers that register the repositories they find. Raises what `remove` raises.
        """
        if not self.is_replaced(wiki):
            return False
        if not wiki.repository.startswith("marked") and self._shares_history(wiki):
            return False  # without a marker, a restored copy looks the same: the operator decides
        removed = self.remove(wiki.slug, wiki.id)
        _LOG.warning(
            "%s: another repository is at its path and becomes a new wiki: the index, backups and %d keys of the"
            " previous wiki were removed",
            wiki.slug,
            len(removed.keys),
        )
        return True

    def _shares_history(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path contains the indexed commit."""
        try:
            with closing(self.components.store.open(wiki.id)) as index:
                revision = index.get_state().revision
            return revision is not None and bool(self.get_source(wiki).resolve_revision(revision))
        except WikiholtError:
            return False

    def rebind(self, slug: str) -> Wiki:
        """Accept the repository at the wiki's path as the wiki's own. Index, keys and backups stay."""
        wiki = self.registry.get(slug)
        self._validate(wiki)
        return self.registry.rebind(wiki)

    def forget(self, path_or_slug: str) -> Sequence[RemovedWiki]:
        """Remove the wiki with this slug, or every wiki whose repository is at or below this path.

        For hosts that delete wikis: the repository may already be gone. An unregistered wiki is not an error.
        """
        path = path_or_slug.rstrip("/") if path_or_slug.startswith("/") else None
        if path_or_slug.strip("/ ") == "":
            raise InvalidSource("No wiki was named.", hint="Give its slug, or the path of its directory.")
        removed = []
        for wiki in self.registry.list_wikis():
            is_below = path is not None and (wiki.source == path or wiki.source.startswith(f"{path}/"))
            if is_below or (path is None and wiki.slug == path_or_slug):
                with suppress(WikiNotFound):  # another process has removed it
                    removed.append(self.remove(wiki.slug, wiki.id))
        return removed

    def get_handle_in_use(self, wiki_id: str) -> WikiHandle | None:
        """The handle of a wiki if it is open, else None."""
        with self._lock:
            return self._handles.get(wiki_id)

    def open_with_embedder(self, slug: str, embedder: Embedder) -> WikiHandle:
        """A separate handle with this embedder. The caller has to close it."""
        return self._create_handle(self._get_checked(slug), replace(self.components, embedder=lambda: embedder))

    def open_with_keyword_cache(self, slug: str, make_cache: Callable[[WikiIndex], KeywordCache]) -> WikiHandle:
        """A separate handle with this keyword cache. The caller has to close it."""
        return self._create_handle(
            self._get_checked(slug), replace(self.components, keyword_cache=lambda index, _: make_cache(index))
        )

    def get_source(self, wiki: Wiki) -> Source:
        """The source of a wiki's pages, without opening anything."""
        return self.get_config(wiki).source

    def get_config(self, wiki: Wiki) -> WikiConfig:
        """The configuration of a wiki, from the general settings and its own, without opening anything."""
        return self._config_for(wiki)

    def _get_checked(self, slug: str) -> Wiki:
        """The wiki with this slug, after checking its repository. Raises RepositoryReplaced."""
        return self._check_wiki(self.registry.get(slug))

    def _check_wiki(self, wiki: Wiki) -> Wiki:
        self.check_repository(wiki)
        if self._repositories is not None and wiki.id not in self._handles:
            wiki = self._record_repository(wiki, self._repositories.bind(wiki))
        return wiki

    def _record_repository(self, wiki: Wiki, repository: str) -> Wiki:
        """The wiki with its repository recorded as it is now: a copy with its marker has another creation time."""
        if not repository or repository == wiki.repository:
            return wiki
        try:
            return self.registry.rebind(wiki)
        except WikiholtError:  # the registry is read-only
            return wiki

    def _get_handle(self, wiki: Wiki, *, interactive: bool) -> WikiHandle:
        with self._lock:
            handle, to_close = self._handles.get(wiki.id), []
            if handle is None or handle.wiki != wiki:
                to_close += [handle] if handle else []
                handle = self._create_handle(wiki, self.components)
                self._handles[wiki.id] = handle
                self._handles.move_to_end(wiki.id, last=interactive)
            if interactive:
                self._handles.move_to_end(wiki.id)
            to_close += [self._handles.popitem(last=False)[1] for _ in range(len(self._handles) - self._max_open)]
        for old_handle in to_close:
            old_handle.close()
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
        """Read the wiki's tree with its settings and raise any error."""
        for text in (wiki.source, *wiki.settings.values()):
            if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidSource(
                    "a path or setting is not UTF-8 text", hint="rename it, or use a symbolic link with another name"
                )
        self._config_for(wiki).source.check_readable()

    def _is_registered(self, wiki: Wiki) -> bool:
        try:
            return self.registry.get(wiki.slug).id == wiki.id
        except WikiNotFound:
            return False

    def has_index(self, wiki_id: str) -> bool:
        """Whether the wiki has an index that can be searched."""
        return self.components.store.get_published(wiki_id) is not None

    def load_embedder(self) -> Embedder:
        """Load the embedding model, or return it if it is loaded already. Raises ModelError."""
        return self.components.embedder()

    def load_reranker(self) -> None:
        """Load the reranker, if one is configured. Raises ModelError."""
        if self.components.reranking is not None:
            self.components.reranking.get_reranker()

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
