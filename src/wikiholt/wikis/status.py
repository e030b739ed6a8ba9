"""The status of a wiki: what is indexed, whether it is fresh and intact, and what is wrong."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from wikiholt.domain.index import IndexHealth, IndexState
from wikiholt.domain.page import MAX_LISTED_WARNINGS, PageProblem, PageWarnings
from wikiholt.domain.protocols import Source
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoPagesYet, NothingIndexed, WikiholtError
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.reconciler import HistoryWarnings
from wikiholt.index.repair import IndexRepair
from wikiholt.text.analysis import split_languages
from wikiholt.text.languages import find_main_language
from wikiholt.text.page_names import count_extensions, is_document

_NOTHING_INDEXED_HINT = (
    "if a sync does not help, check the branch, the sub-directory and the ignore globs of this wiki, and its problems"
)


@dataclass(frozen=True, slots=True)
class WikiStatus:
    """The status of a wiki. `error` is set if the index or the repository cannot be read, or no page is indexed."""

    wiki: Wiki
    state: IndexState | None
    head: str | None
    stale: bool
    problems: tuple[PageProblem, ...] = ()
    disk_bytes: int = 0
    error: WikiholtError | None = None
    health: IndexHealth = field(default_factory=IndexHealth)
    quarantined: tuple[str, ...] = ()
    """Damaged indexes that were quarantined, for the operator to inspect or delete."""
    dialect: str = ""
    """The dialect of the indexed pages."""
    query_languages: tuple[str, ...] = ()
    """The languages in which queries are read, the main one first."""
    documents: Mapping[str, int] = field(default_factory=dict)
    """The number of documents at HEAD that are pages, such as PDF files, by extension."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of files at HEAD that are not pages, by extension."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """The number of files that would be pages without an ignore pattern, by pattern."""
    pages_with_warnings: int = 0
    warnings: tuple[PageWarnings, ...] = ()
    """The first `MAX_LISTED_WARNINGS` pages with warnings."""
    languages: Mapping[str, int] = field(default_factory=dict)
    """The number of pages in each language, the most frequent first."""
    history_warning: str = ""
    """Why dates may be wrong and former names missing."""

    @property
    def main_language(self) -> str:
        """The language of more than half of the pages; empty if there is none."""
        return find_main_language(self.languages)


class StatusReader:
    """Reads the status of one wiki."""

    def __init__(self, wiki: Wiki, source: Source, store: IndexStore, repair: IndexRepair) -> None:
        self._wiki = wiki
        self._source = source
        self._store = store
        self._repair = repair

    def read(self) -> WikiStatus:
        """The current status. Never raises; errors are part of the status."""
        status, store, wiki_id = self._read_index(), self._store, self._wiki.id
        try:
            disk_bytes, quarantined = store.get_disk_bytes(wiki_id), tuple(store.list_quarantined(wiki_id))
        except WikiholtError as store_error:
            return replace(status, error=status.error or store_error)
        status = replace(status, disk_bytes=disk_bytes, health=self._repair.health, quarantined=quarantined)
        if status.state and (pipeline := TextPipeline.from_recipe(status.state.recipe)):
            languages = tuple(split_languages(pipeline.language))
            status = replace(status, dialect=pipeline.dialect.name, query_languages=languages)
        if status.head is None:
            return status
        try:
            tree, others = self._source.read_all_files(status.head)
            documents, skipped = count_extensions(filter(is_document, tree)), count_extensions(others)
            ignored = self._source.count_ignored(status.head)
            return replace(status, documents=documents, skipped=skipped, ignored=ignored)
        except WikiholtError:  # a fetch or a sync reports it
            return status

    def _read_index(self) -> WikiStatus:
        head: str | None = None
        error: WikiholtError | None = None
        try:
            head = self._get_head()
        except WikiholtError as source_error:
            error = source_error
        try:
            with closing(self._store.open(self._wiki.id)) as index:
                state, problems = index.get_state(), tuple(index.get_problems())
                warned, warnings = index.list_warnings(MAX_LISTED_WARNINGS)
                languages = index.count_languages()
                history_warning = HistoryWarnings(self._wiki.id, self._store).read(state.generation)
        except WikiholtError as index_error:
            return WikiStatus(self._wiki, None, head, True, error=error or index_error)
        if error is None and state.pages == 0:
            error = NothingIndexed("this wiki has no indexed page", hint=_NOTHING_INDEXED_HINT)
        return WikiStatus(
            self._wiki,
            state,
            head,
            state.revision != head,
            problems,
            error=error,
            pages_with_warnings=warned,
            warnings=tuple(warnings),
            languages=languages,
            history_warning=history_warning,
        )

    def _get_head(self) -> str:
        try:
            return self._source.get_last_known_head()
        except NoPagesYet:
            self._repair.require_never_indexed()
            raise
