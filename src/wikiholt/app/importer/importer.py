"""Imports a shared index into one index per wiki: read, assign owners, compare, sample, sync, verify.

It can be killed at any time, because an index only changes by a sync, which can be continued.
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
"""How long to wait for the caches of a large wiki, so that the next search finds them."""

ProgressOpener = Callable[[str], AbstractContextManager[Callable[[SyncProgress], None]]]


def _ignore_progress(_: str) -> AbstractContextManager[Callable[[SyncProgress], None]]:
    return nullcontext(lambda _: None)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of an import."""

    rules: OwnershipRules = field(default_factory=OwnershipRules)
    wikis: tuple[str, ...] = ()
    """Only these; all wikis if empty."""
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
        """Import, unless the owner of a row is unclear: then the report says so, and no index was changed.

        `open_shared_index` gets a work directory, which is deleted afterwards.
        """
        wikis = {wiki.slug: wiki for wiki in self._service.list_wikis()}
        if not wikis:
            raise WikiNotFound("there are no wikis to import into", hint="add each: wikiholt add SLUG PATH")
        for slug in (*self._options.wikis, *self._list_rule_slugs()):
            self._service.registry.get(slug)
        selected = [slug for slug in wikis if not self._options.wikis or slug in self._options.wikis]
        with open_work_directory(self._data) as directory, closing(VectorSpool(directory / "vectors.sqlite")) as spool:
            shared = open_shared_index(directory)
            embedder = self._service.components.embedder()
            resolver = OwnershipResolver(self._read_trees(wikis, selected), self._options.rules)
            summary = read_shared_index(shared, resolver, embedder.dimensions, spool)
            report = ImportReport(
                shared.name, summary.rows, summary.dropped, summary.unclear, dry_run=self._options.dry_run
            )
            if not report.unclear or report.dry_run:
                readable = [wikis[slug] for slug in selected if slug not in self._failed]
                report = self._import_wikis(report, readable, summary, spool, embedder)
            return replace(report, failed=dict(self._failed))

    def _list_rule_slugs(self) -> list[str]:
        rules = self._options.rules
        slugs = [*(slug for _, slug in rules.owners), *rules.tenants.values()]
        return [slug for slug in slugs if slug != IGNORE]

    def _read_trees(self, wikis: Mapping[str, Wiki], selected: Sequence[str]) -> dict[str, Sequence[str]]:
        """The files of every wiki. A wiki that cannot be read is marked as failed; the others are imported."""
        files: dict[str, Sequence[str]] = {}
        for slug, wiki in wikis.items():
            try:
                if slug in selected and not self._options.dry_run:
                    self._service.get_background_handle(slug).fetch()
                source = self._service.get_source(wiki)
                files[slug] = list(source.read_tree(source.get_head()))
            except WikiholtError as error:
                if slug in selected:
                    self._failed[slug] = (error.code, error.message)
                files[slug] = ()
        return files

    def _import_wikis(
        self, report: ImportReport, wikis: Sequence[Wiki], summary: ReadSummary, spool: VectorSpool, embedder: Embedder
    ) -> ImportReport:
        embedder.run_self_test()
        samples = VectorSamples(self._options.sample_size)
        surveys = {wiki.slug: self._survey_wiki(wiki, spool, embedder, samples) for wiki in wikis}
        models = [*samples.samples] if samples.samples else ([""] if summary.rows_by_wiki else [])
        agreements = tuple(check_agreement(model, samples.samples.get(model, ()), embedder) for model in models)
        trusted = frozenset(agreement.model for agreement in agreements if agreement.agrees)
        seconds_per_text = measure_seconds_per_text(embedder, samples.new_texts) if report.dry_run else 0.0
        results: list[WikiImport] = []
        for wiki in wikis:
            survey = surveys[wiki.slug]
            if survey is None:
                continue
            rows = summary.rows_by_wiki.get(wiki.slug, 0)
            result = _plan_import(wiki.slug, survey, rows, trusted, agreements, seconds_per_text)
            try:
                if not report.dry_run:
                    reusing = ReusingEmbedder(embedder, spool.get_wiki_vectors(wiki.slug), trusted)
                    result = self._import_wiki(wiki, result, survey, reusing)
                results.append(result)
            except WikiholtError as error:
                self._failed[wiki.slug] = (error.code, error.message)
        return replace(report, agreements=agreements, wikis=tuple(results))

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
        """The wiki's index, if a sync could reuse its vectors."""
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
        started = time.monotonic()
        handle = self._service.open_with_embedder(wiki.slug, embedder)
        config, components = self._service.get_config(wiki), self._service.components

        def get_chunk_counts(revision: str) -> Mapping[str, int]:
            return survey.chunks if revision == survey.revision else count_chunks(config, revision, embedder)

        try:
            with self._open_progress(wiki.slug) as progress:
                handle.sync(progress)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
            proof = verify_index(wiki.id, components.store, config.source, get_chunk_counts, components.lock_timeout)
        finally:
            handle.close()
        return replace(
            planned,
            seconds=time.monotonic() - started,
            reused=embedder.reused,
            embedded=embedder.embedded,
            proof=proof,
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
    # If one of several models does not agree, the number of matches of the others is unknown: count none.
    reusable = survey.matched if agreements and all(agreement.model in trusted for agreement in agreements) else 0
    to_embed = survey.to_embed + survey.matched - reusable
    seconds = to_embed * seconds_per_text + WRITE_SECONDS_PER_CHUNK * chunks
    return WikiImport(slug, survey.pages, chunks, rows, survey.indexed, survey.matched, to_embed, round(seconds, 3))
