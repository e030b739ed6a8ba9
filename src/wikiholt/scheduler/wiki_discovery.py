"""Which wikis there are: those in the registry, and repositories in directories of wikis that are to be registered."""

import logging
from collections.abc import Callable, Iterable, Sequence, Set

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_queue import SyncPriority
from wikiholt.scheduler.wiki_records import DiscoveredRepository, SchedulerConfig
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)


class WikiDiscovery:
    """Keeps a board's wikis equal to those in the registry that are this node's, and the registry to what is found.

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
    ) -> None:
        self._service = service
        self._state = state
        self._config = config
        self._find_repositories = find_repositories
        self._only_wiki_id = only_wiki_id
        self._get_assigned = get_assigned
        self._registry_version: str | None = None
        self._wikis: Sequence[Wiki] = ()
        self.skipped: tuple[DiscoveredRepository, ...] = ()

    def scan(self) -> None:
        """Take up wikis and repositories that are new, let go of wikis that were removed; a failure changes nothing."""
        try:
            self._load_registry()
            self._update_entries(self._wikis)
            self._add_entries(self._register_found(self._wikis))
        except (WikiholtError, OSError) as error:
            _LOG.warning("wikis could not be looked for: %s %s", error, getattr(error, "hint", ""))

    def _load_registry(self) -> None:
        """Read the registry, unless nothing in it has changed."""
        mark = self._service.registry.get_version()
        if mark is not None and mark == self._registry_version:
            return
        wikis = [wiki for wiki in self._service.list_wikis() if self._only_wiki_id in (None, wiki.id)]
        there = {wiki.source for wiki in wikis}
        self._state.removed_sources |= {wiki.location for wiki in self._wikis if wiki.source not in there}
        self._wikis, self._registry_version = wikis, mark
        databases = self._service.components.databases
        if databases is not None and self._only_wiki_id is None:
            databases.remove_leftovers([wiki.id for wiki in wikis])  # of what another node has removed

    def _update_entries(self, wikis: Sequence[Wiki]) -> None:
        there, mine = {wiki.id for wiki in wikis}, self._get_assigned()
        for entry in self._state.list_entries():
            if entry.wiki.id not in there:
                self._state.remove(entry.wiki.id)
            elif mine is not None and entry.wiki.id not in mine:
                self._state.release(entry.wiki.id)
        self._add_entries(wikis)

    def _add_entries(self, wikis: Iterable[Wiki]) -> None:
        store, mine = self._service.components.store, self._get_assigned()
        for wiki in wikis:
            if mine is not None and wiki.id not in mine:
                continue
            known = self._state.get(wiki.id)
            if known is not None and known.wiki == wiki:
                continue
            # One without an index has nothing to be compared: it waits for its first sync. Where the index is in a
            # database, asking is dear and that may be away: its first look finds out.
            unindexed = mine is None and wiki.source.startswith("/") and store.get_published(wiki.id) is None
            self._state.add(wiki, self._config.get_interval(wiki), SyncPriority.SCHEDULED if unindexed else None)

    def _register_found(self, wikis: Sequence[Wiki]) -> Sequence[Wiki]:
        """Register what was found under no slug yet; what cannot be is kept in `skipped`, with the reason."""
        every = list(self._find_repositories())
        slugs = {wiki.slug: wiki.source for wiki in self._drop_replaced(wikis, every)}
        sources = set(slugs.values())
        fresh: dict[str, tuple[str, dict[str, str]]] = {}
        skipped = []
        for found in every:
            source = str(found.path)
            if found.reason:
                skipped.append(found)
            elif source in sources or self._is_declined(source):
                continue
            elif found.slug in slugs or found.slug in fresh:
                taken = f"another repository is the wiki {found.slug} already"
                skipped.append(DiscoveredRepository(found.slug, found.path, taken))
            else:
                fresh[found.slug] = (source, {"confined": str(found.confined_to)} if found.confined_to else {})
        self._log_skipped(skipped)
        return self._service.registry.add_many([(slug, *made) for slug, made in fresh.items()]) if fresh else []

    def _drop_replaced(self, wikis: Sequence[Wiki], every: Sequence[DiscoveredRepository]) -> Sequence[Wiki]:
        """The wikis, less those that were found here once and whose path has another repository now: a new wiki.

        One that was added by hand stays: its operator decides.
        """
        places = {(str(found.path), str(found.confined_to or "")) for found in every if not found.reason}
        stay = []
        for wiki in wikis:
            here = (wiki.source, wiki.settings.get("confined", "")) in places
            if not here or not self._discard_if_replaced(wiki):
                stay.append(wiki)
        return stay

    def _discard_if_replaced(self, wiki: Wiki) -> bool:
        try:
            if not self._service.discard_replaced(wiki):
                return False
        except WikiholtError as error:  # another node may have done it, or somebody is writing: the next look sees
            _LOG.warning("%s: its repository was replaced, and it could not be removed: %s", wiki.slug, error.message)
            return False
        self._state.release(wiki.id)
        return True

    def _is_declined(self, source: str) -> bool:
        """Whether the wiki of the very repository that lies there was removed while this process ran."""
        if not any(source == declined for declined, _ in self._state.removed_sources):
            return False
        identities = ("", self._service.identify_repository(source))
        return any((source, identity) in self._state.removed_sources for identity in identities)

    def _log_skipped(self, skipped: Sequence[DiscoveredRepository]) -> None:
        known = set(self.skipped)
        for finding in skipped:
            if finding not in known:
                _LOG.warning("%s is left out: %s", finding.path, finding.reason)
        self.skipped = tuple(skipped)
