"""Imports a shared index into one index per wiki: read, assign owners, plan, sample, sync, verify.

It can be killed at any time, because an index only changes by a sync, which can be continued.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from wikiholt.api.importer.reuse import ModelAgreement, ReusingEmbedder, VectorSamples, check_agreement
from wikiholt.api.importer.shared_index import (
    DroppedRows,
    OwnershipResolver,
    OwnershipRules,
    RowOutcome,
    SharedIndex,
    SharedRow,
    UnclearOwnership,
)
from wikiholt.api.importer.spool import RowSpool, open_work_directory
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexUnavailable, SyncFailed, WikiholtError, WikiNotFound
from wikiholt.index.estimate import WRITE_SECONDS_PER_CHUNK, measure_seconds_per_text
from wikiholt.index.page_process import PageProcess
from wikiholt.index.pipeline import PreparedPage, iter_batches
from wikiholt.index.reconciler import ProgressCallback
from wikiholt.wikis.live_index import WikiConfig
from wikiholt.wikis.service import WikiService

_READ_ROWS = 1000
_TIMING_TEXTS = 96
"""Texts to measure the speed of embedding with."""
_CACHE_TIMEOUT_S = 600.0
"""How long to wait for the caches of a large wiki, so that the next search finds them."""

ProgressOpener = Callable[[str], AbstractContextManager[ProgressCallback]]


def ignore_progress(_: str) -> AbstractContextManager[ProgressCallback]:
    """Shows no progress."""
    return nullcontext(lambda _: None)


def read_rows(shared: SharedIndex, assign: Callable[[SharedRow], str | None]) -> Iterator[list[tuple[str, SharedRow]]]:
    """Yield every row that `assign` gives a wiki, with it, in batches."""
    with closing(shared.iter_rows()) as rows:
        while batch := list(islice(rows, _READ_ROWS)):
            yield [(slug, row) for row in batch if (slug := assign(row)) is not None]


# Verification: an index contains exactly the HEAD of its wiki.


@dataclass(frozen=True, slots=True)
class ImportProof:
    """Proof that an index contains the pages and chunks of its wiki at HEAD, and nothing else."""

    revision: str
    pages: int
    chunks: int
    problems: int
    foreign: int = 0
    """Pages whose blob is not in the wiki's tree. An import with any has failed."""


def iter_prepared_pages(config: WikiConfig, revision: str, embedder: Embedder) -> Iterator[list[PreparedPage]]:
    """Every page that can be indexed at this revision, in batches."""
    tree = config.source.read_tree(revision)
    with PageProcess(config.pipeline, embedder) as pages:
        for files in iter_batches(tree):
            results = pages.prepare_files(config.source, {file: tree[file] for file in files})
            yield [page for page in results if isinstance(page, PreparedPage)]


def verify_index(service: WikiService, wiki: Wiki) -> ImportProof:
    """Compare the index with its wiki's tree, page by page, and check its checksums. Raises SyncFailed."""
    store, source = service.components.store, service.get_source(wiki)
    with store.write_lock(wiki.id, service.components.lock_timeout_s), closing(store.open(wiki.id)) as index:
        state, pages, faults = index.get_state(), index.get_page_blobs(), index.check()
        problems = {problem.file for problem in index.get_problems()}
    if state.revision is None or faults:
        raise _build_failure(faults[0] if faults else "it has no revision")
    tree = source.read_tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - problems
    if foreign or missing:
        raise _build_failure(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    return ImportProof(state.revision, len(pages), state.chunks, len(problems), len(foreign))


def _build_failure(reason: str) -> SyncFailed:
    return SyncFailed(
        f"the index does not match the wiki at HEAD: {reason}", hint="run `wikiholt reindex`, and please report this"
    )


# The import


@dataclass(frozen=True, slots=True)
class WikiImport:
    """One wiki: its size at HEAD, and where the vectors of its texts come from. Equal texts are counted once."""

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
        self._rows: Counter[str] = Counter()
        self._new_texts: list[str] = []
        """Some of the texts to embed."""

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
        with open_work_directory(self._data) as directory, closing(RowSpool(directory / "rows.sqlite")) as spool:
            shared, embedder = open_shared_index(directory), self._service.components.embedder()
            resolver = OwnershipResolver(self._read_trees(wikis, selected), self._options.rules)
            dropped, unclear = DroppedRows(), UnclearOwnership()
            for rows in read_rows(
                shared, lambda row: self._assign(row, resolver, embedder.dimensions, dropped, unclear)
            ):
                spool.add_vectors(rows)
            unclear = UnclearOwnership(
                dict(sorted(unclear.pages.items())), Counter(dict(sorted(unclear.tenants.items())))
            )
            report = ImportReport(shared.name, self._rows.total(), dropped, unclear, dry_run=self._options.dry_run)
            if not unclear or report.dry_run:
                readable = [wikis[slug] for slug in selected if slug not in self._failed]
                report = self._import_wikis(report, readable, spool, embedder)
            return replace(report, failed=dict(self._failed))

    def _assign(
        self,
        row: SharedRow,
        resolver: OwnershipResolver,
        dimensions: int,
        dropped: DroppedRows,
        unclear: UnclearOwnership,
    ) -> str | None:
        """The wiki of a row; None if it is dropped or its owner is unclear."""
        outcome, wikis = resolver.resolve(row.tenant, row.page)
        slug = ""
        if outcome in (RowOutcome.SEVERAL_WIKIS, RowOutcome.UNKNOWN_TENANT):
            unclear.add(row, wikis)
        elif outcome is not RowOutcome.OWNED:
            dropped.add(str(outcome), row)
        elif row.vector.shape != (dimensions,):
            dropped.add("wrong-dimensions", row)
        elif not abs(float(np.linalg.norm(row.vector)) - 1) < 1e-3:
            dropped.add("unusable-vector", row)
        else:
            (slug,) = wikis
        self._rows[slug] += 1
        return slug or None

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
        self, report: ImportReport, wikis: Sequence[Wiki], spool: RowSpool, embedder: Embedder
    ) -> ImportReport:
        embedder.run_self_test()
        samples = VectorSamples(self._options.sample_size)
        plans: list[tuple[Wiki, WikiImport]] = []
        for wiki in wikis:
            with self._record_failure(wiki):
                plans.append((wiki, self._plan(wiki, spool, embedder, samples)))
        models = [*samples.samples] or ([""] if any(self._rows[slug] for slug in self._rows if slug) else [])
        agreements = tuple(check_agreement(model, samples.samples.get(model, ()), embedder) for model in models)
        trusted = frozenset(agreement.model for agreement in agreements if agreement.agrees)
        # If one of several models does not agree, the number of matches of the others is unknown: count none.
        are_all_trusted = len(trusted) == len(models)
        seconds_per_text = measure_seconds_per_text(embedder, self._new_texts) if report.dry_run else 0.0
        results: list[WikiImport] = []
        for wiki, plan in plans:
            to_embed = plan.to_embed + (0 if are_all_trusted else plan.matched)
            seconds = to_embed * seconds_per_text + WRITE_SECONDS_PER_CHUNK * plan.chunks
            result = replace(plan, to_embed=to_embed, seconds=round(seconds, 3))
            with self._record_failure(wiki):
                if not report.dry_run:
                    result = self._import_wiki(wiki, result, ReusingEmbedder(embedder, spool, wiki.slug, trusted))
                results.append(result)
        return replace(report, agreements=agreements, wikis=tuple(results))

    @contextmanager
    def _record_failure(self, wiki: Wiki) -> Iterator[None]:
        """A wiki that fails does not stop the others."""
        try:
            yield
        except WikiholtError as error:
            self._failed[wiki.slug] = (error.code, error.message)

    def _plan(self, wiki: Wiki, spool: RowSpool, embedder: Embedder, samples: VectorSamples) -> WikiImport:
        """Count which texts at HEAD have vectors: in the wiki's index, if a sync could reuse them, or in the spool."""
        config = self._service.get_config(wiki)
        revision = config.source.get_head()
        seen: set[bytes] = set()
        chunks = indexed = matched = 0
        with ExitStack() as resources:
            index = None
            with suppress(IndexUnavailable):
                index = resources.enter_context(closing(self._service.components.store.open(wiki.id)))
            is_reusable = index is not None and index.get_state().recipe.fingerprint == embedder.fingerprint
            for batch in iter_prepared_pages(config, revision, embedder):
                pairs = [pair for page in batch for pair in zip(page.hashes, page.texts, strict=True)]
                chunks += len(pairs)
                texts = {digest: text for digest, text in pairs if digest not in seen}
                seen.update(texts)
                in_index = index.find_vectors_by_hash(list(texts)) if index is not None and is_reusable else {}
                known = spool.find_vectors(wiki.slug, [digest for digest in texts if digest not in in_index])
                indexed, matched = indexed + len(in_index), matched + len(known)
                for digest, (model, vector) in known.items():
                    samples.draw(model, texts[digest], vector)
                new_texts = [text for digest, text in texts.items() if digest not in in_index and digest not in known]
                self._new_texts += new_texts[: max(0, _TIMING_TEXTS - len(self._new_texts))]
        pages, rows = len(config.source.read_tree(revision)), self._rows[wiki.slug]
        return WikiImport(wiki.slug, pages, chunks, rows, indexed, matched, len(seen) - indexed - matched)

    def _import_wiki(self, wiki: Wiki, result: WikiImport, embedder: ReusingEmbedder) -> WikiImport:
        started = time.monotonic()
        with closing(self._service.open_with_embedder(wiki.slug, cast(Embedder, embedder))) as handle:
            with self._open_progress(wiki.slug) as progress:
                handle.sync(progress)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
            proof = verify_index(self._service, wiki)
        seconds = time.monotonic() - started
        return replace(result, seconds=seconds, reused=embedder.reused, embedded=embedder.embedded, proof=proof)
