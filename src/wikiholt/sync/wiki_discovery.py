"""Discovers wikis: those in the registry, and repositories in wiki directories, which it registers."""

import logging
from collections.abc import Callable, Iterable, Sequence, Set

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.protocols import SourceWatcher
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import DatabaseUnavailable, WikiholtError
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_records import SchedulerConfig, SyncPriority, WikiEntry
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)


class WikiDiscovery:
    """Keeps the scheduler's wikis equal to the registry's wikis of this node, and registers discovered repositories.

    Used by one thread.
    """

    def __init__(
        self,
        service: WikiService,
        state: SchedulerState,
        config: SchedulerConfig,
        find_repositories: Callable[[], Iterable[DiscoveredRepository]],
        only_wiki_id: str | None = None,
        get_assigned: Callable[[], Set[str] | None] = lambda: None,
        watcher: SourceWatcher | None = None,
    ) -> None:
        self._service = service
        self._state = state
        self._config = config
        self._find_repositories = find_repositories
        self._only_wiki_id = only_wiki_id
        self._get_assigned = get_assigned
        self._watcher = watcher
        self._registry_version: str | None = None
        self._wikis: Sequence[Wiki] = ()
        self.skipped: tuple[DiscoveredRepository, ...] = ()

    def scan(self) -> None:
        """Add new wikis and repositories and remove deleted wikis. Failures are logged and change nothing."""
        try:
            entries = self._state.list_entries()  # first: a wiki that is added meanwhile is not in the registry as read
            self._load_registry()
            self._update_entries(entries, self._wikis)
            self._add_entries(self._register_found(self._wikis))
            if self._watcher is not None:
                self._watcher.update([entry.wiki for entry in self._state.list_entries()])
        except (WikiholtError, OSError) as error:
            _LOG.warning("wiki discovery failed: %s %s", error, getattr(error, "hint", ""))
        except Exception:  # noqa: BLE001 - one strange repository must not end the discovery of all wikis
            _LOG.exception("wiki discovery failed")

    def _load_registry(self) -> None:
        """Read the registry, unless its version is unchanged."""
        version = self._service.registry.get_version()
        if version is not None and version == self._registry_version:
            return
        wikis = [wiki for wiki in self._service.list_wikis() if self._only_wiki_id in (None, wiki.id)]
        sources = {wiki.source for wiki in wikis}
        self._state.removed_sources |= {wiki.location for wiki in self._wikis if wiki.source not in sources}
        self._wikis, self._registry_version = wikis, version
        databases = self._service.components.databases
        if databases is not None and self._only_wiki_id is None:
            databases.remove_leftovers([wiki.id for wiki in wikis])  # of wikis that another node removed

    def _update_entries(self, entries: Sequence[WikiEntry], wikis: Sequence[Wiki]) -> None:
        wiki_ids, assigned = {wiki.id for wiki in wikis}, self._get_assigned()
        for entry in entries:
            if entry.wiki.id not in wiki_ids:
                self._state.remove(entry.wiki.id)
            elif assigned is not None and entry.wiki.id not in assigned:
                self._state.release(entry.wiki.id)
        self._add_entries(wikis)

    def _add_entries(self, wikis: Iterable[Wiki]) -> None:
        assigned = self._get_assigned()
        for wiki in wikis:
            if assigned is not None and wiki.id not in assigned:
                continue
            entry = self._state.get(wiki.id)
            if entry is not None and entry.wiki == wiki:
                continue
            # A wiki without an index needs its first sync and no check. With a database, looking for the index is
            # expensive and may fail, so that is left to the first check.
            unindexed = assigned is None and wiki.source.startswith("/") and self._has_no_index(wiki)
            self._state.add(wiki, self._config.get_interval(wiki), SyncPriority.SCHEDULED if unindexed else None)

    def _has_no_index(self, wiki: Wiki) -> bool:
        try:
            return self._service.components.store.get_published(wiki.id) is None
        except DatabaseUnavailable:  # that of this wiki: the others are not to wait for it
            return False

    def _register_found(self, wikis: Sequence[Wiki]) -> Sequence[Wiki]:
        """Register new repositories. Those that cannot be registered go to `skipped`, with the reason."""
        repositories = list(self._find_repositories())
        slugs = {wiki.slug: wiki.source for wiki in self._drop_replaced(wikis, repositories)}
        sources = set(slugs.values())
        new: dict[str, tuple[str, dict[str, str]]] = {}
        skipped = []
        for repository in repositories:
            source, slug = str(repository.path), repository.slug
            if repository.reason:
                skipped.append(repository)
            elif source in sources or self._is_declined(source):
                continue
            elif slug in slugs or slug in new:
                reason = f"another repository is already registered as {slug}"
                skipped.append(DiscoveredRepository(slug, repository.path, reason))
            else:
                settings = {"confined": str(repository.confined_to or ""), "kind": repository.kind}
                new[slug] = (source, {name: value for name, value in settings.items() if value})
                _log_changed_name(repository)
        self._log_skipped(skipped)
        return self._service.add_many([(slug, *values) for slug, values in new.items()]) if new else []

    def _drop_replaced(self, wikis: Sequence[Wiki], repositories: Sequence[DiscoveredRepository]) -> Sequence[Wiki]:
        """The wikis without discovered ones whose path now has another repository, which becomes a new wiki.

        Wikis added by an operator stay.
        """
        locations = {
            (str(repository.path), str(repository.confined_to or ""))
            for repository in repositories
            if not repository.reason
        }
        remaining = []
        for wiki in wikis:
            is_discovered = (wiki.source, wiki.settings.get("confined", "")) in locations
            if not is_discovered or not self._discard_if_replaced(wiki):
                remaining.append(wiki)
        return remaining

    def _discard_if_replaced(self, wiki: Wiki) -> bool:
        try:
            if not self._service.discard_replaced(wiki):
                return False
        except WikiholtError as error:  # another node may have done it, or the wiki is being written: try again later
            _LOG.warning(
                "%s: the repository was replaced, but the wiki could not be removed: %s", wiki.slug, error.message
            )
            return False
        self._state.release(wiki.id)
        return True

    def _is_declined(self, source: str) -> bool:
        """Whether the wiki of this same repository was removed while this process ran."""
        if not any(source == removed for removed, _ in self._state.removed_sources):
            return False
        identities = ("", self._service.identify_repository(source))
        return any((source, identity) in self._state.removed_sources for identity in identities)

    def _log_skipped(self, skipped: Sequence[DiscoveredRepository]) -> None:
        known = set(self.skipped)
        for repository in skipped:
            if repository not in known:
                shown = str(repository.path).encode("utf-8", "replace").decode()
                _LOG.warning("%s is skipped: %s", shown, repository.reason)
        self.skipped = tuple(skipped)


def _log_changed_name(repository: DiscoveredRepository) -> None:
    """Log the slug of a new wiki if it is not the name of its directory."""
    entry = repository.confined_to
    if entry is not None and entry.name.removesuffix(".git") != repository.slug:
        _LOG.warning("%s becomes the wiki %s: its name cannot be a slug", repository.path, repository.slug)
