"""From ranked pages to hits a person can read: the chunk to show, its snippet, a score, a link."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from wikiholt.domain.search import Hit, KeywordQuery, SearchMode, Snippet, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import Candidate, HitRating, rate_hits
from wikiholt.text.analysis import strip_accents
from wikiholt.text.snippets import SentenceScorer, build_snippet

_LEADING_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

_MAX_PAGE_CHUNKS = 200
"""Chunks of a page beyond which words are not looked for: reading thousands would take longer than the search."""


class HitBuilder:
    """Makes the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str) -> None:
        self._index = index
        self._url = url
        self._language = language

    def build(
        self,
        query: KeywordQuery,
        mode: SearchMode,
        candidates: Sequence[Candidate],
        sentence_scorer: SentenceScorer | None = None,
    ) -> list[Hit]:
        """One hit a candidate, in their order; a page deleted meanwhile and a passage shown already are left out.

        `closeness` tells which sentence of a passage is closest to the query, where there is a model to tell it.
        """
        pages = self._index.get_pages([candidate.page_id for candidate in candidates])
        known = [candidate for candidate in candidates if candidate.page_id in pages]
        rows = zip(known, self._choose_chunks(known, pages, query), rate_hits(mode, known), strict=True)
        around = partial(build_snippet, query=query, language=self._language, sentence_scorer=sentence_scorer)
        hits: list[Hit] = []
        told: set[tuple[int, int | None]] = set()
        for candidate, chunk, judgement in rows:
            passage = (candidate.page_id, chunk.index if chunk else None)
            if passage not in told:
                told.add(passage)
                hits.append(self._build_hit(candidate, pages[candidate.page_id], chunk, judgement, around))
        return hits

    def _choose_chunks(
        self, candidates: Sequence[Candidate], pages: Mapping[int, StoredPage], query: KeywordQuery
    ) -> list[StoredChunk | None]:
        """The chunk to show of each: the nearest, unless another holds words of the query and it holds none."""
        nearest = self._index.get_chunks([c.chunk_id for c in candidates if c.chunk_id is not None])
        chosen = [nearest.get(c.chunk_id) if c.chunk_id is not None else None for c in candidates]
        parts = get_stems(query)
        unsure: dict[int, int] = {}
        for at, (c, chunk) in enumerate(zip(candidates, chosen, strict=True)):
            if chunk is None or (c.keyword_share is not None and not count_mentions(chunk.text, parts)):
                unsure.setdefault(c.page_id, at)
        read = [
            page_id for page_id, at in unsure.items() if pages[page_id].chunks <= _MAX_PAGE_CHUNKS or chosen[at] is None
        ]
        for page_id, chunks in self._index.get_page_chunks(read, _MAX_PAGE_CHUNKS).items():
            chosen[unsure[page_id]] = find_best_chunk(chunks, chosen[unsure[page_id]], parts)
        return chosen

    def _build_hit(
        self,
        candidate: Candidate,
        page: StoredPage,
        chunk: StoredChunk | None,
        rating: HitRating,
        make_snippet: Callable[[str], Snippet],
    ) -> Hit:
        anchor = chunk.anchor if chunk else ""
        return Hit(
            name=page.name,
            path=page.path,
            url=format_page_link(self._url, page.path, anchor),
            snippet=(make_snippet(strip_leading_headings(chunk.text)) if chunk else None) or make_snippet(page.name),
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=rating.score,
            confidence=rating.confidence,
            channels=candidate.channels,
            heading_path=chunk.heading_path if chunk else (),
            anchor=anchor,
            first_line=chunk.first_line if chunk else 1,
            last_line=chunk.last_line if chunk else 1,
            chunk_index=chunk.index if chunk else 0,
            category=page.category,
            tags=page.tags,
            last_updated=page.last_updated,
            text=chunk.text if chunk else "",
            total_chunks=page.chunks,
            page_words=page.words,
        )


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link of a page, or of a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


def strip_leading_headings(text: str) -> str:
    """A chunk's text without the headings it begins with, which a hit names beside it; they stay if they are all."""
    return _LEADING_HEADINGS.sub("", text) or text


def find_best_chunk(chunks: Sequence[StoredChunk], nearest: StoredChunk | None, stems: Sequence[str]) -> StoredChunk:
    """The chunk that holds most of what is looked for; the near one, or else the first, if none holds any."""
    held = [count_mentions(chunk.text, stems) for chunk in chunks]
    most = max(held)
    return nearest if nearest is not None and not most else chunks[held.index(most)]


def get_stems(query: KeywordQuery) -> tuple[str, ...]:
    """What of a query's words to look for in a text: stems, as parts of the words that they are the stems of."""
    terms = dict.fromkeys([*query.terms, *(term for phrase in query.phrases for term in phrase)])
    if not terms:
        return (query.prefix,) if query.prefix else ()
    # A stem's last letter may differ from the word's ("studi", "study"); what holds digits or signs has no stem.
    return tuple(term[:-1] if len(term) > 4 and term.isalpha() else term for term in terms)


def count_mentions(text: str, stems: Sequence[str]) -> int:
    """How many of these parts of words a text holds, its case and accents left aside."""
    folded = strip_accents(text)
    # Pairs of characters of scripts without spaces keep their marks, which are no accents: が is not か.
    marked = folded if text.isascii() else unicodedata.normalize("NFKC", text)
    return sum(part in folded or part in marked for part in stems)
