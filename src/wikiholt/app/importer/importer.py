"""Imports a shared index into one index per wiki: read, assign owners, compare, sample, sync, verify.

It can be killed at any time, because an index only changes by a sync, which can be continued.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from wikiholt.app.importer.shared_index import (
    DroppedRows,
    OwnershipResolver,
    OwnershipRules,
    ReadSummary,
    SharedIndex,
    UnclearOwnership,
    read_shared_index,
)
from wikiholt.app.importer.spool import (
    ModelAgreement,
    ReusingEmbedder,
    VectorSamples,
    VectorSpool,
    check_agreement,
    open_work_directory,
)
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexUnavailable, SyncFailed, WikiholtError, WikiNotFound
from wikiholt.indexing.estimate import WRITE_SECONDS_PER_CHUNK, measure_seconds_per_text
from wikiholt.indexing.page_process import PageProcess
from wikiholt.indexing.pipeline import PreparedPage, iter_batches
from wikiholt.indexing.reconciler import ProgressCallback
from wikiholt.wikis.live_index import WikiConfig
from wikiholt.wikis.service import WikiService

_TIMING_TEXTS = 96
"""Texts kept to measure the speed of embedding."""


@dataclass(frozen=True, slots=True)
class ImportProof:
    """Proof that an index contains the pages and chunks of its wiki at HEAD, and nothing else."""

    revision: str
    pages: int
    chunks: int
    problems: int
    foreign: int = 0
    """Pages whose blob is not in the wiki's tree. An import with any has failed."""


@dataclass(frozen=True, slots=True)
class WikiImport:
    """One wiki: its size at HEAD, and where the vectors of its texts come from."""

    slug: str
    pages: int = 0
    chunks: int = 0
    rows: int = 0
    """Rows of the shared index that belong to this wiki."""
    indexed: int = 0
    """Texts whose vectors are already in its index."""
    matched: int = 0
    """Texts whose vectors are in the shared index."""
    to_embed: int = 0
    seconds: float = 0.0
    """Estimated with --dry-run, measured otherwise."""
    reused: int = 0
    embedded: int = 0
    proof: ImportProof | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import. `failed` maps wikis to the code and message of their error."""

    source: str
    rows: int
    dropped: DroppedRows
    unclear: UnclearOwnership
    agreements: tuple[ModelAgreement, ...] = ()
    wikis: tuple[WikiImport, ...] = ()
    failed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ImportSurvey:
    """One wiki at one revision. Equal texts are counted once."""

    revision: str
    pages: int
    chunks: Mapping[str, int]
    """Number of chunks by file."""
    indexed: int
    matched: int
    to_embed: int


def iter_prepared_pages(config: WikiConfig, revision: str, embedder: Embedder) -> Iterator[list[PreparedPage]]:
    """Every page that can be indexed at this revision, in batches."""
    tree = config.source.read_tree(revision)
    with PageProcess(config.pipeline, embedder) as pages:
        for files in iter_batches(tree):
            results = pages.prepare_files(config.source, {file: tree[file] for file in files})
            yield [page for page in results if isinstance(page, PreparedPage)]


def count_chunks(config: WikiConfig, revision: str, embedder: Embedder) -> Mapping[str, int]:
    """The number of chunks of each page at a revision."""
    return {
        page.page.file: len(page.texts) for batch in iter_prepared_pages(config, revision, embedder) for page in batch
    }


def build_survey(
    config: WikiConfig,
    embedder: Embedder,
    index: WikiIndex | None,
    find_known: Callable[[Sequence[bytes]], Mapping[bytes, tuple[str, FloatArray]]],
    samples: VectorSamples,
) -> ImportSurvey:
    """Count which texts at HEAD have vectors: in `index` (None if it has no usable ones), or in the shared index."""
    revision = config.source.get_head()
    chunks: dict[str, int] = {}
    seen: set[bytes] = set()
    indexed = matched = 0
    for batch in iter_prepared_pages(config, revision, embedder):
        chunks |= {page.page.file: len(page.texts) for page in batch}
        texts = {h: text for page in batch for h, text in zip(page.hashes, page.texts, strict=True) if h not in seen}
        seen.update(texts)
        in_index = index.find_vectors_by_hash(list(texts)) if index is not None else {}
        indexed += len(in_index)
        known = find_known([h for h in texts if h not in in_index])
        matched += len(known)
        for digest, (model, vector) in known.items():
            samples.draw(model, texts[digest], vector)
        if len(samples.new_texts) < _TIMING_TEXTS:
            new_texts = [text for h, text in texts.items() if h not in in_index and h not in known]
            samples.new_texts += new_texts[:_TIMING_TEXTS]
    pages = len(config.source.read_tree(revision))
    return ImportSurvey(revision, pages, chunks, indexed, matched, len(seen) - indexed - matched)


# Verification: an index contains exactly the HEAD of its wiki.


def verify_index(service: WikiService, wiki: Wiki, get_chunk_counts: Callable[[str], Mapping[str, int]]) -> ImportProof:
    """Compare the index with its wiki's tree, page by page, and check its checksums. Raises SyncFailed."""
    store, source = service.components.store, service.get_source(wiki)
    with store.write_lock(wiki.id, service.components.lock_timeout_s), closing(store.open(wiki.id)) as index:
        state, pages, faults = index.get_state(), index.get_page_blobs(), index.check()
        problems = {problem.file for problem in index.get_problems()}
    if state.revision is None:
        raise _build_failure("it has no revision")
    if faults:
        raise _build_failure(faults[0])
    tree = source.read_tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - problems
    counts = get_chunk_counts(state.revision)
    chunks = sum(counts.get(file, 0) for file in pages)
    if foreign or missing:
        raise _build_failure(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    if chunks != state.chunks:
        raise _build_failure(f"it has {state.chunks} chunks, but its pages have {chunks}")
    return ImportProof(state.revision, len(pages), state.chunks, len(problems), len(foreign))


def _build_failure(reason: str) -> SyncFailed:
    return SyncFailed(
        f"the index does not match the wiki at HEAD: {reason}", hint="run `wikiholt reindex`, and please report this"
    )


# The import


_CACHE_TIMEOUT_S = 600.0
"""How long to wait for the caches of a large wiki, so that the next search finds them."""

ProgressOpener = Callable[[str], AbstractContextManager[ProgressCallback]]


def ignore_progress(_: str) -> AbstractContextManager[ProgressCallback]:
    """Shows no progress."""
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
        self, service: WikiService, data: Path, options: ImportOptions, open_progress: ProgressOpener = ignore_progress
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
        for slug in (*self._options.wikis, *self._options.rules.list_slugs()):
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
            rows = summary.rows_by_wiki[wiki.slug]
            result = _plan_import(wiki.slug, survey, rows, trusted, agreements, seconds_per_text)
            try:
                if not report.dry_run:
                    reusing = ReusingEmbedder(embedder, spool, wiki.slug, trusted)
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
                self._service.get_config(wiki), embedder, index, partial(spool.find, wiki.slug), samples
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
        config = self._service.get_config(wiki)

        def get_chunk_counts(revision: str) -> Mapping[str, int]:
            return survey.chunks if revision == survey.revision else count_chunks(config, revision, embedder)

        try:
            with self._open_progress(wiki.slug) as progress:
                handle.sync(progress)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
            proof = verify_index(self._service, wiki, get_chunk_counts)
        finally:
            handle.close()
        seconds = time.monotonic() - started
        return replace(planned, seconds=seconds, reused=embedder.reused, embedded=embedder.embedded, proof=proof)


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
