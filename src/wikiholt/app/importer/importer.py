"""The import of one shared index into one index a wiki: read, ask whose, compare, sample, sync, prove.

It may be killed at any moment: an index only ever changes by a sync, which goes on where the one before was left.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from wikiholt.app.importer.import_report import ImportReport, ModelAgreement, WikiImport
from wikiholt.app.importer.shared_index import (
    IGNORE,
    OwnershipResolver,
    OwnershipRules,
    ReadSummary,
    SharedIndex,
    read_shared_index,
)
from wikiholt.app.importer.survey import (
    ImportSurvey,
    VectorSamples,
    build_survey,
    check_agreement,
    count_chunks,
    verify_index,
)
from wikiholt.app.importer.vector_spool import ReusingEmbedder, VectorSpool, open_work_directory
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexUnavailable, WikiholtError, WikiNotFound
from wikiholt.indexing.estimate import WRITE_SECONDS_PER_CHUNK, measure_seconds_per_text
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.wikis.service import WikiService

_CACHE_TIMEOUT_S = 600.0
"""Seconds to wait for a large wiki's caches, so that the next search finds them."""

ProgressOpener = Callable[[str], AbstractContextManager[Callable[[SyncProgress], None]]]


def _ignore_progress(_: str) -> AbstractContextManager[Callable[[SyncProgress], None]]:
    return nullcontext(lambda _: None)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import."""

    rules: OwnershipRules = field(default_factory=OwnershipRules)
    wikis: tuple[str, ...] = ()
    """Only these; every wiki if empty."""
    sample_size: int = 64
    dry_run: bool = False


class Importer:
    """Imports into the wikis of one service."""

    def __init__(
        self, service: WikiService, data: Path, options: ImportOptions, open_progress: ProgressOpener = _ignore_progress
    ) -> None:
        self._service = service
        self._data = data
        self._options = options
        self._open_progress = open_progress
        self._failed: dict[str, tuple[str, str]] = {}

    def run(self, open_shared_index: Callable[[Path], SharedIndex]) -> ImportReport:
        """Import, unless it is unclear whose something is: then the report says so, and no index was touched.

        `open_shared` gets a directory to work in, which is gone afterwards.
        """
        wikis = {wiki.slug: wiki for wiki in self._service.list_wikis()}
        if not wikis:
            raise WikiNotFound("there are no wikis to import into", hint="add each: wikiholt add SLUG PATH")
        for slug in (*self._options.wikis, *self._list_rule_slugs()):
            self._service.registry.get(slug)
        chosen = [slug for slug in wikis if not self._options.wikis or slug in self._options.wikis]
        with open_work_directory(self._data) as place, closing(VectorSpool(place / "vectors.sqlite")) as spool:
            shared = open_shared_index(place)
            embedder = self._service.components.embedder()
            owners = OwnershipResolver(self._read_trees(wikis, chosen), self._options.rules)
            reading = read_shared_index(shared, owners, embedder.dimensions, spool)
            report = ImportReport(
                shared.name, reading.rows, reading.dropped, reading.unclear, dry_run=self._options.dry_run
            )
            if not report.unclear or report.dry_run:
                there = [wikis[slug] for slug in chosen if slug not in self._failed]
                report = self._import_wikis(report, there, reading, spool, embedder)
            return replace(report, failed=dict(self._failed))

    def _list_rule_slugs(self) -> list[str]:
        rules = self._options.rules
        told = [*(slug for _, slug in rules.owners), *rules.tenants.values()]
        return [slug for slug in told if slug != IGNORE]

    def _read_trees(self, wikis: Mapping[str, Wiki], chosen: Sequence[str]) -> dict[str, Sequence[str]]:
        """The files of every wiki that can be read; one that cannot is not imported, and keeps no other from it."""
        found: dict[str, Sequence[str]] = {}
        for slug, wiki in wikis.items():
            try:
                if slug in chosen and not self._options.dry_run:
                    self._service.get_background_handle(slug).fetch()
                source = self._service.get_source(wiki)
                found[slug] = list(source.read_tree(source.get_head()))
            except WikiholtError as error:
                if slug in chosen:
                    self._failed[slug] = (error.code, error.message)
                found[slug] = ()
        return found

    def _import_wikis(
        self, report: ImportReport, wikis: Sequence[Wiki], summary: ReadSummary, spool: VectorSpool, embedder: Embedder
    ) -> ImportReport:
        embedder.run_self_test()
        samples = VectorSamples(self._options.sample_size)
        surveys = {wiki.slug: self._survey_wiki(wiki, spool, embedder, samples) for wiki in wikis}
        models = [*samples.samples] if samples.samples else ([""] if summary.rows_by_wiki else [])
        agreements = tuple(check_agreement(model, samples.samples.get(model, ()), embedder) for model in models)
        trusted = frozenset(each.model for each in agreements if each.agrees)
        pace = measure_seconds_per_text(embedder, samples.new_texts) if report.dry_run else 0.0
        done: list[WikiImport] = []
        for wiki in wikis:
            found = surveys[wiki.slug]
            if found is None:
                continue
            planned = _plan_import(wiki.slug, found, summary.rows_by_wiki.get(wiki.slug, 0), trusted, agreements, pace)
            if report.dry_run:
                done.append(planned)
                continue
            try:
                done.append(
                    self._import_wiki(
                        wiki, planned, found, ReusingEmbedder(embedder, spool.get_wiki_vectors(wiki.slug), trusted)
                    )
                )
            except WikiholtError as error:
                self._failed[wiki.slug] = (error.code, error.message)
        return replace(report, agreements=agreements, wikis=tuple(done))

    def _survey_wiki(
        self, wiki: Wiki, spool: VectorSpool, embedder: Embedder, samples: VectorSamples
    ) -> ImportSurvey | None:
        index: WikiIndex | None = None
        try:
            index = self._open_vector_source(wiki, embedder)
            return build_survey(
                self._service.get_config(wiki), embedder, index, spool.get_wiki_vectors(wiki.slug), samples
            )
        except WikiholtError as error:
            self._failed[wiki.slug] = (error.code, error.message)
            return None
        finally:
            if index is not None:
                index.close()

    def _open_vector_source(self, wiki: Wiki, embedder: Embedder) -> WikiIndex | None:
        """The wiki's index, if a sync could take vectors from it."""
        try:
            index = self._service.components.store.open(wiki.id)
        except IndexUnavailable:
            return None
        if index.get_state().recipe.fingerprint == embedder.fingerprint:
            return index
        index.close()
        return None

    def _import_wiki(
        self, wiki: Wiki, planned: WikiImport, survey: ImportSurvey, embedder: ReusingEmbedder
    ) -> WikiImport:
        began = time.monotonic()
        handle = self._service.open_with_embedder(wiki.slug, embedder)
        parts, shop = self._service.get_config(wiki), self._service.components

        def get_chunk_counts(revision: str) -> Mapping[str, int]:
            return survey.chunks if revision == survey.revision else count_chunks(parts, revision, embedder)

        try:
            with self._open_progress(wiki.slug) as progress:
                handle.sync(progress)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
            proved = verify_index(wiki.id, shop.store, parts.source, get_chunk_counts, shop.lock_timeout)
        finally:
            handle.close()
        return replace(
            planned,
            seconds=time.monotonic() - began,
            reused=embedder.reused,
            embedded=embedder.embedded,
            proof=proved,
        )


def _plan_import(
    slug: str,
    survey: ImportSurvey,
    rows: int,
    trusted: frozenset[str],
    agreements: Sequence[ModelAgreement],
    seconds_per_text: float,
) -> WikiImport:
    chunks = sum(survey.chunks.values())
    # Where one model of several proved another, how many of this wiki's matches are its is not known: none count.
    reusable = survey.matched if agreements and all(each.model in trusted for each in agreements) else 0
    to_embed = survey.to_embed + survey.matched - reusable
    seconds = to_embed * seconds_per_text + WRITE_SECONDS_PER_CHUNK * chunks
    return WikiImport(slug, survey.pages, chunks, rows, survey.indexed, survey.matched, to_embed, round(seconds, 3))
