"""The service that interfaces call. Owns the open wikis and returns handles, each bound to one wiki."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from wikiholt.domain.protocols import Embedder, KeywordCache, Source
from wikiholt.domain.slugs import validate_slug
from wikiholt.domain.storage_protocols import DatabaseAdmin, WikiIndex
from wikiholt.domain.wiki import MANAGED_KIND, Wiki
from wikiholt.errors import (
    Busy,
    IndexCorrupt,
    IndexUnavailable,
    InvalidSetting,
    InvalidSource,
    NoCommits,
    RepositoryReplaced,
    WikiholtError,
    WikiNotFound,
)
from wikiholt.folder.source_kind import detect_source_kind
from wikiholt.git.managed_repositories import RepositoryDirectory
from wikiholt.git.repository_identity import SourceIdentities
from wikiholt.index.index_backups import IndexBackups
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.registry import Registry, RemovedWiki, make_wiki_id
from wikiholt.wikis.registry_schema import RECOVERY_HINT

if TYPE_CHECKING:  # few installations use it
    from wikiholt.index.chroma.engine import ChromaEngine

_LOG = logging.getLogger(__name__)


def _require_same_kind(old: str, new: str) -> None:
    """Raise InvalidSetting if a wiki would become a managed one, or cease to be one."""
    if old != new and MANAGED_KIND in (old, new):
        raise InvalidSetting(
            f"The kind {MANAGED_KIND!r} cannot be set or changed.", hint="Create such a wiki with `wikiholt create`."
        )


class WikiService:
    """The wikis of one data directory."""

    def __init__(
        self,
        registry: Registry,
        components: Components,
        config_for: Callable[[Wiki], WikiConfig],
        *,
        max_open: int = 64,
        managed_repositories: RepositoryDirectory | None = None,
    ) -> None:
        """Up to `max_open` handles are kept open; the least recently used is closed first."""
        self.registry = registry
        self.components = components
        self.search_load = components.search_load
        self._config_for = config_for
        self._max_open = max_open
        self._handles: OrderedDict[str, WikiHandle] = OrderedDict()
        self._damage_listener: Callable[[str], None] | None = None
        self._lock = Lock()
        self._identities = SourceIdentities()
        self._managed_repositories = managed_repositories or RepositoryDirectory(registry.repositories)

    def add(self, slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
        """Register a wiki, after checking its repository and settings."""
        validate_slug(slug)
        _require_same_kind("", settings.get("kind", ""))
        settings = detect_source_kind(source, settings)
        self._validate(Wiki("", slug, source, datetime.now(UTC), settings))
        return self.registry.add(slug, source, settings)

    def add_many(self, wikis: Iterable[tuple[str, str, Mapping[str, str]]]) -> Sequence[Wiki]:
        """Register (slug, source, settings) tuples whose sources were just read, skipping slugs that are taken."""
        return self.registry.add_many(wikis)

    def create(self, slug: str, settings: Mapping[str, str]) -> Wiki:
        """Register a wiki whose repository Wikiholt keeps, and create that repository, without pages.

        Raises InvalidSetting if other nodes could not read the repository.
        """
        settings = {**settings, "kind": MANAGED_KIND}
        self._config_for(Wiki("", validate_slug(slug), "/", datetime.now(UTC), settings))  # checks the settings
        wiki_id = make_wiki_id()
        self._managed_repositories.create(wiki_id)
        try:
            return self.registry.add(slug, "", settings, wiki_id)
        except BaseException:
            self._managed_repositories.delete(wiki_id)
            raise

    def configure(self, slug: str, changes: Mapping[str, str]) -> Wiki:
        """Change settings of a wiki, after checking them. An empty value unsets a setting."""
        wiki = self.registry.get(slug)
        _require_same_kind(wiki.settings.get("kind", ""), changes.get("kind", wiki.settings.get("kind", "")))
        settings = {name: text for name, text in {**wiki.settings, **changes}.items() if text}
        self._validate(replace(wiki, settings=settings))
        changed = self.registry.update_settings(slug, changes)
        # Directories and repositories are identified in different ways.
        return changed if changed.is_directory == wiki.is_directory else self.registry.rebind(changed)

    def remove(self, slug: str, wiki_id: str | None = None) -> RemovedWiki:
        """Unregister a wiki with its keys and hosts, then delete its index and, of a managed wiki, its repository.

        The pages and commits of other wikis are never touched. A running sync stops at its next batch; what is still in
        use after a while is deleted later. With `wiki_id`, only if the slug still belongs to that wiki. Raises
        WikiNotFound.
        """
        wiki = self.registry.get(slug)
        if wiki_id not in (None, wiki.id):
            raise WikiNotFound("The wiki no longer exists.", hint="`wikiholt list` shows all wikis.")
        handle = self._get_handle(wiki, interactive=True)
        unregistered = self.registry.remove(slug, wiki.id)
        with self._lock:
            self._handles.pop(wiki.id, None)
        self._identities.release(wiki)
        if self.components.vector_engine is not None:
            self.components.vector_engine.delete_wiki(wiki.id, wiki.slug)
        removed: Sequence[str] = ()
        with suppress(Busy):
            removed = handle.remove()
        self._remove_leftovers_of(wiki.id)
        self.registry.backups.purge()
        return replace(unregistered, files=tuple(removed))

    def remove_leftovers(self) -> None:
        """Delete what is left of removed wikis: a removal was interrupted, or another node has removed them.

        What is in use is only logged; the next call tries again.
        """
        self.registry.get_version()  # takes over what other nodes have removed
        self.registry.backups.purge()
        for wiki_id in filter(self.registry.revoked_list.has_wiki, self._list_stored_ids()):
            self._remove_leftovers_of(wiki_id)

    def _list_stored_ids(self) -> set[str]:
        stored = set(self.components.store.list_wiki_ids())
        return stored | self._managed_repositories.list_ids() | self.components.backup_policy.list_ids()

    def _remove_leftovers_of(self, wiki_id: str) -> None:
        """Delete the managed repository of a removed wiki, and what a sync created again while it was removed."""
        components = self.components
        backups = IndexBackups(wiki_id, components.store, components.backup_policy, components.lock_timeout_s)
        store, timeout_s = components.store, components.lock_timeout_s
        try:
            self._managed_repositories.delete(wiki_id)
            with store.write_lock(wiki_id, timeout_s) if store.exists(wiki_id) else nullcontext():
                backups.delete_all()
                store.delete(wiki_id)
        except (Busy, IndexUnavailable) as error:
            _LOG.warning("data of a removed wiki will be removed later: %s", error.message)

    def is_being_removed(self, wiki_id: str) -> bool:
        """Whether this wiki was unregistered, so that its index should not be written."""
        return self.registry.revoked_list.has_wiki(wiki_id)

    def list_wikis(self) -> Sequence[Wiki]:
        """All wikis, by slug. Raises IndexCorrupt if the registry is empty but there are indexes."""
        wikis = self.registry.list_wikis()
        store = self.components.store
        if wikis or self.registry.is_rebuilt():
            return wikis
        stored = (wiki_id for wiki_id in store.list_wiki_ids() if not self.registry.revoked_list.has_wiki(wiki_id))
        if any(store.get_published(wiki_id) is not None for wiki_id in stored):
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
        return not self._identities.matches(wiki)

    def identify_repository(self, source: str) -> str:
        """The creation time of the repository at this path, in a form to compare; empty if unknown."""
        return self._identities.identify(source)

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
        if wiki.id not in self._handles:
            wiki = self._record_repository(wiki, self._identities.bind(wiki))
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
            is_being_removed=partial(self.registry.revoked_list.has_wiki, wiki.id),
            on_damage=partial(self._report_damage, wiki.id),
            save_pages=self._make_page_saver(wiki),
        )

    def listen_for_damage(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the id of a wiki whenever its index proves damaged."""
        self._damage_listener = listener

    def _report_damage(self, wiki_id: str) -> None:
        if self._damage_listener is not None:
            self._damage_listener(wiki_id)

    def _make_page_saver(self, wiki: Wiki) -> Callable[[Path], None] | None:
        """The function that adds the pages of a managed wiki to a directory of backups; None for other wikis."""
        return partial(self._managed_repositories.write_backup, wiki.id) if wiki.is_managed else None

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

    def use_embedder(self, embedder: Embedder) -> None:
        """Use this embedder for wikis that are opened later."""
        self.components = replace(self.components, embedder=lambda: embedder)

    def load_reranker(self) -> None:
        """Load the reranker, if one is configured. Raises ModelError."""
        if self.components.reranking is not None:
            self.components.reranking.get_reranker()

    @property
    def databases(self) -> DatabaseAdmin | None:
        """The databases that store indexes; None if indexes are files."""
        return self.components.databases

    @property
    def vector_engine(self) -> "ChromaEngine | None":
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
