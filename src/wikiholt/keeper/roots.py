"""Which wikis there are: those in the registry, and repositories in directories of wikis that are to be registered."""

import logging
from collections.abc import Callable, Iterable, Sequence, Set

from wikiholt.errors import WikiholtError
from wikiholt.keeper.board import Board
from wikiholt.keeper.entries import Finding, Pace
from wikiholt.keeper.line import Rank
from wikiholt.model import Wiki
from wikiholt.service import Service

_LOG = logging.getLogger(__name__)


class Roots:
    """Keeps a board's wikis equal to those in the registry that are this node's, and the registry to what is found.

    Used by one thread.
    """

    def __init__(
        self,
        service: Service,
        board: Board,
        pace: Pace,
        find: Callable[[], Iterable[Finding]],
        only: str | None = None,
        mine: Callable[[], Set[str] | None] = lambda: None,
    ) -> None:
        self._service = service
        self._board = board
        self._pace = pace
        self._find = find
        self._only = only
        self._mine = mine
        self._mark: str | None = None
        self._wikis: Sequence[Wiki] = ()
        self.skipped: tuple[Finding, ...] = ()

    def look(self) -> None:
        """Take up wikis and repositories that are new, let go of wikis that were removed; a failure changes nothing."""
        try:
            self._list()
            self._follow(self._wikis)
            self._adopt(self._register(self._wikis))
        except (WikiholtError, OSError) as error:
            _LOG.warning("wikis could not be looked for: %s %s", error, getattr(error, "hint", ""))

    def _list(self) -> None:
        """Read the registry, unless nothing in it has changed."""
        mark = self._service.registry.mark()
        if mark is not None and mark == self._mark:
            return
        wikis = [wiki for wiki in self._service.wikis() if self._only in (None, wiki.id)]
        there = {wiki.source for wiki in wikis}
        self._board.declined |= {wiki.place for wiki in self._wikis if wiki.source not in there}
        self._wikis, self._mark = wikis, mark
        databases = self._service.workshop.databases
        if databases is not None and self._only is None:
            databases.tidy([wiki.id for wiki in wikis])  # of what another node has removed

    def _follow(self, wikis: Sequence[Wiki]) -> None:
        there, mine = {wiki.id for wiki in wikis}, self._mine()
        for entry in self._board.all():
            if entry.wiki.id not in there:
                self._board.forget(entry.wiki.id)
            elif mine is not None and entry.wiki.id not in mine:
                self._board.release(entry.wiki.id)
        self._adopt(wikis)

    def _adopt(self, wikis: Iterable[Wiki]) -> None:
        store, mine = self._service.workshop.store, self._mine()
        for wiki in wikis:
            if mine is not None and wiki.id not in mine:
                continue
            known = self._board.get(wiki.id)
            if known is not None and known.wiki == wiki:
                continue
            # One without an index has nothing to be compared: it waits for its first sync. Where the index is in a
            # database, asking is dear and that may be away: its first look finds out.
            unindexed = mine is None and wiki.source.startswith("/") and store.published(wiki.id) is None
            self._board.adopt(wiki, self._pace.interval_of(wiki), Rank.DUE if unindexed else None)

    def _register(self, wikis: Sequence[Wiki]) -> Sequence[Wiki]:
        """Register what was found under no slug yet; what cannot be is kept in `skipped`, with the reason."""
        every = list(self._find())
        slugs = {wiki.slug: wiki.source for wiki in self._without_replaced(wikis, every)}
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
                skipped.append(Finding(found.slug, found.path, taken))
            else:
                fresh[found.slug] = (source, {"confined": str(found.within)} if found.within else {})
        self._tell(skipped)
        return self._service.registry.add_many([(slug, *made) for slug, made in fresh.items()]) if fresh else []

    def _without_replaced(self, wikis: Sequence[Wiki], every: Sequence[Finding]) -> Sequence[Wiki]:
        """The wikis, less those that were found here once and whose path has another repository now: a new wiki.

        One that was added by hand stays: its operator decides.
        """
        places = {(str(found.path), str(found.within or "")) for found in every if not found.reason}
        stay = []
        for wiki in wikis:
            here = (wiki.source, wiki.settings.get("confined", "")) in places
            if not here or not self._discarded(wiki):
                stay.append(wiki)
        return stay

    def _discarded(self, wiki: Wiki) -> bool:
        try:
            if not self._service.discard_replaced(wiki):
                return False
        except WikiholtError as error:  # another node may have done it, or somebody is writing: the next look sees
            _LOG.warning("%s: its repository was replaced, and it could not be removed: %s", wiki.slug, error.message)
            return False
        self._board.release(wiki.id)
        return True

    def _is_declined(self, source: str) -> bool:
        """Whether the wiki of the very repository that lies there was removed while this process ran."""
        if not any(source == declined for declined, _ in self._board.declined):
            return False
        identities = ("", self._service.identify_repository(source))
        return any((source, identity) in self._board.declined for identity in identities)

    def _tell(self, skipped: Sequence[Finding]) -> None:
        known = set(self.skipped)
        for finding in skipped:
            if finding not in known:
                _LOG.warning("%s is left out: %s", finding.path, finding.reason)
        self.skipped = tuple(skipped)
