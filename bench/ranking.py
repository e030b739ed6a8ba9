"""Further evidence for a page besides the best passage and keywords: the figures of docs/adr/0049.

    python -m bench.ranking [--collections DIR] [--data DIR] [--write]

Uses the indexes of bench.quality (run that first). The queries of every collection are split in two halves by a
hash of their ids: ways were chosen on the first half and are reported on the second too. Each way is one setting for all
collections. Where texts of links count, those a query could have been mined from are left out: all on pages that the
collection excludes for the query, and all of the same words.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from bench import collections
from bench.measures import get_max_keyword_score
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.candidates import KEYWORD_CANDIDATES, VECTOR_CANDIDATES
from wikiholt.search.title_match import compute_dice
from wikiholt.text.keyword_query import get_significant_terms, parse_query, to_plain_query
from wikiholt.text.links import PageNameIndex, get_last_part
from wikiholt.wikis.evaluation.quality_metrics import compute_difference, compute_ndcg

TODAY = "the same + .3 name · meaning"
Terms = frozenset[str]


@dataclass(frozen=True)
class CollectionPages:
    """An index in memory: pages, vectors of their passages, and texts of links to them."""

    pages: dict[int, StoredPage]
    page_ids: np.ndarray
    vectors: FloatArray
    texts: dict[int, str]
    names: dict[int, Terms]
    ends: dict[int, Terms]
    called: dict[int, list[tuple[str, Terms]]]
    copies: np.ndarray
    """For each passage, how many other pages have one nearly like it."""


@dataclass(frozen=True)
class PageFeatures:
    """The candidates of a query and their features, as parallel arrays."""

    pages: list[str]
    meaning: FloatArray
    share: FloatArray
    name: FloatArray
    path: FloatArray
    called: FloatArray
    five: FloatArray
    middle: FloatArray
    original: FloatArray
    phrase: FloatArray


Merge = Callable[[PageFeatures], FloatArray]


def merge_mean(found: PageFeatures, words: float = 0.5) -> FloatArray:
    return np.asarray((1 - words) * found.meaning + words * found.share)


def merge_passages(found: PageFeatures, other: FloatArray, part: float) -> FloatArray:
    return np.asarray(0.5 * ((1 - part) * found.meaning + part * other) + 0.5 * found.share)


WAYS: dict[str, Merge] = {
    "mean of meaning and words (0008)": merge_mean,
    "meaning .7 best passage + .3 mean of five": lambda f: merge_passages(f, f.five, 0.3),
    "meaning .5 best passage + .5 mean of five": lambda f: merge_passages(f, f.five, 0.5),
    "meaning .8 best passage + .2 middle of the page": lambda f: merge_passages(f, f.middle, 0.2),
    "passages that other pages have too weigh less": lambda f: 0.5 * f.original + 0.5 * f.share,
    "the same + .03 where the page has the very phrase": lambda f: merge_mean(f) + 0.03 * f.phrase,
    "the same + .1 where the page has the very phrase": lambda f: merge_mean(f) + 0.1 * f.phrase,
    "the same + .1 name": lambda f: merge_mean(f) + 0.1 * f.name,
    "the same + .15 name": lambda f: merge_mean(f) + 0.15 * f.name,
    "the same + .2 name": lambda f: merge_mean(f) + 0.2 * f.name,
    "the same × (1 + .3 name)": lambda f: merge_mean(f) * (1 + 0.3 * f.name),
    "the same + .3 name² · meaning": lambda f: merge_mean(f) + 0.3 * f.name**2 * f.meaning,
    "the same + .2 name · meaning": lambda f: merge_mean(f) + 0.2 * f.name * f.meaning,
    TODAY: lambda f: merge_mean(f) + 0.3 * f.name * f.meaning,
    "the same + .4 name · meaning": lambda f: merge_mean(f) + 0.4 * f.name * f.meaning,
    "words .45, + .3 name · meaning": lambda f: merge_mean(f, 0.45) + 0.3 * f.name * f.meaning,
    "words .55, + .3 name · meaning": lambda f: merge_mean(f, 0.55) + 0.3 * f.name * f.meaning,
    ".3 name · meaning, .3 of five passages": lambda f: merge_passages(f, f.five, 0.3) + 0.3 * f.name * f.meaning,
    ".3 name or last part of path": lambda f: merge_mean(f) + 0.3 * np.maximum(f.name, f.path) * f.meaning,
    ".3 name or text of a link": lambda f: merge_mean(f) + 0.3 * np.maximum(f.name, f.called) * f.meaning,
    ".3 name, path or text of a link": lambda f: (
        merge_mean(f) + 0.3 * np.maximum(np.maximum(f.name, f.path), f.called) * f.meaning
    ),
    "words alone": lambda f: f.share,
    "words alone + .1 name": lambda f: f.share + 0.1 * f.name,
    "words alone + .2 name": lambda f: f.share + 0.2 * f.name,
    "words alone + .3 name": lambda f: f.share + 0.3 * f.name,
}


def main() -> None:
    parser = make_parser(__doc__, "ranking", "collections", "data")
    arguments = parser.parse_args()
    service = open_service(arguments.data / "quality")
    values: dict[str, dict[str, tuple[list[float], list[float]]]] = {way: {} for way in WAYS}
    for name in collections.SHARED_NAMES:
        index = service.components.store.open(service.get_handle(name).wiki.id)
        collection_pages = load_pages(index)
        for kind in collections.read_queries(arguments.collections / name):
            for query, found in find_candidates(index, collection_pages, service.components.embedder(), kind):
                half = blake2b(f"{kind.name}/{query}".encode(), digest_size=2).digest()[0] & 1
                left_out = kind.exclude.get(query, set())
                for way, combine in WAYS.items():
                    order = np.argsort(-combine(found), kind="stable").tolist()
                    ranking = [found.pages[at] for at in order if found.pages[at] not in left_out]
                    halves = values[way].setdefault(kind.name, ([], []))
                    halves[half].append(compute_ndcg(ranking, kind.relevant[query]))
            print(kind.name, flush=True)
        index.close()
    text = "\n".join([*format_table(values), "", *format_tests(values)])
    publish("ranking", __doc__, text, write=arguments.write)


def format_table(values: dict[str, dict[str, tuple[list[float], list[float]]]]) -> Iterator[str]:
    kinds = list(next(iter(values.values())))
    yield make_head(f"| way | {' | '.join(kinds)} | mean | first half | second half |")
    for way, by_kind in values.items():
        all_of = [statistics.fmean(first + second) for first, second in by_kind.values()]
        halves = [statistics.fmean(statistics.fmean(each[half]) for each in by_kind.values()) for half in (0, 1)]
        figures = [*(f"{value:.3f}" for value in all_of), f"{statistics.fmean(all_of):.4f}"]
        yield f"| {way} | {' | '.join(figures)} | {halves[0]:.4f} | {halves[1]:.4f} |"


def format_tests(values: dict[str, dict[str, tuple[list[float], list[float]]]]) -> Iterator[str]:
    """Significance tests of the chosen way against others, on all queries of the second half."""
    yield make_head("| second half, all queries | difference | p | better | worse |")
    pairs = (
        (TODAY, "mean of meaning and words (0008)"),
        (".3 name, path or text of a link", TODAY),
        ("words alone + .2 name", "words alone"),
    )
    for ours, theirs in pairs:
        one, other = ([value for _, second in values[way].values() for value in second] for way in (ours, theirs))
        gap = compute_difference(one, other)
        bounds = f"{gap.interval.mean:+.4f} [{gap.interval.low:+.4f} {gap.interval.high:+.4f}]"
        yield f"| {ours} against {theirs} | {bounds} | {gap.p_value:.4f} | {gap.better} | {gap.worse} |"


def load_pages(index: WikiIndex) -> CollectionPages:
    _, listed = index.list_pages(PageFilter(), None)
    pages = {page.page_id: page for page in listed}
    rows = index.get_page_vectors(sorted(pages))
    texts = {
        page_id: normalize_text("\n".join(chunk.text for chunk in chunks))
        for page_id, chunks in index.get_page_chunks(sorted(pages)).items()
    }
    return CollectionPages(
        pages,
        rows.page_ids,
        rows.vectors,
        texts,
        {page_id: get_significant_terms(page.name) for page_id, page in pages.items()},
        {page_id: get_significant_terms(get_last_part(page.path)) for page_id, page in pages.items()},
        find_links(index, pages),
        count_copies(rows.page_ids, rows.vectors),
    )


def find_links(index: WikiIndex, pages: dict[int, StoredPage]) -> dict[int, list[tuple[str, Terms]]]:
    """For each page the links to it: the page with the link, and its words."""
    names = PageNameIndex(page.path for page in pages.values())
    ids = {page.path: page_id for page_id, page in pages.items()}
    found: defaultdict[int, list[tuple[str, Terms]]] = defaultdict(list)
    for link in index.get_links():
        target = names.find_page(link.paths, link.wiki) or find_site_page(link.paths, ids)
        if target and link.page_id in pages and (terms := get_significant_terms(link.text)):
            found[ids[target]].append((pages[link.page_id].path, terms))
    return found


def find_site_page(paths: tuple[str, ...], ids: dict[str, int]) -> str | None:
    """The page of an address of the Kubernetes site, whose pages are in content/en."""
    tried = (f"content/en/{path.strip('/')}{end}" for path in paths for end in ("", "/_index"))
    return next((path for path in tried if path in ids), None)


def count_copies(page_ids: np.ndarray, vectors: FloatArray) -> np.ndarray:
    copies = np.zeros(len(vectors))
    for begin in range(0, len(vectors), 1000):
        near = vectors[begin : begin + 1000] @ vectors.T > 0.93
        copies[begin : begin + 1000] = [len(np.unique(page_ids[row])) - 1 for row in near]
    return copies


def normalize_text(text: str) -> str:
    return re.sub(r"\s+", " ", text.lower())


def find_candidates(
    index: WikiIndex, collection_pages: CollectionPages, embedder: Embedder, kind: collections.Queries
) -> Iterator[tuple[str, PageFeatures]]:
    for query, text in kind.texts.items():
        words = parse_query(text)
        cosines = collection_pages.vectors @ embedder.embed_query(to_plain_query(text))
        best = get_max_keyword_score(index, words)
        shares = {
            hit.page_id: min(1.0, hit.score / best)
            for hit in index.search_keywords(words, KEYWORD_CANDIDATES, PageFilter())
        }
        near = collection_pages.page_ids[np.argsort(-cosines, kind="stable")[:VECTOR_CANDIDATES]].tolist()
        ids = sorted({*shares, *near})
        yield (
            query,
            build_candidates(
                collection_pages, ids, cosines, shares, frozenset(words.terms), text, kind.exclude.get(query, set())
            ),
        )


def build_candidates(
    collection_pages: CollectionPages,
    ids: list[int],
    cosines: FloatArray,
    shares: dict[int, float],
    terms: Terms,
    text: str,
    excluded: set[str],
) -> PageFeatures:
    of_page = [np.flatnonzero(collection_pages.page_ids == page_id) for page_id in ids]
    # A page without content has no passage.
    ordered = [np.sort(cosines[rows])[::-1] if len(rows) else np.zeros(1) for rows in of_page]
    middles = [collection_pages.vectors[rows].sum(axis=0) for rows in of_page]
    lengths = [max(float(np.linalg.norm(middle)), 1e-6) for middle in middles]
    original = cosines - 0.02 * np.log2(1 + collection_pages.copies)
    phrase = normalize_text(text).strip(" .?!")
    return PageFeatures(
        [collection_pages.pages[page_id].path for page_id in ids],
        to_positive(each[0] for each in ordered),
        np.array([shares.get(page_id, 0.0) for page_id in ids]),
        np.array([compute_dice(terms, collection_pages.names[page_id]) for page_id in ids]),
        np.array([compute_dice(terms, collection_pages.ends[page_id]) for page_id in ids]),
        np.array([score_links(collection_pages.called.get(page_id, []), terms, excluded) for page_id in ids]),
        to_positive(each[:5].mean() for each in ordered),
        to_positive(float(cosines[rows].sum()) / length for rows, length in zip(of_page, lengths, strict=True)),
        to_positive(original[rows].max(initial=0.0) for rows in of_page),
        np.array([float(len(terms) > 1 and phrase in collection_pages.texts.get(page_id, "")) for page_id in ids]),
    )


def to_positive(values: Iterator[float]) -> FloatArray:
    return np.maximum(0.0, np.fromiter(values, np.float64))


def score_links(links: list[tuple[str, Terms]], terms: Terms, excluded: set[str]) -> float:
    usable = (words for page, words in links if page not in excluded and not (excluded and words == terms))
    return max((compute_dice(terms, words) for words in usable), default=0.0)


if __name__ == "__main__":
    main()
