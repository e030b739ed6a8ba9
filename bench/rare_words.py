"""A word that is on one page only: how often that page is the first hit of hybrid search, by the length of the page.

    python -m bench.rare_words [--collections DIR] [--data DIR] [--only NAME …] [--write]

Uses the indexes of bench.quality (run that first). The words are mined from the pages: *codes* (bench/codes.py), *words*
that are no single token of the model (names, terms of a field), and *ordinary words* that are one. No other page has all
terms of such a word. Each is asked alone, and with one or two common words of the same page. Pages are *short*, *medium*
or *long*: below the average length of their wiki, up to three times of it, or above.

The last tables are trials of other keyword shares with the same candidates, which are kept in bench/data/rare_words:
nDCG@10 of the judged queries, and the rare words without ordinary ones. Figures of docs/adr/0046.
"""

import argparse
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from bench import codes, collections
from bench.pages import NOW, JudgedCandidates, RankingTrial, SignalReader, load_candidates
from bench.regression import format_share
from bench.report import make_head, make_parser, publish
from bench.signals import open_indexes
from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, PageFilter, SearchMode, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.query import MIN_ONLY_TERM_WEIGHT
from wikiholt.search.request import SearchRequest
from wikiholt.search.searcher import KEYWORD_CANDIDATES, KEYWORD_SHARES
from wikiholt.text.bm25 import K1, B, compute_idf, count_weighted_terms, split_terms, to_terms
from wikiholt.text.keyword_query import get_stop_terms
from wikiholt.wikis.service import WikiService

KINDS = ("codes", "words", "ordinary words")
LENGTHS = ("short", "medium", "long")
MODES = (SearchMode.HYBRID, SearchMode.KEYWORD)
MAX_WORDS = 60
"""Words of each kind and page length in a collection."""
_WORD = re.compile(r"(?<![\w/.-])[A-Za-z]{4,20}(?![\w/.-])")


@dataclass(frozen=True)
class RareQuery:
    """A query with a word that one page has."""

    collection: str
    kind: str
    length: str
    common_words: int
    text: str
    path: str


class WordMiner:
    """Finds the words of one index that are on one page only."""

    def __init__(self, name: str, index: WikiIndex, embedder: Embedder) -> None:
        self._name, self._embedder = name, embedder
        _, listed = index.list_pages(PageFilter(), None)
        self._paths = {page.page_id: page.path for page in listed}
        chunks = index.get_page_chunks(sorted(self._paths))
        self._texts = {page_id: "\n".join(chunk.text for chunk in of) for page_id, of in chunks.items()}
        self._pages: defaultdict[str, set[int]] = defaultdict(set)
        self._lengths: dict[int, int] = {}
        with index.open_keyword_rows() as (_, rows):
            for row in rows:
                terms = [term for field in row.terms.fields for term in split_terms(field)]
                self._lengths[row.page_id] = len(terms)
                for term in set(terms):
                    self._pages[term].add(row.page_id)
        self._average = sum(self._lengths.values()) / len(self._lengths)

    def find(self) -> Iterator[RareQuery]:
        """The queries, in an order that depends on nothing but the words."""
        counts = Counter[tuple[str, str]]()
        for word, page_id in sorted(self._find_words().items(), key=lambda item: _shuffle(item[0])):
            kind, length = self._get_kind(word), self._get_length(page_id)
            if counts[kind, length] < MAX_WORDS and (common := self._choose_common(word, page_id)):
                counts[kind, length] += 1
                for count in range(3):
                    text = " ".join([word, *common[:count]])
                    yield RareQuery(self._name, kind, length, count, text, self._paths[page_id])

    def _find_words(self) -> dict[str, int]:
        found = {}
        for page_id, text in self._texts.items():
            for word in {*_WORD.findall(text), *codes.find_codes(text)}:
                terms = to_terms(word)
                if terms and set.intersection(*(self._pages[term] for term in terms)) == {page_id}:
                    found[word] = page_id
        return found

    def _get_kind(self, word: str) -> str:
        if not _WORD.fullmatch(word) or codes.find_codes(word):
            return "codes"
        return "ordinary words" if self._embedder.is_known_word(word.lower()) else "words"

    def _get_length(self, page_id: int) -> str:
        relative = self._lengths[page_id] / self._average
        return LENGTHS[(relative >= 1) + (relative >= 3)]

    def _choose_common(self, word: str, page_id: int) -> Sequence[str]:
        """Two words of the page that one in fifty to one in three pages have; empty if it has no two."""
        least, most = max(5, len(self._paths) / 50), len(self._paths) / 3
        own, found = set(to_terms(word)), dict[str, str]()
        for other in sorted(set(_WORD.findall(self._texts[page_id])), key=lambda each: _shuffle(word + each)):
            terms = to_terms(other)
            is_common = len(terms) == 1 and other.islower() and least <= len(self._pages[terms[0]]) <= most
            if is_common and terms[0] not in own | get_stop_terms("english"):
                found.setdefault(terms[0], other)
                if len(found) == 2:
                    return list(found.values())
        return ()


def _shuffle(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def measure(service: WikiService, name: str) -> list[tuple[RareQuery, dict[SearchMode, bool]]]:
    """Each query of a collection, and whether the only page is the first hit in each mode."""
    wiki, found = service.get_handle(name), []
    for query in find_queries(service, name):
        firsts = {mode: wiki.search(SearchRequest(query.text, 1, mode)).hits[:1] for mode in MODES}
        found.append((query, {mode: [hit.path for hit in hits] == [query.path] for mode, hits in firsts.items()}))
    print(name, len(found), flush=True)
    return found


def find_queries(service: WikiService, name: str) -> list[RareQuery]:
    index = service.components.store.open(service.get_handle(name).wiki.id)
    queries = list(WordMiner(name, index, service.components.embedder()).find())
    index.close()
    return queries


def format_product(found: Sequence[tuple[RareQuery, dict[SearchMode, bool]]]) -> Iterator[str]:
    for mode in MODES:
        rows = [(query, firsts[mode]) for query, firsts in found]
        yield f"The only page is the first hit of {mode} search:\n"
        yield make_head(f"| | queries | {' | '.join(f'{length} pages' for length in LENGTHS)} | all |")
        for kind, count in itertools.product(KINDS, range(3)):
            label = f"{kind}, {('alone', 'with a common word', 'with two')[count]}"
            yield format_row(label, [row for row in rows if (row[0].kind, row[0].common_words) == (kind, count)])
        for name in dict.fromkeys(query.collection for query, _ in rows):
            yield format_row(name, [row for row in rows if row[0].collection == name])
        yield format_row("**all**", rows) + "\n"


def format_row(label: str, rows: Sequence[tuple[RareQuery, bool]]) -> str:
    parts = [[first for query, first in rows if query.length == length] for length in LENGTHS]
    cells = (format_share(np.array(part)) for part in (*parts, [first for _, first in rows]))
    return f"| {label} | {len(rows)} | {' | '.join(cells)} |"


# Trials of other keyword shares, offline.


class TermSignalReader(SignalReader):
    """The keyword share before docs/adr/0046, and parts of others."""

    names = ("nearest", "page", "share", "title", "deep", "only", "short", "few", "coverage", "b0", "b50", "b75")

    def __init__(self, index: WikiIndex, embedder: Embedder) -> None:
        super().__init__(index, embedder)
        self._words = KeywordQuery()
        self._counts: dict[int, dict[str, float]] = {}
        self._lengths: dict[int, float] = {}
        with index.open_keyword_rows() as (_, rows):
            for row in rows:
                self._counts[row.page_id], self._lengths[row.page_id] = count_weighted_terms(row.terms)
        self._pages_with = Counter(term for counts in self._counts.values() for term in counts)
        average = sum(self._lengths.values()) / len(self._lengths)
        self._lengths = {page_id: length / average for page_id, length in self._lengths.items()}

    def score_keywords(self, words: KeywordQuery) -> dict[int, float]:
        """The former shares, of 50 pages; and the only page of each term, so that it competes."""
        self._words = words
        found = self._search(words, KEYWORD_CANDIDATES)
        rare = {term for term in words.terms if self._pages_with[term] == 1}
        only = (page_id for page_id, counts in self._counts.items() if not rare.isdisjoint(counts))
        return dict.fromkeys(only, 0.0) | found if rare else found

    def _search(self, words: KeywordQuery, depth: int) -> dict[int, float]:
        best = self._index.get_max_keyword_score(words) or 1.0
        hits = self._index.search_keywords(words, depth, PageFilter())
        return {hit.page_id: min(1.0, hit.score / best) for hit in hits}

    def score_titles(self, terms: frozenset[str], pages: Sequence[StoredPage]) -> dict[str, FloatArray]:
        known = self._words.terms
        deep = self._search(self._words, KEYWORD_SHARES)
        matching = np.array([self._pages_with[term] for term in known])
        idf = np.array([compute_idf(len(self._counts), count) for count in matching])
        weights = idf / idf.sum()
        counts = np.array([[self._counts[page.page_id].get(term, 0.0) for term in known] for page in pages])
        lengths = np.array([self._lengths[page.page_id] for page in pages])[:, None]
        parts = {b: counts / (counts + K1 * (1 - b + b * lengths)) for b in (0.0, 0.5, B)}
        missing = (counts > 0) * (1 - parts[B])
        return super().score_titles(terms, pages) | {
            "deep": np.array([deep.get(page.page_id, 0.0) for page in pages]),
            "only": missing @ (weights * (matching == 1)),
            "short": missing @ (weights * (matching == 1) * (weights >= MIN_ONLY_TERM_WEIGHT)),
            "few": missing @ (weights * (matching <= 3) / np.maximum(matching, 1)),
            "coverage": (counts > 0) @ weights,
            **{f"b{b * 100:.0f}": part @ weights for b, part in parts.items()},
        }

    def score_vectors(
        self, pages: Sequence[int], vector: FloatArray, cosines: FloatArray, scale: CosineScale
    ) -> dict[str, FloatArray]:
        return self.score_pages(pages, vector, cosines, scale)


Signals = dict[str, FloatArray]
TRIALS: dict[str, Callable[[Signals], FloatArray]] = {
    "formerly: the share of the 50 best pages": lambda each: each["share"],
    "only: a term that one page has counts in full": lambda each: each["share"] + each["only"],
    "few: … and half or a third on two or three pages": lambda each: each["share"] + each["few"],
    "short: only, if it is a quarter of the query": lambda each: each["share"] + each["short"],
    "deep: the shares of 200 pages": lambda each: each["deep"],
    "deep and only": lambda each: each["deep"] + each["only"],
    "**deep and short**": lambda each: each["deep"] + each["short"],
    "deep and few": lambda each: each["deep"] + each["few"],
    "coverage .1": lambda each: 0.9 * each["deep"] + 0.1 * each["coverage"],
    "coverage .3": lambda each: 0.7 * each["deep"] + 0.3 * each["coverage"],
    "at least half of the coverage": lambda each: np.maximum(each["deep"], 0.5 * each["coverage"]),
    "shares of all candidates, no unfinished word": lambda each: each["b75"],
    "… b = .5": lambda each: each["b50"],
    "… b = 0": lambda each: each["b0"],
}
CHOICES = list(TRIALS)[:8]
"""Those among which a choice by the other collections is made."""


def read_trials(service: WikiService, name: str, arguments: argparse.Namespace) -> list[JudgedCandidates]:
    """The candidates of a collection's judged queries and of those with a rare word."""

    def read() -> Iterator[JudgedCandidates | None]:
        rare = find_queries(service, name)
        by_length = ([each for each in rare if each.length == length] for length in LENGTHS)
        kinds = collections.read_queries(arguments.collections / name)
        kinds += [_to_queries(name, length, each) for length, each in zip(LENGTHS, by_length, strict=True)]
        with closing(service.components.store.open(service.get_handle(name).wiki.id)) as index:
            yield from TermSignalReader(index, service.components.embedder()).read_all(kinds)

    return load_candidates(arguments.data / "rare_words" / f"{name}.pickle", read)


def _to_queries(name: str, length: str, rare: Sequence[RareQuery]) -> collections.Queries:
    texts = {each.text: each.text for each in rare if each.kind != "ordinary words"}
    return collections.Queries(name, f"rare, {length}", texts, {each.text: {each.path: 1} for each in rare}, {})


def format_trials(judged: RankingTrial, rare: RankingTrial) -> Iterator[str]:
    """nDCG@10 of judged queries, and how often the only page is first, with each share."""
    values = {label: _measure(judged, share) for label, share in TRIALS.items()}
    former = judged.compute_means(values[CHOICES[0]])
    yield make_head(f"| share | {' | '.join(judged.kinds)} | mean | codes and words: {', '.join(LENGTHS)} pages |")
    for label, share in TRIALS.items():
        means = judged.compute_means(values[label]) - (0 if label == CHOICES[0] else former)
        sign = "" if label == CHOICES[0] else "+"
        firsts = _measure(rare, share) > 1 - 1e-6
        by_length = [np.char.endswith(np.array(rare.kinds)[rare.kind_of], f"{length})") for length in LENGTHS]
        shares = ", ".join(format_share(firsts[part]) for part in by_length)
        yield f"| {label} | {' | '.join(f'{mean:{sign}.4f}' for mean in (*means, means.mean()))} | {shares} |"
    yield ""
    yield make_head("| left out | chosen by the others | gain seen | gain on the one left out |")
    gains = np.stack([judged.compute_means(values[label] - values[CHOICES[0]]) for label in CHOICES])
    unseen_gains = np.zeros(len(judged.kinds))
    for name in dict.fromkeys(judged.groups.tolist()):
        unseen = judged.groups == name
        best = int(np.argmax(gains[:, ~unseen].mean(axis=1)))
        unseen_gains[unseen] = gains[best, unseen]
        label = CHOICES[best].partition(":")[0]
        yield f"| {name} | {label} | {gains[best, ~unseen].mean():+.4f} | {gains[best, unseen].mean():+.4f} |"
    yield f"| **mean of the sets** | | | **{unseen_gains.mean():+.4f}** |"


def _measure(trial: RankingTrial, share: Callable[[Signals], FloatArray]) -> FloatArray:
    _, keywords, title = NOW
    meaning = np.maximum(0, trial.compute_meaning(NOW[0]))
    words = np.minimum(1, share(trial.signals))
    return trial.measure((1 - keywords) * meaning + keywords * words + title * trial.signals["title"] * meaning)


def main() -> None:
    parser = make_parser(__doc__, "rare_words", "collections", "data")
    parser.add_argument("--only", nargs="*", default=collections.SHARED_NAMES)
    arguments = parser.parse_args()
    service = open_indexes(arguments.data, "")
    candidates = [each for name in arguments.only for each in read_trials(service, name, arguments)]
    is_rare = ["(rare, " in each.kind for each in candidates]
    rare, judged = (
        RankingTrial(
            [each for each, yes in zip(candidates, is_rare, strict=True) if yes is wanted], TermSignalReader.names
        )
        for wanted in (True, False)
    )
    found = [each for name in arguments.only for each in measure(service, name)]
    service.close()
    text = "\n".join([*format_product(found), *format_trials(judged, rare)])
    publish("rare_words", __doc__, text, write=arguments.write)


if __name__ == "__main__":
    main()
