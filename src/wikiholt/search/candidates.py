"""Finds the pages that compete in a search: by their words, by their own name, and by meaning."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.search import KeywordHit, KeywordQuery, SearchMode
from wikiholt.search.index_reader import IndexReader, KeywordScores
from wikiholt.search.query import Query
from wikiholt.search.ranking import Candidates, TitleMatch, make_candidates, select_first, with_page_evidence
from wikiholt.search.request import MAX_HITS, MAX_OFFSET
from wikiholt.search.title_match import score_titles
from wikiholt.text.bm25 import RELATED_TERM_WEIGHTS, compute_max_score, make_name_term

KEYWORD_CANDIDATES, VECTOR_CANDIDATES = 50, 100
"""Pages from keyword search, and chunks from vector search, that compete in a search.

Fixed, so that a larger n only lengthens the list. Pages found by keyword are also measured by meaning, so the vector
search need not be deep. See docs/adr for the results of other depths.
"""

KEYWORD_SHARES = 200
"""Pages from keyword search whose shares are known, so that pages found by meaning are also judged by their words."""

LIKELY_PAGES = 10
"""The nearest pages, of which all passages are compared if they are shown: the codes of a cache may miss one."""

LEAD_PASSAGES, PASSAGES_PER_PAGE = 5, 3
"""Passages of a page, nearest first, among which the one to show is chosen: more for the first hit, whose snippet has
the answer more often."""

MAX_ADDED_PAGES = 50
"""Pages of the same name that are found by it alone. More, such as those of a hundred `index` files, need evidence."""

MIN_ONLY_TERM_WEIGHT = 0.25
"""The part of a query that a term, or two terms in a row, must be to count in full on the only page that has them:
about one word of four.

In a long question, a word that one page has by chance would make that page too likely. See docs/adr/0049.
"""


# The pages that a search may return.


def find_allowed(reader: IndexReader, query: Query) -> IntArray | None:
    """The pages that pass the filter, contain the phrases and do not contain the exclusions; None for all."""
    has_phrases = query.request.mode is not SearchMode.SEMANTIC
    wanted = (
        KeywordQuery(phrases=words.phrases if has_phrases else (), excluded=words.excluded) for words in query.all_words
    )
    # A page has to satisfy at least one of them. A phrase that is a synonym of a word need not occur.
    requirements = list(dict.fromkeys(wanted))
    allowed = reader.view.filter_page_ids(query.request.where)
    if not all(each.phrases or each.excluded for each in requirements):
        return allowed
    matching = reduce(np.union1d, map(reader.find_page_ids, requirements))
    return matching if allowed is None else np.intersect1d(allowed, matching, assume_unique=True)


def count_excluded(reader: IndexReader, query: Query) -> int:
    """The number of pages that only the exclusions of the query leave out."""
    if not query.words.excluded:
        return 0
    found = (reader.find_page_ids(KeywordQuery(phrases=(phrase,))) for phrase in query.words.excluded)
    left_out = reduce(np.union1d, found)
    others = find_allowed(reader, query.without_exclusions())
    return len(left_out if others is None else np.intersect1d(left_out, others, assume_unique=True))


# By words.


@dataclass(frozen=True, slots=True)
class WordMatches:
    """What a search has found before the vector of its query is known."""

    shares: Mapping[int, float]
    """Page id → share of the best possible keyword score, named pages first and then the best."""
    named: frozenset[int] = frozenset()
    """The ids of the pages whose own name is the query."""
    titles: Mapping[int, TitleMatch] | None = None
    """How the titles of the pages match that compete because of their words alone; None in semantic search."""
    passages: VectorRows | None = None
    """Their passages with vectors, if reading them ahead saves time."""

    @property
    def competing(self) -> list[int]:
        """The ids of the pages that compete because of their words alone."""
        return list(islice(self.shares, KEYWORD_CANDIDATES))


def find_by_words(reader: IndexReader, query: Query) -> WordMatches:
    """Find pages by their words and their own name. Semantic search finds only the latter."""
    mode = query.request.mode
    depth = MAX_HITS if mode is SearchMode.KEYWORD else KEYWORD_SHARES
    has_words = mode is not SearchMode.SEMANTIC and bool(query.words)
    shares = find_shares(reader, query, depth) if has_words else {}
    named = find_named_pages(reader, query)
    if named:
        first = {page_id: share for page_id, share in shares.items() if page_id in named}
        added = sorted(named - shares.keys())[:MAX_ADDED_PAGES]
        shares = first | dict.fromkeys(added, 0.0) | shares
    found = WordMatches(shares, named)
    if mode is SearchMode.SEMANTIC:
        return found
    competing = found.competing
    passages = reader.read_ahead(competing) if mode is SearchMode.HYBRID and competing else None
    return replace(found, titles=_score_titles(reader, query, competing), passages=passages)


def find_shares(reader: IndexReader, query: Query, depth: int) -> dict[int, float]:
    """Page id → share of the best possible keyword score, of the best `depth` pages by each variant. Best first."""
    return reader.use_keyword_scores(
        lambda scores: compute_shares(scores, query), depth, query.request.where, query.allowed
    )


def compute_shares(scores: KeywordScores, query: Query) -> dict[int, float]:
    """Page id → share of the best possible keyword score, by the variant that fits the page best. Best first."""
    parts = [part for words in query.all_words for part in list_parts(words)]
    counts = scores.count_pages(list(dict.fromkeys([*query.identifiers, *parts])))
    max_scores = {part: compute_max_score(scores.page_count, count) for part, count in counts.items()}
    shares: dict[int, float] = {}
    for variant in query.all_words:
        for page_id, share in _compute_variant_shares(scores, max_scores, variant, query.identifiers).items():
            shares[page_id] = max(shares.get(page_id, 0.0), share)
    best = _sum_max_scores(max_scores, query.words)
    for terms, weight in zip(query.related_terms, RELATED_TERM_WEIGHTS, strict=True):
        for hit in scores.search(KeywordQuery(terms, excluded=query.words.excluded)) if terms and best else ():
            shares[hit.page_id] = min(1.0, shares.get(hit.page_id, 0.0) + weight * hit.score / best)
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def list_parts(query: KeywordQuery) -> list[str]:
    """The terms and phrases whose scores are added for a page, as `WikiIndex.count_pages` takes them."""
    return [*query.terms, *map(" ".join, query.phrases)]


def _sum_max_scores(max_scores: Mapping[str, float], query: KeywordQuery) -> float:
    """The most that a page can score: with every part of the query, word for word."""
    return sum(max_scores[part] for part in list_parts(query))


def _compute_variant_shares(
    scores: KeywordScores, max_scores: Mapping[str, float], query: KeywordQuery, identifiers: Sequence[str]
) -> dict[int, float]:
    """Page id → share of the best possible score.

    In a short query a term that no other page has counts in full. Otherwise it would count little on a long page,
    and pages without it would be ranked higher. In a longer query two such terms count if they are next to each
    other, in the query and on the page.
    """
    # The store treats the last term as possibly unfinished.
    terms = (*identifiers, *query.terms)
    found = {hit.page_id: hit.score for hit in scores.search(replace(query, terms=terms))}
    if not found:
        return {}
    best = _sum_max_scores(max_scores, query)
    for hit, max_score in _find_only_pages(scores, max_scores, query, terms, best):
        if hit.page_id in found or not query.phrases:
            found[hit.page_id] = found.get(hit.page_id, hit.score) + max_score - hit.score
    return {page_id: min(1.0, score / best) if best else 1.0 for page_id, score in found.items()}


def _find_only_pages(
    scores: KeywordScores, max_scores: Mapping[str, float], query: KeywordQuery, terms: Sequence[str], best: float
) -> Iterator[tuple[KeywordHit, float]]:
    """For each term of enough weight that one page has: its score on that page, and the most it could be."""
    max_score, min_score = compute_max_score(scores.page_count, 1), MIN_ONLY_TERM_WEIGHT * best
    if 2 * max_score < min_score:
        return
    unique = [term for term in terms if math.isclose(max_scores[term], max_score)]
    if max_score < min_score:
        pairs = [pair for pair in pairwise(query.terms) if set(pair) <= set(unique)]
        on_one_page = [pair for pair in pairs if len(scores.find_page_ids(KeywordQuery(phrases=(pair,)))) == 1]
        unique = list(dict.fromkeys(chain.from_iterable(on_one_page)))
    for term in unique:
        hits = scores.search(KeywordQuery((term,), excluded=query.excluded))
        # In an index of one or two pages the maximum does not depend on the number of pages with the term.
        if len(hits) == 1:
            yield hits[0], max_score


def find_named_pages(reader: IndexReader, query: Query) -> frozenset[int]:
    """The ids of the pages whose name is the query, as typed or as interpreted, among those that may be found."""
    texts = dict.fromkeys((query.request.query, query.text))
    terms = dict.fromkeys(filter(None, map(make_name_term, texts)))
    if not terms:
        return frozenset()
    found = reduce(np.union1d, (reader.find_page_ids(KeywordQuery(phrases=((term,),))) for term in terms))
    if query.allowed is not None:
        found = np.intersect1d(found, query.allowed, assume_unique=True)
    return frozenset(found.tolist())


def _score_titles(reader: IndexReader, query: Query, page_ids: Collection[int]) -> dict[int, TitleMatch]:
    view = reader.view
    return score_titles(view.languages[0], query.words, query.variants, view.get_pages(page_ids))


_NO_MATCH = TitleMatch()


# By meaning.


class Passage(NamedTuple):
    """A passage of a page, and its distance from the query."""

    chunk_id: int
    distance: float


@dataclass(frozen=True, slots=True)
class NearPassages:
    """The passages near a query that a search has read."""

    vector: FloatArray
    nearest: VectorHits
    is_complete: bool
    """Whether `nearest` has every passage of the pages that may be found."""
    of_pages: VectorHits | None = None
    """All passages of `complete_pages`, and possibly of others, nearest first."""
    complete_pages: frozenset[int] = frozenset()
    likely_pages: frozenset[int] = frozenset()
    """The nearest pages of a hybrid search."""


class Found(NamedTuple):
    """The pages that compete, unordered, and the passages that were read to find them."""

    candidates: Candidates
    passages: NearPassages | None = None


def find_candidates(
    reader: IndexReader, query: Query, words: WordMatches, vector: FloatArray | None, page_count: int
) -> Found:
    """The pages that compete, and enough of them to measure the lead of the best. A semantic search finds at least
    `page_count` pages, unless the wiki has fewer."""
    if vector is None:
        return Found(_find_evidence(reader, query, words, None, make_candidates_by_words(words.shares)))
    if query.request.mode is SearchMode.SEMANTIC:
        candidates, near = search_by_meaning(reader, query, vector, page_count, VECTOR_CANDIDATES)
        candidates = candidates[:MAX_HITS]
        missing = words.shares.keys() - set(candidates["page_id"].tolist())
        if missing:
            hits = reader.search_page_vectors(vector, missing)
            candidates = np.concatenate((candidates, _select_passages(hits, query, sorted(missing))))
    else:
        candidates, near = _find_by_both(reader, query, words, vector)
    return Found(_find_evidence(reader, query, words, vector, candidates), near)


def make_candidates_by_words(shares: Mapping[int, float]) -> Candidates:
    """Pages that were found by their words alone."""
    return make_candidates(list(shares), share=list(shares.values()))


def search_by_meaning(
    reader: IndexReader, query: Query, vector: FloatArray, page_count: int, min_chunks: int = 0
) -> tuple[Candidates, NearPassages]:
    """The nearest pages: request more chunks until there are `page_count` pages, or more, or no more chunks."""
    limit = max(min_chunks, page_count * 3)
    while True:
        hits = reader.search_vectors(vector, limit, query.allowed)
        is_complete = len(hits.chunk_ids) < limit
        candidates = _select_passages(hits, query)
        if len(candidates) >= page_count or is_complete:
            return candidates, NearPassages(vector, hits, is_complete)
        limit *= 4


def _find_by_both(
    reader: IndexReader, query: Query, words: WordMatches, vector: FloatArray
) -> tuple[Candidates, NearPassages]:
    """The pages found by meaning and those found by words. Both channels judge every page, so the nearest passages of
    the latter are read too."""
    hits = reader.search_vectors(vector, VECTOR_CANDIDATES, query.allowed)
    is_complete = len(hits.chunk_ids) < VECTOR_CANDIDATES
    near = _select_passages(hits, query)
    near_ids = near["page_id"].tolist()
    near["share"] = [words.shares.get(page_id, math.nan) for page_id in near_ids]
    competing = words.competing
    likely = frozenset(near_ids[:LIKELY_PAGES])
    # One search for both, unless the passages of one of them were read ahead.
    complete = frozenset(competing) if words.passages is not None else likely.union(competing)
    of_pages = hits if is_complete else reader.search_page_vectors(vector, complete, words.passages)
    passages = NearPassages(vector, hits, is_complete, of_pages, complete, likely)
    known = set(near_ids)
    missing = [page_id for page_id in competing if page_id not in known]
    if not missing:
        return near, passages
    others = _select_passages(of_pages, query, missing)
    others["is_near"] = False
    others["share"] = [words.shares[page_id] for page_id in others["page_id"].tolist()]
    return np.concatenate((near, others)), passages


def _select_passages(hits: VectorHits, query: Query, page_ids: Sequence[int] | None = None) -> Candidates:
    """The nearest passages of each page, nearest first; with `page_ids`, of these pages, also those without any."""
    rows = select_first(hits.page_ids, query.request.chunks_per_page, page_ids)
    found = make_candidates(
        hits.page_ids[rows], chunk_id=hits.chunk_ids[rows], distance=hits.distances[rows], is_near=True
    )
    if page_ids is not None and (without := sorted(set(page_ids) - set(found["page_id"].tolist()))):
        found = np.concatenate((found, make_candidates(without)))
    return found


def _find_evidence(
    reader: IndexReader, query: Query, words: WordMatches, vector: FloatArray | None, candidates: Candidates
) -> Candidates:
    """The candidates with the title match of the page, and with the cosine of the page as a whole."""
    ids: IntArray = np.unique(candidates["page_id"])
    cosines = titles = None
    if vector is not None and len(ids):
        cosines = reader.score_pages(vector, ids)[np.searchsorted(ids, candidates["page_id"])].astype(np.float64)
    if words.titles is not None:
        page_ids = candidates["page_id"].tolist()
        missing = [page_id for page_id in page_ids if page_id not in words.titles]
        known = {**words.titles, **_score_titles(reader, query, missing)} if missing else words.titles
        titles = [known.get(page_id, _NO_MATCH) for page_id in page_ids]
    return with_page_evidence(candidates, cosines, titles)


def find_more(reader: IndexReader, query: Query, words: WordMatches, found: Found) -> Found:
    """More pages than those that compete, if more hits are requested: by meaning, or else by words."""
    known = set(found.candidates["page_id"].tolist())
    more, passages = found.candidates[:0], found.passages
    if passages is not None and passages.is_complete and known.issuperset(passages.nearest.page_ids.tolist()):
        return Found(more, passages)
    if passages is not None:
        page_count = query.request.depth + len(known)
        more, near = search_by_meaning(reader, query, passages.vector, page_count)
        more, passages = more[:page_count], replace(passages, nearest=near.nearest, is_complete=near.is_complete)
    elif len(known) >= MAX_HITS:
        by_words = make_candidates_by_words(find_shares(reader, query, MAX_OFFSET + MAX_HITS))
        more = _find_evidence(reader, query, words, None, by_words)
    return Found(more[~np.isin(more["page_id"], list(known))], passages)


def find_passages(
    reader: IndexReader, near: NearPassages, page_ids: Collection[int]
) -> Mapping[int, Sequence[Passage]]:
    """Page id → its passages nearest to the query, nearest first, of the pages to show."""
    shown = frozenset(page_ids)
    complete = shown & near.complete_pages
    found = _group_passages(near.of_pages, complete) if near.of_pages is not None else {}
    if len(complete) == len(shown):
        return found
    found |= _group_passages(near.nearest, shown - complete)
    # Three passages of a page among the nearest of all are mostly the nearest of the page.
    incomplete = [
        page_id
        for page_id in shown - complete
        if page_id in near.likely_pages or len(found.get(page_id, ())) < PASSAGES_PER_PAGE
    ]
    if near.is_complete or not incomplete:
        return found
    return found | _group_passages(reader.search_page_vectors(near.vector, incomplete), incomplete)


def _group_passages(hits: VectorHits, page_ids: Collection[int]) -> dict[int, list[Passage]]:
    """Page id → up to `LEAD_PASSAGES` passages of these pages, nearest first."""
    found: dict[int, list[Passage]] = {}
    for row in select_first(hits.page_ids, LEAD_PASSAGES, page_ids):
        passage = Passage(int(hits.chunk_ids[row]), float(hits.distances[row]))
        found.setdefault(int(hits.page_ids[row]), []).append(passage)
    return found
