"""Further signals for hybrid ranking, chosen by the other collections: the figures of docs/adr/0049 and 0038.

    python -m bench.signals [--collections DIR] [--data DIR] [--write]

Uses the indexes of bench.quality (run that first), and keeps the signals of all queries in bench/data/signals, so that a
further trial takes seconds; delete them after a change of an index. The first table has the difference of nDCG@10 to hybrid search before
docs/adr/0049. The second chooses the best of all combinations by the mean of all collections but one, and shows what it gives on
that one. A signal is worth its cost only if it gains there.
"""

import argparse
import math
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import collections
from bench.measures import get_max_keyword_score
from bench.ranking import find_links
from bench.report import describe_machine, write_result
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import FloatArray, compute_page_means
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.search.candidates import KEYWORD_CANDIDATES, VECTOR_CANDIDATES
from wikiholt.search.title_match import compute_dice, compute_overlap, make_title_terms
from wikiholt.text.bm25 import to_terms
from wikiholt.text.keyword_query import get_significant_terms, parse_query, to_plain_query
from wikiholt.wikis.service import WikiService

NAMES = ("cranfield", "scifact", "wiki-dendron", "wiki-k8s-en")
FEEDBACK_PAGES, FEEDBACK_TERMS = 5, 8
LONG_QUERY_WORDS = 8
MANY_TERMS = 6
MANY_LINKS = 20
COMBINATIONS = 250
SENTENCE_PAGES = 5
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True)
class Signals:
    """The candidates of one query, a number each per signal."""

    kind: str
    collection: str
    words: int
    ideal: FloatArray
    grade: FloatArray
    cosine: FloatArray
    share: FloatArray
    name: FloatArray
    heading: FloatArray
    soft_name: FloatArray
    passages: FloatArray
    """The mean of the three nearest passages, on the common scale."""
    feedback: FloatArray
    """The keyword share of terms taken from the best pages (RM3)."""
    terms: int
    second: FloatArray
    """The second nearest passage, on the common scale; of a page with one passage that one."""
    rare_feedback: FloatArray
    """The same as `feedback`, with the rarest terms that two of the best pages share."""
    links: FloatArray
    """The number of links to the page, saturated."""
    coverage: FloatArray
    """The share of the query's terms that the nearest passage and the name contain; rare ones weigh more."""
    rarest: FloatArray
    """Whether the nearest passage or the name contains the rarest term."""
    one_passage: FloatArray
    """The same share as `coverage`, of the passage that contains most."""
    sentence: FloatArray
    """The closest sentence of the nearest passage, by word vectors; 0 for pages far behind."""
    unknown: float
    """The share of the query's terms that no page contains; rare ones weigh more."""
    page: FloatArray
    """The page as a whole: the cosine of the mean of its passages, on the common scale."""


class Weights(NamedTuple):
    """The weights of the signals. The defaults are hybrid search before docs/adr/0049."""

    meaning: float = 0.5
    meaning_long: float = 0.5
    name: float = 0.3
    heading: float = 0.0
    soft_name: float = 0.0
    passages: float = 0.0
    feedback: float = 0.0
    meaning_terms: float = 0.0
    """Weight that moves from words to meaning if the query has many terms."""
    second: float = 0.0
    """Part of the meaning that is the second passage's."""
    rare_feedback: float = 0.0
    links: float = 0.0
    coverage: float = 0.0


CHOICES: dict[str, tuple[float, ...]] = {
    "meaning": (0.45, 0.5, 0.55, 0.6),
    "meaning_long": (0.5, 0.55, 0.6, 0.65),
    "name": (0.2, 0.3, 0.4),
    "heading": (0.0, 0.05, 0.1),
    "soft_name": (0.0, 0.05, 0.1),
    "passages": (0.0, 0.1, 0.2),
    "feedback": (0.0, 0.05, 0.1),
    "meaning_terms": (0.0, 0.05, 0.1),
    "second": (0.0, 0.1, 0.2, 0.3),
    "rare_feedback": (0.0, 0.02, 0.05),
    "links": (0.0, 0.005, 0.01, 0.02),
    "coverage": (0.0, 0.02, 0.05),
}
TRIED = {
    **{f"headings {w}": Weights(heading=w) for w in (0.05, 0.1, 0.2)},
    **{f"meaning {w}": Weights(w, w) for w in (0.45, 0.55, 0.6)},
    **{f"meaning {w} for long questions": Weights(meaning_long=w) for w in (0.55, 0.6, 0.65)},
    **{f"soft names {w}": Weights(soft_name=w) for w in (0.05, 0.1, 0.2)},
    **{f"three passages {w}": Weights(passages=w) for w in (0.1, 0.2)},
    **{f"RM3 {w}": Weights(feedback=w) for w in (0.05, 0.1, 0.2)},
    **{f"names {w}": Weights(name=w) for w in (0.2, 0.4)},
    **{f"meaning +{w} from six terms on": Weights(meaning_terms=w) for w in (0.05, 0.1, 0.15)},
    **{f"second passage {w} of the meaning": Weights(second=w) for w in (0.1, 0.2, 0.3, 0.4)},
    **{f"RM3, rarest terms {w}": Weights(rare_feedback=w) for w in (0.02, 0.05, 0.1)},
    **{f"links {w}": Weights(links=w) for w in (0.005, 0.01, 0.02)},
    **{f"terms in the passage {w}": Weights(coverage=w) for w in (0.02, 0.05, 0.1)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--write", action="store_true", help="write bench/results/signals.md")
    arguments = parser.parse_args()
    queries = [each for name in NAMES for each in read_signals(name, arguments.collections, arguments.data)]
    text = "\n".join([*format_single(queries), "", *format_held_out(queries)])
    print(text)
    if arguments.write:
        write_result("signals", f"{__doc__}\n{describe_machine()} {len(queries)} queries.\n\n{text}\n")


def open_indexes(data: Path, model: str, settings: Mapping[str, str] | None = None) -> WikiService:
    """The indexes of bench.quality with this model; empty means the default one."""
    ending = f"-{model.split('-', maxsplit=1)[0]}" if model else ""
    overrides = {**(settings or {}), **({"model": model} if model else {})}
    return open_service(data / f"quality{ending}", overrides=overrides)


def read_signals(name: str, directory: Path, data: Path, model: str = "") -> list[Signals]:
    """The signals of a collection's queries, from its file if there is one."""
    file = data / "signals" / f"{name}{model}.pickle"
    if not file.exists():
        service = open_indexes(data, model)
        index = service.components.store.open(service.get_handle(name).wiki.id)
        found = list(IndexSignals(index, service.components.embedder()).read_all(directory / name))  # type: ignore[arg-type]
        service.close()
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(pickle.dumps([vars(each) for each in found]))
        print(name, len(found), flush=True)
    return [Signals(**fields) for fields in pickle.loads(file.read_bytes())]


class IndexSignals:
    """Computes the signals of queries to one index."""

    def __init__(self, index: WikiIndex, embedder: OnnxEmbedder) -> None:
        self._index, self._embedder = index, embedder
        _, listed = index.list_pages(PageFilter(), None)
        self._pages = {page.page_id: page for page in listed}
        rows = index.get_page_vectors(sorted(self._pages))
        order = np.argsort(rows.page_ids, kind="stable")
        self._page_ids, self._chunk_ids, self._vectors = (
            rows.page_ids[order],
            rows.chunk_ids[order],
            rows.vectors[order],
        )
        self._means = dict(
            zip(sorted(self._pages), compute_page_means(rows, np.array(sorted(self._pages))), strict=True)
        )
        ids, starts = np.unique(self._page_ids, return_index=True)
        ends = [*starts[1:].tolist(), len(self._page_ids)]
        self._rows = {page: slice(a, b) for page, a, b in zip(ids.tolist(), starts.tolist(), ends, strict=True)}
        chunks = index.get_page_chunks(sorted(self._pages))
        self._texts = {chunk.chunk_id: chunk.text for each in chunks.values() for chunk in each}
        self._terms = {chunk.chunk_id: Counter(to_terms(chunk.text)) for each in chunks.values() for chunk in each}
        texts = {page: [heading for c in each for heading in c.heading_path] for page, each in chunks.items()}
        for page, each in chunks.items():
            texts[page] += [found for c in each for found in re.findall(r"^#{1,6} +(.+?)[ #]*$", c.text, re.MULTILINE)]
        self._headings = {page: [get_significant_terms(text) for text in set(each)] for page, each in texts.items()}
        self._names = {page_id: get_significant_terms(page.name) for page_id, page in self._pages.items()}
        self._titles = {page.page_id: make_title_terms(page.name, page.path) for page in listed}
        by_page = [set().union(*(self._terms[c.chunk_id] for c in each)) for each in chunks.values()]
        self._counts = Counter(term for terms in by_page for term in terms)
        self._links = find_links(index, self._pages)

    def read_all(self, directory: Path) -> Iterator[Signals]:
        for kind in collections.read_queries(directory):
            yield from self.read_kind(kind)

    def read_kind(self, kind: collections.Queries) -> Iterator[Signals]:
        for query, text in kind.texts.items():
            if parse_query(text):
                yield self._read(kind, query, text)

    def _read(self, kind: collections.Queries, query: str, text: str) -> Signals:
        words, plain = parse_query(text), to_plain_query(text)
        vector = self._embedder.embed_query(plain)
        cosines = self._vectors @ vector
        best = get_max_keyword_score(self._index, words) or 1.0
        hits = self._index.search_keywords(words, KEYWORD_CANDIDATES, PageFilter())
        shares = {hit.page_id: min(1.0, hit.score / best) for hit in hits}
        near = self._page_ids[np.argsort(-cosines, kind="stable")[:VECTOR_CANDIDATES]].tolist()
        left_out, relevant, terms = kind.exclude.get(query, set()), kind.relevant[query], frozenset(words.terms)
        pages = sorted(page for page in {*near, *shares} if self._pages[page].path not in left_out)
        nearest = [np.sort(cosines[self._rows[page]])[::-1] if page in self._rows else np.zeros(1) for page in pages]
        scale = self._embedder.scale
        scorer = self._embedder.make_sentence_scorer(plain)
        soft = scorer([self._pages[page].name for page in pages]) if scorer else [0.0] * len(pages)
        share = np.array([shares.get(page, 0.0) for page in pages])
        cosine = np.array([values[0] for values in nearest])
        order = np.argsort(-(cosine + share))[:FEEDBACK_PAGES]
        feedback, rare = (
            self._find_feedback([pages[i] for i in order], terms, cosines, shared) for shared in (False, True)
        )
        means = np.array([self._means[page] for page in pages])
        links = [sum(page not in left_out for page, _ in self._links.get(each, ())) for each in pages]
        return Signals(
            kind.name,
            kind.collection,
            len(text.split()),
            np.array(sorted(relevant.values(), reverse=True)[:10], np.float32),
            np.array([relevant.get(self._pages[page].path, 0) for page in pages], np.float32),
            np.maximum(0, (cosine - scale.unrelated) / (scale.related - scale.unrelated)),
            share,
            np.array([compute_overlap(terms, self._titles[page]) for page in pages]),
            np.array(
                [max((compute_dice(terms, h) for h in self._headings.get(page, ())), default=0.0) for page in pages]
            ),
            np.array(soft),
            np.array([(v[:3].mean() - scale.unrelated) / (scale.related - scale.unrelated) for v in nearest]),
            np.array([feedback.get(page, 0.0) for page in pages]),
            len(terms),
            np.array([(v[:2][-1] - scale.unrelated) / (scale.related - scale.unrelated) for v in nearest]),
            np.array([rare.get(page, 0.0) for page in pages]),
            np.minimum(1, np.log1p(links) / math.log(MANY_LINKS)),
            *np.array([self._cover(page, terms, cosines) for page in pages]).reshape(-1, 3).T,
            self._score_sentences(
                pages, cosines, scorer, cosine + share, [self._pages[p].path in relevant for p in pages]
            ),
            self._find_unknown_share(terms),
            np.maximum(0, (means @ vector - scale.unrelated) / (scale.related - scale.unrelated)),
        )

    def _get_nearest_terms(self, page: int, cosines: FloatArray) -> Counter[str]:
        rows = self._rows.get(page)
        return self._terms[int(self._chunk_ids[rows][int(np.argmax(cosines[rows]))])] if rows else Counter()

    def _weigh(self, terms: frozenset[str]) -> dict[str, float]:
        return {term: math.log((len(self._pages) + 1) / (self._counts[term] + 1)) for term in sorted(terms)}

    def _cover(self, page: int, terms: frozenset[str], cosines: FloatArray) -> tuple[float, bool, float]:
        """The share of the terms in the page's nearest passage and name, whether the rarest is among them, and the
        highest share of any passage."""
        weights = self._weigh(terms)
        total = sum(weights.values()) or 1.0
        contained = self._get_nearest_terms(page, cosines).keys() | self._names[page]
        chunks = self._chunk_ids[self._rows[page]].tolist() if page in self._rows else []
        passages = [contained, *(self._terms[chunk].keys() | self._names[page] for chunk in chunks)]
        share, *shares = (sum(weights[term] for term in weights.keys() & passage) / total for passage in passages)
        rarest = bool(weights) and max(weights, key=lambda term: weights[term]) in contained
        return share, rarest, max(share, *shares, 0.0)

    def _find_unknown_share(self, terms: frozenset[str]) -> float:
        weights = self._weigh(terms)
        return sum(w for term, w in weights.items() if not self._counts[term]) / (sum(weights.values()) or 1.0)

    def _score_sentences(
        self,
        pages: Sequence[int],
        cosines: FloatArray,
        scorer: Callable[[Sequence[str]], Sequence[float]] | None,
        evidence: FloatArray,
        relevant: Sequence[bool],
    ) -> FloatArray:
        """The score of the closest sentence of the best pages, and of the best without the relevant ones."""
        found = np.zeros(len(pages))
        order = np.argsort(-evidence).tolist()
        best = {*order[:SENTENCE_PAGES], *[at for at in order if not relevant[at]][:SENTENCE_PAGES]}
        for at in best if scorer else ():
            if rows := self._rows.get(pages[at]):
                text = self._texts[int(self._chunk_ids[rows][int(np.argmax(cosines[rows]))])]
                found[at] = max(scorer(SENTENCE_END.split(text)))  # type: ignore[misc]
        return found

    def _find_feedback(
        self, pages: Sequence[int], terms: frozenset[str], cosines: FloatArray, shared: bool
    ) -> dict[int, float]:
        """Page id → share of the best score of the terms that are frequent in the best passages and rare elsewhere,
        or of the rarest that two of them share."""
        weights: Counter[str] = Counter()
        count = len(self._pages)
        passages = [self._get_nearest_terms(page, cosines) for page in pages]
        for found in passages:
            for term, times in found.items():
                if len(term) > 2 and term not in terms and 0 < self._counts[term] < count / 10:
                    weights[term] += times / found.total() * math.log(count / self._counts[term])  # type: ignore[assignment]
        if shared:
            often = [term for term in weights if sum(term in found for found in passages) > 1]
            weights = Counter({term: count - self._counts[term] for term in often})
        query = KeywordQuery(tuple(term for term, _ in weights.most_common(FEEDBACK_TERMS)))
        best = get_max_keyword_score(self._index, query) if query else 0.0
        return (
            {h.page_id: h.score / best for h in self._index.search_keywords(query, 100, PageFilter())} if best else {}
        )


def measure(weights: Weights, queries: Sequence[Signals]) -> dict[str, float]:
    """The mean nDCG@10 of each kind of queries."""
    found: dict[str, list[float]] = {}
    for each in queries:
        part = weights.meaning if each.words < LONG_QUERY_WORDS else weights.meaning_long
        names = weights.name * each.name + weights.heading * each.heading + weights.soft_name * each.soft_name
        part += weights.meaning_terms * (each.terms >= MANY_TERMS)
        meaning = np.maximum(0, (1 - weights.second) * each.cosine + weights.second * each.second)
        score = part * meaning + (1 - part) * each.share + names * each.cosine
        score = score + weights.passages * each.passages + weights.feedback * each.feedback
        score = score + weights.rare_feedback * each.rare_feedback + weights.links * each.links
        score = score + weights.coverage * each.coverage
        grades = each.grade[np.lexsort((-each.cosine, -score))[:10]]
        discounts = 1 / np.log2(np.arange(2, 12))
        gain, ideal = (float((g * discounts[: len(g)]).sum()) for g in (grades, each.ideal))
        found.setdefault(each.kind, []).append(gain / ideal if ideal else 0.0)
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def format_single(queries: Sequence[Signals]) -> Iterator[str]:
    today = measure(Weights(), queries)
    yield f"| signal | {' | '.join(today)} | mean |"
    yield "|" + "---|" * (len(today) + 2)
    yield f"| hybrid search | {' | '.join(f'{v:.4f}' for v in today.values())} | {np.mean([*today.values()]):.4f} |"
    for name, weights in TRIED.items():
        gains = [value - today[kind] for kind, value in measure(weights, queries).items()]
        yield f"| {name} | {' | '.join(f'{gain:+.4f}' for gain in gains)} | {np.mean(gains):+.4f} |"


def format_held_out(queries: Sequence[Signals]) -> Iterator[str]:
    random_choice, today = random.Random(3), Weights()
    tried = [
        today._replace(
            **{name: random_choice.choice(values) for name, values in CHOICES.items() if random_choice.random() < 0.4}
        )
        for _ in range(COMBINATIONS)
    ]
    results = [measure(weights, queries) for weights in (today, *tried)]
    home = {each.kind: each.collection for each in queries}
    yield "| left out | chosen by the others | gain seen | gain on the one left out |"
    yield "|---|---|---|---|"
    for name in NAMES:
        seen, unseen = [k for k in home if home[k] != name], [k for k in home if home[k] == name]
        best = max(range(len(results)), key=lambda i: np.mean([results[i][k] for k in seen]))
        gains = [np.mean([results[best][k] - results[0][k] for k in kinds]) for kinds in (seen, unseen)]
        chosen = (today, *tried)[best]
        changes = [f"{f} {new}" for f, old, new in zip(Weights._fields, today, chosen, strict=True) if old != new]
        yield f"| {name} | {', '.join(changes) or 'as it is'} | {gains[0]:+.4f} | {gains[1]:+.4f} |"


if __name__ == "__main__":
    main()
