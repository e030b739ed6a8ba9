"""Score features of the candidates of every judged query, in its own collection and in the three others.

Computed from the indexes of bench.quality like in the searcher, and kept in bench/data/calibration.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bench import codes, collections
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.query import KeywordScores
from wikiholt.search.ranking import PAGE_WEIGHT, Candidate, compute_evidence
from wikiholt.search.searcher import KEYWORD_SHARES, VECTOR_CANDIDATES, select_competing
from wikiholt.search.title_match import compute_overlap, make_title_terms
from wikiholt.search.vector_channel import compute_page_means
from wikiholt.text.keyword_query import parse_query, to_plain_query
from wikiholt.wikis.service import WikiService

NAMES = ("cranfield", "scifact", "wiki-dendron", "wiki-k8s-en")
KEPT = 40
"""Number of candidates per mode: enough that some remain without the relevant pages."""


@dataclass(frozen=True)
class JudgedQuery:
    """A query to a wiki, and its candidates without order: one row each, columns as in `IndexSearcher.collect_rows`."""

    wiki: str
    kind: str
    query: str
    terms: int
    rows: FloatArray

    @property
    def foreign(self) -> bool:
        return not self.kind.startswith(self.wiki)

    @cached_property
    def held_out(self) -> bool:
        return bool(blake2b(f"{self.kind}/{self.query}".encode(), digest_size=2).digest()[0] & 1)


RIGHT, MEANING, SHARE, NAMING, HYBRID = range(5)
"""Columns: is it judged relevant; the cosine of its nearest chunk and of the page as a whole on the common scale; share; naming; whether the
page is a candidate of hybrid search (words put forward more pages for keyword search)."""


def load_queries(directory: Path, data: Path, model: str = "") -> list[JudgedQuery]:
    """All queries, from the file if it exists; with the indexes of the default model, or of this one."""
    ending = f"-{model.split('-', maxsplit=1)[0]}" if model else ""
    file = data / "calibration" / f"evidence{ending}.npz"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        service = open_service(data / f"quality{ending}", overrides={"model": model} if model else {})
        _write(file, list(_gather(directory, service)))
    with np.load(file) as kept:
        heads = [str(each).split("\t") for each in kept["heads"]]
        parts = np.split(kept["rows"], kept["ends"][:-1])
    return [
        JudgedQuery(wiki, kind, query, int(terms), rows)
        for (wiki, kind, query, terms), rows in zip(heads, parts, strict=True)
    ]


def _write(file: Path, queries: list[JudgedQuery]) -> None:
    heads = [f"{each.wiki}\t{each.kind}\t{each.query}\t{each.terms}" for each in queries]
    ends = np.cumsum([len(each.rows) for each in queries])
    np.savez(file, heads=np.array(heads), ends=ends, rows=np.concatenate([each.rows for each in queries]))


def _gather(directory: Path, service: WikiService) -> Iterator[JudgedQuery]:
    indexes = {name: service.components.store.open(service.get_handle(name).wiki.id) for name in NAMES}
    held = {name: codes.index_codes(index) for name, index in indexes.items()}
    kinds = [
        kind
        for name in NAMES
        for kind in (*collections.read_queries(directory / name), codes.make_queries(name, held[name]))
    ]
    vectors: dict[str, FloatArray] = {}
    for name, index in indexes.items():
        searcher = IndexSearcher(index, service.components.embedder(), vectors)
        for kind in kinds:
            own = kind.collection == name
            for query, text in kind.texts.items():
                words = parse_query(text)
                if not words or (not own and kind.kind == "codes" and query in held[name]):
                    continue  # such a code is not foreign here
                relevant = set(kind.relevant[query]) if own else set()
                left_out = kind.exclude.get(query, set()) if own else set()
                yield JudgedQuery(
                    name, kind.name, query, len(words.terms), searcher.collect_rows(text, words, relevant, left_out)
                )
            print(name, "was asked", kind.name, flush=True)
        index.close()


class IndexSearcher:
    """One index in memory, for many queries."""

    def __init__(self, index: WikiIndex, embedder: Embedder, vectors: dict[str, FloatArray]) -> None:
        self._index = index
        self._embedder = embedder
        self._known = vectors
        _, listed = index.list_pages(PageFilter(), None)
        self._paths = {page.page_id: page.path for page in listed}
        self._titles = {page.page_id: make_title_terms(page.name, page.path) for page in listed}
        rows = index.get_page_vectors(sorted(self._paths))
        order = np.argsort(rows.page_ids, kind="stable")
        self._chunks_of, self._vectors = rows.page_ids[order], rows.vectors[order]
        self._page_ids, self._begins = np.unique(self._chunks_of, return_index=True)
        self._means = compute_page_means(rows, self._page_ids)
        self._keywords = KeywordScores(
            lambda query: index.search_keywords(query, KEYWORD_SHARES, PageFilter()),
            index.get_max_keyword_score,
            index.find_matching_page_ids,
            len(self._paths),
        )

    def collect_rows(self, text: str, words: KeywordQuery, relevant: set[str], left_out: set[str]) -> FloatArray:
        """Right, cosine, share, naming, and whether hybrid search has the candidate."""
        cosines = self._vectors @ self._embed(text)
        by_page = np.maximum.reduceat(cosines, self._begins)
        by_page = (1 - PAGE_WEIGHT) * by_page + PAGE_WEIGHT * self._means @ self._embed(text)
        # On the common scale of all models, but not cut off at zero.
        scale = self._embedder.scale
        by_page = (by_page - scale.unrelated) / (scale.related - scale.unrelated)
        meaning = dict(zip(self._page_ids.tolist(), by_page.tolist(), strict=True))
        shares = self._keywords.compute_shares(words)
        near = set(self._chunks_of[np.argsort(-cosines, kind="stable")[:VECTOR_CANDIDATES]].tolist())
        hybrid = near | set(select_competing(shares))
        terms = frozenset(words.terms)
        table = np.array(
            [
                (
                    self._paths[page_id] in relevant,
                    meaning.get(page_id, 0.0),
                    shares.get(page_id, 0.0),
                    compute_overlap(terms, self._titles[page_id]),
                    page_id in hybrid,
                )
                for page_id in sorted({*shares, *near})
                if self._paths[page_id] not in left_out
            ]
        )
        return table[sorted(set().union(*(_find_best(mode, table) for mode in SearchMode)))]

    def _embed(self, text: str) -> FloatArray:
        if text not in self._known:
            self._known[text] = self._embedder.embed_query(to_plain_query(text))
        return self._known[text]


def compute_amounts(mode: SearchMode, rows: FloatArray) -> FloatArray:
    """The evidence of each candidate; -1 for a page that is none in this mode."""
    found = []
    for _, cosine, share, naming, hybrid in rows.tolist():
        candidate = Candidate(0, 0, 1.0 - cosine, share, title_overlap=naming)
        possible = {SearchMode.HYBRID: hybrid, SearchMode.KEYWORD: share > 0, SearchMode.SEMANTIC: True}[mode]
        found.append(compute_evidence(mode, candidate) if possible else -1.0)
    return np.array(found)


def _find_best(mode: SearchMode, rows: FloatArray) -> set[int]:
    found = compute_amounts(mode, rows)
    order = np.argsort(-found, kind="stable")[:KEPT]
    return {int(at) for at in order if found[at] >= 0}


if __name__ == "__main__":
    print(len(load_queries(collections.DEFAULT, Path("bench/data"))))
