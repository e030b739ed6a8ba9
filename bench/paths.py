"""Words of a page's path as words of its title, chosen by the other collections: the figures of docs/adr/0045.

    python -m bench.paths [--collections DIR] [--data DIR] [--mdn DIR] [--write]

Uses the indexes of bench.quality, also of `xquad` if bench.extra_collections wrote it, and the one of MDN that bench.sync made:
there, link texts are the queries, as in bench.extra_collections. *Titles* are titles of pages as queries, which the other sets leave
out; they show what a choice costs, and choose nothing. Signals are kept in bench/data/paths. A variant has the
number of last parts of the path that count, and the share of the title with its path in the overlap.
"""

import argparse
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np

from bench import collections, extra_collections
from bench.corpus import open_clone
from bench.pages import NOW, JudgedCandidates, RankingTrial, SignalReader, load_candidates
from bench.report import make_head, make_parser, publish
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.title_match import PATH_PARTS, PATH_SHARE, TitleTerms, compute_overlap, make_title_terms

COLLECTIONS = (*collections.SHARED_NAMES, "xquad")
ALL_PARTS = 99
TITLE_ALONE = (PATH_PARTS, 0.0)
VARIANTS = (TITLE_ALONE, *itertools.product((1, 2, 3, ALL_PARTS), (1 / 3, 1 / 2, 2 / 3, 1.0)))
NOW_VARIANT = (PATH_PARTS, PATH_SHARE)
MAX_TITLES, MAX_LINKS = 250, 1_200


def get_column(variant: tuple[int, float]) -> str:
    return f"{variant[0]} parts, {variant[1]:.2f}".replace(str(ALL_PARTS), "all")


class PathSignalReader(SignalReader):
    """Scores titles in all variants."""

    names = ("nearest", "page", "share", *map(get_column, VARIANTS))

    def score_titles(self, terms: frozenset[str], pages: Sequence[StoredPage]) -> dict[str, FloatArray]:
        return {
            get_column((parts, share)): np.array(
                [compute_overlap(terms, build_title_terms(page.name, page.path, parts), share) for page in pages]
            )
            for parts, share in VARIANTS
        }

    def score_vectors(
        self, pages: Sequence[int], vector: FloatArray, cosines: FloatArray, scale: CosineScale
    ) -> dict[str, FloatArray]:
        return self.score_pages(pages, vector, cosines, scale)


@cache
def build_title_terms(name: str, path: str, parts: int) -> TitleTerms:
    return make_title_terms(name, path, path_parts=parts)


def main() -> None:
    parser = make_parser(__doc__, "paths", "collections", "data")
    parser.add_argument("--mdn", type=Path, default=Path("bench/data/sync"), help="the data of bench.sync")
    arguments = parser.parse_args()
    queries = [query for name in (*COLLECTIONS, "mdn") for query in read_candidates(name, arguments)]
    trial = RankingTrial(queries, PathSignalReader.names)
    text = "\n".join([*format_variants(trial), "", *format_held_out(trial)])
    publish("paths", __doc__, text, write=arguments.write, note=f"{len(queries)} queries.")


def read_candidates(name: str, arguments: argparse.Namespace) -> list[JudgedCandidates]:
    def read() -> Iterator[JudgedCandidates | None]:
        service = open_service(arguments.mdn if name == "mdn" else arguments.data / "quality")
        with closing(service.components.store.open(service.get_handle(name).wiki.id)) as index:
            reader = PathSignalReader(index, service.components.embedder())
            if name == "mdn":
                kinds = [read_links(index, arguments.data)]
            else:
                directory = collections.find_collections(arguments.collections, arguments.data)[name]
                kinds = [*collections.read_queries(directory), select_titles(name, list(reader.pages.values()))]
            yield from reader.read_all(kinds)
        service.close()

    return load_candidates(arguments.data / "paths" / f"{name}.pickle", read)


def select_titles(name: str, pages: Sequence[StoredPage]) -> collections.Queries:
    """Titles that one page of the wiki has."""
    counts = Counter(page.name.casefold() for page in pages)
    chosen = sorted((page for page in pages if counts[page.name.casefold()] == 1), key=lambda page: page.path)
    random.Random(3).shuffle(chosen)
    texts = {page.path: page.name for page in chosen[:MAX_TITLES]}
    return collections.Queries(name, "titles", texts, {path: {path: 1} for path in texts}, {})


def read_links(index: WikiIndex, data: Path) -> collections.Queries:
    """Link texts of MDN, whose pages have the paths of the index."""
    sources = extra_collections.read_sources(open_clone(to=data / "mdn.git").path)
    _, listed = index.list_pages(PageFilter(), None)
    paths = {page.path.removesuffix("/index").lower(): page.path for page in listed}
    chosen = [
        each
        for each in extra_collections.select_queries(sources, extra_collections.find_link_texts(sources))
        if each[1] in paths
    ]
    random.Random(7).shuffle(chosen)
    queries = collections.Queries("mdn", "links", {}, {}, {})
    for number, (text, path, linking) in enumerate(chosen[:MAX_LINKS]):
        query = f"q{number}"
        queries.texts[query], queries.relevant[query] = text, {paths[path]: 1}
        queries.exclude[query] = {paths[each] for each in linking if each in paths}
    return queries


def format_variants(trial: RankingTrial) -> Iterator[str]:
    alone = trial.measure(trial.compute_evidence(NOW, get_column(TITLE_ALONE)))
    yield from trial.format_head("hybrid search, nDCG@10")
    yield trial.format_row("title alone", trial.compute_means(alone), "")
    for variant in VARIANTS[1:]:
        values = trial.measure(trial.compute_evidence(NOW, get_column(variant)))
        label = f"**{get_column(variant)}**" if variant == NOW_VARIANT else get_column(variant)
        yield trial.format_row(label, trial.compute_means(values - alone))
        if variant == NOW_VARIANT:
            yield trial.format_chances(values - alone)


def format_held_out(trial: RankingTrial) -> Iterator[str]:
    """What a variant chosen by the other collections gives."""
    values = np.stack([trial.measure(trial.compute_evidence(NOW, get_column(variant))) for variant in VARIANTS])
    results = np.stack([trial.compute_means(each) for each in values])
    changes, gains = np.zeros(values.shape[1], np.float32), results - results[0]
    is_title = np.array([kind.endswith("(titles)") for kind in trial.kinds])
    yield make_head("| left out | chosen by the others | gain seen | gain on the one left out |")
    for name in dict.fromkeys(trial.groups.tolist()):
        unseen, seen = trial.groups == name, (trial.groups != name) & ~is_title
        best = int(np.argmax(results[:, seen].mean(axis=1)))
        changes += np.where(unseen[trial.kind_of], values[best] - values[0], 0.0)
        judged = gains[best, unseen & ~is_title].mean()
        yield f"| {name} | {get_column(VARIANTS[best])} | {gains[best, seen].mean():+.4f} | {judged:+.4f} |"
    yield ""
    yield from trial.format_head("each collection by the choice of the others")
    yield trial.format_row("difference", trial.compute_means(changes))
    yield trial.format_chances(changes)


if __name__ == "__main__":
    main()
