"""The import of one shared index into one index a wiki: read, ask whose, compare, sample, sync, prove.

It may be killed at any moment: an index only ever changes by a sync, which goes on where the one before was left.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from wikiholt.errors import IndexFault, WikiholtError, WikiNotFound
from wikiholt.forecast import WRITING, seconds_a_text
from wikiholt.importing.knowing import Knowing
from wikiholt.importing.owners import NOBODY, Owners, Rules
from wikiholt.importing.proving import agreement, proof
from wikiholt.importing.reading import Reading, read
from wikiholt.importing.report import Agreement, ImportReport, WikiImport
from wikiholt.importing.shared import Shared
from wikiholt.importing.spool import Spool, workplace
from wikiholt.importing.surveying import Samples, Survey, chunk_counts, survey
from wikiholt.model import Wiki
from wikiholt.ports import Embedder, WikiIndex
from wikiholt.service import Service
from wikiholt.sync import Progress

_PATIENCE = 600.0
"""Seconds to wait for a large wiki's caches, so that the next search finds them."""

Watch = Callable[[str], AbstractContextManager[Callable[[Progress], None]]]


def _unwatched(_: str) -> AbstractContextManager[Callable[[Progress], None]]:
    return nullcontext(lambda _: None)


@dataclass(frozen=True, slots=True)
class Options:
    """How to import."""

    rules: Rules = field(default_factory=Rules)
    wikis: tuple[str, ...] = ()
    """Only these; every wiki if empty."""
    sample: int = 64
    dry_run: bool = False


class Importer:
    """Imports into the wikis of one service."""

    def __init__(self, service: Service, data: Path, options: Options, watch: Watch = _unwatched) -> None:
        self._service = service
        self._data = data
        self._options = options
        self._watch = watch
        self._failed: dict[str, tuple[str, str]] = {}

    def run(self, open_shared: Callable[[Path], Shared]) -> ImportReport:
        """Import, unless it is unclear whose something is: then the report says so, and no index was touched.

        `open_shared` gets a directory to work in, which is gone afterwards.
        """
        wikis = {wiki.slug: wiki for wiki in self._service.wikis()}
        if not wikis:
            raise WikiNotFound("there are no wikis to import into", hint="add each: wikiholt add SLUG PATH")
        for slug in (*self._options.wikis, *self._told_slugs()):
            self._service.registry.get(slug)
        chosen = [slug for slug in wikis if not self._options.wikis or slug in self._options.wikis]
        with workplace(self._data) as place, closing(Spool(place / "vectors.sqlite")) as spool:
            shared = open_shared(place)
            embedder = self._service.workshop.embedder()
            owners = Owners(self._trees(wikis, chosen), self._options.rules)
            reading = read(shared, owners, embedder.dimensions, spool)
            report = ImportReport(
                shared.name, reading.rows, reading.dropped, reading.unclear, dry_run=self._options.dry_run
            )
            if not report.unclear or report.dry_run:
                there = [wikis[slug] for slug in chosen if slug not in self._failed]
                report = self._imported(report, there, reading, spool, embedder)
            return replace(report, failed=dict(self._failed))

    def _told_slugs(self) -> list[str]:
        rules = self._options.rules
        told = [*(slug for _, slug in rules.owners), *rules.tenants.values()]
        return [slug for slug in told if slug != NOBODY]

    def _trees(self, wikis: Mapping[str, Wiki], chosen: Sequence[str]) -> dict[str, Sequence[str]]:
        """The files of every wiki that can be read; one that cannot is not imported, and keeps no other from it."""
        found: dict[str, Sequence[str]] = {}
        for slug, wiki in wikis.items():
            try:
                if slug in chosen and not self._options.dry_run:
                    self._service.background(slug).fetch()
                source = self._service.source(wiki)
                found[slug] = list(source.tree(source.head()))
            except WikiholtError as error:
                if slug in chosen:
                    self._failed[slug] = (error.code, error.message)
                found[slug] = ()
        return found

    def _imported(
        self, report: ImportReport, wikis: Sequence[Wiki], reading: Reading, spool: Spool, embedder: Embedder
    ) -> ImportReport:
        embedder.prove()
        samples = Samples(self._options.sample)
        surveys = {wiki.slug: self._surveyed(wiki, spool, embedder, samples) for wiki in wikis}
        models = [*samples.drawn] if samples.drawn else ([""] if reading.of_wiki else [])
        agreements = tuple(agreement(model, samples.drawn.get(model, ()), embedder) for model in models)
        trusted = frozenset(each.model for each in agreements if each.agrees)
        pace = seconds_a_text(embedder, samples.fresh) if report.dry_run else 0.0
        done: list[WikiImport] = []
        for wiki in wikis:
            found = surveys[wiki.slug]
            if found is None:
                continue
            planned = _planned(wiki.slug, found, reading.of_wiki.get(wiki.slug, 0), trusted, agreements, pace)
            if report.dry_run:
                done.append(planned)
                continue
            try:
                done.append(self._one(wiki, planned, found, Knowing(embedder, spool.of(wiki.slug), trusted)))
            except WikiholtError as error:
                self._failed[wiki.slug] = (error.code, error.message)
        return replace(report, agreements=agreements, wikis=tuple(done))

    def _surveyed(self, wiki: Wiki, spool: Spool, embedder: Embedder, samples: Samples) -> Survey | None:
        index: WikiIndex | None = None
        try:
            index = self._donor(wiki, embedder)
            return survey(self._service.parts(wiki), embedder, index, spool.of(wiki.slug), samples)
        except WikiholtError as error:
            self._failed[wiki.slug] = (error.code, error.message)
            return None
        finally:
            if index is not None:
                index.close()

    def _donor(self, wiki: Wiki, embedder: Embedder) -> WikiIndex | None:
        """The wiki's index, if a sync could take vectors from it."""
        try:
            index = self._service.workshop.store.open(wiki.id)
        except IndexFault:
            return None
        if index.state().recipe.fingerprint == embedder.fingerprint:
            return index
        index.close()
        return None

    def _one(self, wiki: Wiki, planned: WikiImport, found: Survey, knowing: Knowing) -> WikiImport:
        began = time.monotonic()
        handle = self._service.lent(wiki.slug, knowing)
        parts, shop = self._service.parts(wiki), self._service.workshop

        def chunks_at(revision: str) -> Mapping[str, int]:
            return found.chunks if revision == found.revision else chunk_counts(parts, revision, knowing)

        try:
            with self._watch(wiki.slug) as progress:
                handle.sync(progress)
            handle.settle(_PATIENCE)
            proved = proof(wiki.id, shop.store, parts.source, chunks_at, shop.lock_timeout)
        finally:
            handle.close()
        return replace(
            planned,
            seconds=time.monotonic() - began,
            reused=knowing.reused,
            embedded=knowing.embedded,
            proof=proved,
        )


def _planned(
    slug: str, found: Survey, rows: int, trusted: frozenset[str], agreements: Sequence[Agreement], pace: float
) -> WikiImport:
    chunks = sum(found.chunks.values())
    # Where one model of several proved another, how many of this wiki's matches are its is not known: none count.
    reusable = found.matched if agreements and all(each.model in trusted for each in agreements) else 0
    to_embed = found.to_embed + found.matched - reusable
    seconds = to_embed * pace + WRITING * chunks
    return WikiImport(slug, found.pages, chunks, rows, found.indexed, found.matched, to_embed, round(seconds, 3))
