"""Chooses the passage of each page that a hit shows: by its meaning and by the words of the query that it contains."""

import math
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from wikiholt.domain.index import CosineScale, VectorHits
from wikiholt.domain.search import KeywordQuery, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import Candidate, group_by_page
from wikiholt.text.analysis import strip_accents

PASSAGES_PER_PAGE = 3
"""Passages of a page, nearest first, among which one is chosen."""

LEAD_PASSAGES = 5
"""The same for the first hit: more often its snippet has the answer, and two more passages cost little."""

WORD_WEIGHT = 0.2
"""Weight of the contained words; the meaning has 1. See docs/adr/0049."""

_MAX_PAGE_CHUNKS, _MAX_LEAD_CHUNKS = 200, 1000
"""Pages with more chunks than this are not scanned for query words, which would take longer than the search. The second
is for the page of the first hit."""


@dataclass(frozen=True, slots=True)
class PassageChooser:
    """Chooses the passages of one search. The choice for a page does not depend on the other pages."""

    query: KeywordQuery
    nearest: Mapping[int, Sequence[Candidate]] = field(default_factory=dict)
    """Page id → its passages nearest to the query, nearest first."""
    hits_per_page: int = 1
    """If more than 1, each hit is a passage: the chosen one is the first of its page and changes places with it."""

    def choose(
        self, index: WikiIndex, candidates: Sequence[Candidate], pages: Mapping[int, StoredPage]
    ) -> list[tuple[Candidate, StoredChunk | None]]:
        """The candidates, each with the chunk to show. If no near chunk contains a word of the query, the whole page
        is scanned for one."""
        stems = get_stems(self.query)
        near = self._get_near(candidates)
        chunks = index.get_chunks([p.chunk_id for passages in near for p in passages if p.chunk_id is not None])
        best: Sequence[Candidate | None] = [_choose_passage(passages, chunks, stems) for passages in near]
        if self.hits_per_page > 1:
            candidates = _move_passages(candidates, best)
            best = candidates
        chosen = [chunks.get(passage.chunk_id or 0) if passage is not None else None for passage in best]
        undecided: dict[int, int] = {}
        for position, (c, chunk) in enumerate(zip(candidates, chosen, strict=True)):
            if chunk is None or (c.keyword_share is not None and not count_mentions(chunk.text, stems)):
                undecided.setdefault(c.page_id, position)
        for page_id, page_chunks in _read_scanned_pages(index, undecided, chosen, pages).items():
            position = undecided[page_id]
            chosen[position] = find_best_chunk(page_chunks, chosen[position], stems)
        return list(zip(candidates, chosen, strict=True))

    def _get_near(self, candidates: Sequence[Candidate]) -> list[Sequence[Candidate]]:
        """For each candidate, the passages that it may show. If each hit is a passage, only the first of a page has a
        choice."""
        near: list[Sequence[Candidate]] = []
        known: set[int] = set()
        for position, candidate in enumerate(candidates):
            limit = LEAD_PASSAGES if position == 0 else PASSAGES_PER_PAGE
            if self.hits_per_page > 1:
                limit = min(limit, self.hits_per_page) if candidate.page_id not in known else 0
                known.add(candidate.page_id)
            passages = self.nearest.get(candidate.page_id, ())[:limit]
            near.append(passages or ((candidate,) if candidate.chunk_id is not None else ()))
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


def group_passages(
    hits: VectorHits, per_page: int, scale: CosineScale, page_ids: Collection[int]
) -> dict[int, list[Candidate]]:
    """Page id → up to `per_page` passages of these pages, nearest first."""
    by_page: dict[int, list[Candidate]] = {}
    for candidate in group_by_page(hits, per_page, scale, page_ids):
        by_page.setdefault(candidate.page_id, []).append(candidate)
    return by_page


def _move_passages(candidates: Sequence[Candidate], best: Sequence[Candidate | None]) -> list[Candidate]:
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
    passages: Sequence[Candidate], chunks: Mapping[int, StoredChunk], stems: Sequence[str]
) -> Candidate | None:
    """The passage with the highest sum of meaning and contained words; the nearest of equals."""
    found = ((passage, chunks.get(passage.chunk_id or 0)) for passage in passages)
    known = [(passage, chunk) for passage, chunk in found if chunk is not None]
    if len(known) < 2:
        return known[0][0] if known else None
    shares = _score_words([chunk.text for _, chunk in known], stems)
    scores = [
        passage.scale.normalize(1.0 - (passage.distance or 0.0)) + WORD_WEIGHT * share
        for (passage, _), share in zip(known, shares, strict=True)
    ]
    return known[scores.index(max(scores))][0]


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
