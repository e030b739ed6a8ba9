"""Turns ranked pages into hits: chooses the passage to show, builds its snippet, score and link, and counts facets.

A passage is chosen by its meaning and by the words of the query that it contains.
"""

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from wikiholt.domain.index import CosineScale
from wikiholt.domain.page import Facets
from wikiholt.domain.search import Confidence, Hit, KeywordQuery, PassagePlace, Snippet, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.facets import count_groups
from wikiholt.search.candidates import LEAD_PASSAGES, PASSAGES_PER_PAGE, Passage
from wikiholt.search.query import Query
from wikiholt.search.ranking import Candidate
from wikiholt.search.sort_order import PINNED_CHANNEL
from wikiholt.text.analysis import strip_accents
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.near_duplicates import WordingGroups, read_wording
from wikiholt.text.snippets import QueryMatcher, SentenceScorer, SnippetBuilder

WORD_WEIGHT = 0.2
"""Weight of the contained words; the meaning has 1. See docs/adr/0049."""

_MAX_PAGE_CHUNKS, _MAX_LEAD_CHUNKS = 200, 1000
"""Pages with more chunks than this are not scanned for query words, which would take longer than the search. The second
is for the page of the first hit."""


class ShownPage(NamedTuple):
    """A page to show, and the chunk that its hit shows, if it has any."""

    candidate: Candidate
    page: StoredPage
    chunk: StoredChunk | None
    also_on: tuple["ShownPage", ...] = ()
    """Other pages, with chunks that are nearly the same."""


def choose_passages(
    index: WikiIndex,
    query: Query,
    candidates: Sequence[Candidate],
    pages: Mapping[int, StoredPage],
    nearest: Mapping[int, Sequence[Passage]],
    scale: CosineScale,
) -> list[ShownPage]:
    """The candidates of these pages, each with the chunk to show. The choice for a page does not depend on the others.

    `nearest` has the passages of each page that are nearest to the query, nearest first. If no near chunk contains a
    word of the query, the whole page is scanned for one. If each hit is a passage, the chosen one is the first of its
    page and changes places with it.
    """
    stems = get_stems(query.expanded)
    candidates = [candidate for candidate in candidates if candidate.page_id in pages]
    hits_per_page = query.request.chunks_per_page
    near = _get_near(candidates, nearest, hits_per_page)
    chunks = index.get_chunks([passage.chunk_id for passages in near for passage in passages])
    best = [_choose_passage(passages, chunks, stems, scale) for passages in near]
    if hits_per_page > 1:
        candidates = _move_passages(candidates, best)
        chosen = [None if c.chunk_id is None else chunks.get(c.chunk_id) for c in candidates]
    else:
        chosen = [None if passage is None else chunks.get(passage.chunk_id) for passage in best]
    undecided: dict[int, int] = {}
    for position, (candidate, chunk) in enumerate(zip(candidates, chosen, strict=True)):
        if chunk is None or (candidate.keyword_share is not None and not count_mentions(chunk.text, stems)):
            undecided.setdefault(candidate.page_id, position)
    for page_id, page_chunks in _read_scanned_pages(index, undecided, chosen, pages).items():
        position = undecided[page_id]
        chosen[position] = find_best_chunk(page_chunks, chosen[position], stems)
    return [ShownPage(c, pages[c.page_id], chunk) for c, chunk in zip(candidates, chosen, strict=True)]


def _get_near(
    candidates: Sequence[Candidate], nearest: Mapping[int, Sequence[Passage]], hits_per_page: int
) -> list[Sequence[Passage]]:
    """For each candidate, the passages that it may show. If each hit is a passage, only the first of a page has a
    choice."""
    near: list[Sequence[Passage]] = []
    known: set[int] = set()
    for position, candidate in enumerate(candidates):
        limit = LEAD_PASSAGES if position == 0 else PASSAGES_PER_PAGE
        if hits_per_page > 1:
            limit = min(limit, hits_per_page) if candidate.page_id not in known else 0
            known.add(candidate.page_id)
        passages = nearest.get(candidate.page_id, ())[:limit]
        if not passages and candidate.chunk_id is not None:
            passages = (Passage(candidate.chunk_id, candidate.distance or 0.0),)
        near.append(passages)
    return near


def _read_scanned_pages(
    index: WikiIndex,
    undecided: Mapping[int, int],
    chosen: Sequence[StoredChunk | None],
    pages: Mapping[int, StoredPage],
) -> Mapping[int, Sequence[StoredChunk]]:
    """Page id → its chunks, of the pages to scan for words of the query. `undecided` has the place of each page.

    A very long page is scanned only if it has no chunk to show, and then in part.
    """

    def select(page_ids: Collection[int], limit: int) -> list[int]:
        return [each for each in page_ids if pages[each].chunks <= limit or chosen[undecided[each]] is None]

    long_lead = [each for each, place in undecided.items() if not place and pages[each].chunks > _MAX_PAGE_CHUNKS]
    found = dict(index.get_page_chunks(select(undecided.keys() - set(long_lead), _MAX_PAGE_CHUNKS), _MAX_PAGE_CHUNKS))
    # Rare, so that one statement reads the pages of nearly all searches.
    if long_lead:
        found |= index.get_page_chunks(select(long_lead, _MAX_LEAD_CHUNKS), _MAX_LEAD_CHUNKS)
    return found


def _move_passages(candidates: Sequence[Candidate], best: Sequence[Passage | None]) -> list[Candidate]:
    """The candidates with the best passage of each page at its first place, where the nearest was; scores stay."""
    moved = list(candidates)
    firsts: dict[int, int] = {}
    for position, (candidate, passage) in enumerate(zip(candidates, best, strict=True)):
        first = firsts.setdefault(candidate.page_id, position)
        if first == position and passage is not None:
            moved[position] = candidate._replace(chunk_id=passage.chunk_id, distance=passage.distance)
        elif first != position and candidate.chunk_id == moved[first].chunk_id:
            nearest = candidates[first]
            moved[position] = candidate._replace(chunk_id=nearest.chunk_id, distance=nearest.distance)
    return moved


def _choose_passage(
    passages: Sequence[Passage], chunks: Mapping[int, StoredChunk], stems: Sequence[str], scale: CosineScale
) -> Passage | None:
    """The passage with the highest sum of meaning and contained words; the nearest of equals."""
    known = [passage for passage in passages if passage.chunk_id in chunks]
    if len(known) < 2:
        return known[0] if known else None
    shares = _score_words([chunks[passage.chunk_id].text for passage in known], stems)
    scores = [
        scale.normalize(1.0 - passage.distance) + WORD_WEIGHT * share
        for passage, share in zip(known, shares, strict=True)
    ]
    return known[scores.index(max(scores))]


def find_best_chunk(chunks: Sequence[StoredChunk], nearest: StoredChunk | None, stems: Sequence[str]) -> StoredChunk:
    """The chunk with the most words of the query; rare ones weigh more. Without any, the nearest or the first chunk."""
    shares = _score_words([chunk.text for chunk in chunks], stems)
    highest = max(shares)
    return nearest if nearest is not None and not highest else chunks[shares.index(highest)]


def _score_words(texts: Sequence[str], stems: Sequence[str]) -> list[float]:
    """For each text the share of the stems it contains. The fewer texts contain a stem, the more it weighs."""
    contained = [find_mentions(text, stems) for text in texts]
    counts = dict.fromkeys(stems, 0)
    for mentions in contained:
        for stem in set(mentions):
            counts[stem] += 1
    weights = {stem: math.log1p(len(texts) / count) for stem, count in counts.items() if count}
    total = sum(weights.values()) or 1.0
    return [sum(map(weights.__getitem__, mentions)) / total for mentions in contained]


class CollapsedPages:
    """Pages to show. One with nearly the same passage as an earlier one is named by that one. Pinned ones stay."""

    def __init__(self) -> None:
        self._groups = WordingGroups()
        self._pages: list[dict[int, ShownPage]] = []

    def __len__(self) -> int:
        return len(self._pages)

    def add(self, shown: Sequence[ShownPage]) -> None:
        for row in shown:
            is_compared = row.chunk is not None and PINNED_CHANNEL not in row.candidate.channels
            wording = read_wording(strip_leading_headings(row.chunk.text)) if row.chunk and is_compared else None
            number = self._groups.add(wording)
            if number == len(self._pages):
                self._pages.append({})
            self._pages[number].setdefault(row.page.page_id, row)

    def list_pages(self) -> list[ShownPage]:
        groups = (list(group.values()) for group in self._pages)
        return [first._replace(also_on=tuple(others)) for first, *others in groups]


def get_stems(query: KeywordQuery) -> tuple[str, ...]:
    """Stems of the query's words, to be matched as substrings of a text."""
    terms = dict.fromkeys([*query.terms, *(term for phrase in query.phrases for term in phrase)])
    if not terms:
        return (query.prefix,) if query.prefix else ()
    # A stem's last letter may differ from the word's ("studi", "study"). Terms with digits or signs are not stemmed.
    return tuple(dict.fromkeys(term[:-1] if len(term) > 4 and term.isalpha() else term for term in terms))


def count_mentions(text: str, stems: Sequence[str]) -> int:
    """How many of the stems occur in a text, ignoring case and accents."""
    return len(find_mentions(text, stems))


def find_mentions(text: str, stems: Sequence[str]) -> list[str]:
    """The stems that occur in a text, ignoring case and accents."""
    folded = strip_accents(text)
    if text.isascii():
        return [stem for stem in stems if stem in folded]
    # Scripts without spaces keep their marks, which are not accents: が is not か.
    marked = unicodedata.normalize("NFKC", text)
    return [stem for stem in stems if stem in folded or stem in marked]


# Hits.

_LEADING_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

LEAD_SNIPPET_CHARS = 300
"""Length of the first hit's snippet: up to three lines. The others have up to two."""

SNIPPET_CHARS = 150


class HitBuilder:
    """Builds the hits of one wiki."""

    def __init__(self, url: str, language: str, dialect: Dialect = GFM) -> None:
        self._url = url
        self._language = language
        self.dialect = dialect

    def build(self, query: Query, shown: Sequence[ShownPage], sentence_scorer: SentenceScorer | None) -> list[Hit]:
        """One hit per page, in the same order. Repeated passages are left out.

        The first hit of a query has a longer snippet. `sentence_scorer` finds the sentence of a passage that is closest
        to the query.
        """
        has_lead = bool(query.text) and not query.request.offset
        snippets = SnippetBuilder(QueryMatcher(query.expanded, self._language), sentence_scorer, self.dialect)
        passages: dict[tuple[int, int | None], ShownPage] = {}
        for row in shown:
            passages.setdefault((row.candidate.page_id, row.chunk.number if row.chunk else None), row)
        rows = list(passages.values())
        lengths = [LEAD_SNIPPET_CHARS if has_lead and not number else SNIPPET_CHARS for number in range(len(rows))]
        texts = [strip_leading_headings(row.chunk.text) if row.chunk else "" for row in rows]
        titles = [(row.page.name, *(row.chunk.heading_path if row.chunk else ())) for row in rows]
        return [
            self._build_hit(row, snippet or snippets.build([row.page.name], [length])[0], snippets)
            for row, snippet, length in zip(rows, snippets.build(texts, lengths, titles), lengths, strict=True)
        ]

    def _build_hit(self, shown: ShownPage, snippet: Snippet, snippets: SnippetBuilder) -> Hit:
        candidate, page, chunk, also_on = shown
        anchor = chunk.anchor if chunk else ""
        headings = chunk.heading_path if chunk else ()
        return Hit(
            name=page.name,
            path=page.path,
            url=format_page_link(self._url, page.path, anchor),
            snippet=snippet,
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=round(candidate.likelihood, 4),
            confidence=candidate.confidence,
            channels=candidate.channels,
            heading_path=headings,
            anchor=anchor,
            first_line=chunk.first_line if chunk else 1,
            last_line=chunk.last_line if chunk else 1,
            chunk_index=chunk.number if chunk else 0,
            category=page.category,
            tags=page.tags,
            last_updated=page.last_updated,
            text=chunk.text if chunk else "",
            total_chunks=page.chunks,
            page_words=page.words,
            file=page.file,
            name_matches=snippets.find_spans(page.name),
            heading_matches=tuple(map(snippets.find_spans, headings)),
            also_on=tuple(self._build_place(other.page, other.chunk) for other in also_on if other.chunk),
        )

    def _build_place(self, page: StoredPage, chunk: StoredChunk) -> PassagePlace:
        url = format_page_link(self._url, page.path, chunk.anchor)
        return PassagePlace(page.name, page.path, page.file, url, chunk.first_line, chunk.last_line)


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link to a page, or to a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor, safe='/=')}" if anchor else link


def strip_leading_headings(text: str) -> str:
    """Remove headings at the start of a chunk, which a hit lists separately, unless the chunk has nothing else."""
    return _LEADING_HEADINGS.sub("", text) or text


# Facets of hits.

_KEYWORD_CHANNEL = "keyword"


def count_hit_facets(hits: Sequence[Hit], prefix: str = "") -> Facets:
    """The categories and tags of hits, and the folders directly below `prefix`.

    A search by meaning ranks every page. So a hit counts if it contains words of the query, or is a likely answer.
    """
    found = [hit for hit in hits if hit.confidence is not Confidence.LOW or _KEYWORD_CHANNEL in hit.channels]
    pages = {hit.path: hit for hit in found}.values()
    return count_groups(((page.path, page.category, page.tags) for page in pages), prefix)
