"""Turns ranked pages into hits: the chunk to show, its snippet, a score, a link."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from wikiholt.domain.search import Hit, KeywordQuery, SearchMode, Snippet, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import Candidate, HitRating, rate_hits
from wikiholt.text.analysis import strip_accents
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.snippets import SentenceScorer, build_snippet

_LEADING_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

_MAX_PAGE_CHUNKS = 200
"""Pages with more chunks than this are not scanned for query words, which would take longer than the search."""


class HitBuilder:
    """Builds the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str, dialect: Dialect = GFM) -> None:
        self._index = index
        self._url = url
        self._language = language
        self.dialect = dialect

    def build(
        self,
        query: KeywordQuery,
        mode: SearchMode,
        candidates: Sequence[Candidate],
        sentence_scorer: SentenceScorer | None = None,
    ) -> list[Hit]:
        """One hit per candidate, in the same order. Deleted pages and repeated passages are left out.

        `sentence_scorer` finds the sentence of a passage that is closest to the query.
        """
        pages = self._index.get_pages([candidate.page_id for candidate in candidates])
        existing = [candidate for candidate in candidates if candidate.page_id in pages]
        rows = zip(existing, self._choose_chunks(existing, pages, query), rate_hits(mode, existing), strict=True)
        make_snippet = partial(
            build_snippet,
            query=query,
            language=self._language,
            sentence_scorer=sentence_scorer,
            dialect=self.dialect,
        )
        hits: list[Hit] = []
        seen: set[tuple[int, int | None]] = set()
        for candidate, chunk, rating in rows:
            passage = (candidate.page_id, chunk.index if chunk else None)
            if passage not in seen:
                seen.add(passage)
                hits.append(self._build_hit(candidate, pages[candidate.page_id], chunk, rating, make_snippet))
        return hits

    def _choose_chunks(
        self, candidates: Sequence[Candidate], pages: Mapping[int, StoredPage], query: KeywordQuery
    ) -> list[StoredChunk | None]:
        """The chunk to show for each candidate: the nearest, unless only another one contains words of the query."""
        nearest = self._index.get_chunks([c.chunk_id for c in candidates if c.chunk_id is not None])
        chosen = [nearest.get(c.chunk_id) if c.chunk_id is not None else None for c in candidates]
        stems = get_stems(query)
        undecided: dict[int, int] = {}
        for position, (c, chunk) in enumerate(zip(candidates, chosen, strict=True)):
            if chunk is None or (c.keyword_share is not None and not count_mentions(chunk.text, stems)):
                undecided.setdefault(c.page_id, position)
        page_ids = [
            page_id
            for page_id, position in undecided.items()
            if pages[page_id].chunks <= _MAX_PAGE_CHUNKS or chosen[position] is None
        ]
        for page_id, chunks in self._index.get_page_chunks(page_ids, _MAX_PAGE_CHUNKS).items():
            position = undecided[page_id]
            chosen[position] = find_best_chunk(chunks, chosen[position], stems)
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
            file=page.file,
        )


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link to a page, or to a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


def strip_leading_headings(text: str) -> str:
    """Remove headings at the start of a chunk, which a hit lists separately, unless the chunk has nothing else."""
    return _LEADING_HEADINGS.sub("", text) or text


def find_best_chunk(chunks: Sequence[StoredChunk], nearest: StoredChunk | None, stems: Sequence[str]) -> StoredChunk:
    """The chunk with the most stems of the query. If no chunk has any, the nearest chunk, or else the first."""
    counts = [count_mentions(chunk.text, stems) for chunk in chunks]
    highest = max(counts)
    return nearest if nearest is not None and not highest else chunks[counts.index(highest)]


def get_stems(query: KeywordQuery) -> tuple[str, ...]:
    """Stems of the query's words, to be matched as substrings of a text."""
    terms = dict.fromkeys([*query.terms, *(term for phrase in query.phrases for term in phrase)])
    if not terms:
        return (query.prefix,) if query.prefix else ()
    # A stem's last letter may differ from the word's ("studi", "study"). Terms with digits or signs are not stemmed.
    return tuple(term[:-1] if len(term) > 4 and term.isalpha() else term for term in terms)


def count_mentions(text: str, stems: Sequence[str]) -> int:
    """How many of the stems occur in a text, ignoring case and accents."""
    folded = strip_accents(text)
    # Scripts without spaces keep their marks, which are not accents: が is not か.
    marked = folded if text.isascii() else unicodedata.normalize("NFKC", text)
    return sum(stem in folded or stem in marked for stem in stems)
