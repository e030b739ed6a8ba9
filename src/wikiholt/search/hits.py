"""Turns ranked pages into hits: the chunk to show, its snippet, a score, a link."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import quote

from wikiholt.domain.search import Hit, SearchMode, Snippet, Span, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.passages import PassageChooser
from wikiholt.search.ranking import Candidate, HitRating, rate_hits
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.snippets import SentenceScorer, build_snippet, find_match_spans

_LEADING_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

LEAD_SNIPPET_CHARS = 300
"""Length of the first hit's snippet: up to three lines. The others have up to two."""

SNIPPET_CHARS = 150


class HitBuilder:
    """Builds the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str, dialect: Dialect = GFM) -> None:
        self._index = index
        self._url = url
        self._language = language
        self.dialect = dialect

    def build(
        self,
        chooser: PassageChooser,
        mode: SearchMode,
        candidates: Sequence[Candidate],
        sentence_scorer: SentenceScorer | None = None,
        *,
        has_lead: bool = False,
    ) -> list[Hit]:
        """One hit per candidate, in the same order. Deleted pages and repeated passages are left out.

        `sentence_scorer` finds the sentence of a passage that is closest to the query. With `has_lead`, the first hit
        has a longer snippet.
        """
        pages = self._index.get_pages([candidate.page_id for candidate in candidates])
        existing = [candidate for candidate in candidates if candidate.page_id in pages]
        rows = zip(existing, chooser.choose(self._index, existing, pages), rate_hits(mode, existing), strict=True)
        make_snippet = partial(
            build_snippet,
            query=chooser.query,
            language=self._language,
            sentence_scorer=sentence_scorer,
            dialect=self.dialect,
        )
        find_spans = partial(find_match_spans, query=chooser.query, language=self._language)
        hits: list[Hit] = []
        seen: set[tuple[int, int | None]] = set()
        for candidate, chunk, rating in rows:
            passage = (candidate.page_id, chunk.index if chunk else None)
            if passage not in seen:
                seen.add(passage)
                length = LEAD_SNIPPET_CHARS if has_lead and not hits else SNIPPET_CHARS
                make = partial(make_snippet, length=length)
                hits.append(self._build_hit(candidate, pages[candidate.page_id], chunk, rating, make, find_spans))
        return hits

    def _build_hit(
        self,
        candidate: Candidate,
        page: StoredPage,
        chunk: StoredChunk | None,
        rating: HitRating,
        make_snippet: Callable[[str], Snippet],
        find_spans: Callable[[str], tuple[Span, ...]],
    ) -> Hit:
        anchor = chunk.anchor if chunk else ""
        headings = chunk.heading_path if chunk else ()
        return Hit(
            name=page.name,
            path=page.path,
            url=format_page_link(self._url, page.path, anchor),
            snippet=(make_snippet(strip_leading_headings(chunk.text)) if chunk else None) or make_snippet(page.name),
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=rating.score,
            confidence=rating.confidence,
            channels=candidate.channels,
            heading_path=headings,
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
            name_matches=find_spans(page.name),
            heading_matches=tuple(map(find_spans, headings)),
        )


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link to a page, or to a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


def strip_leading_headings(text: str) -> str:
    """Remove headings at the start of a chunk, which a hit lists separately, unless the chunk has nothing else."""
    return _LEADING_HEADINGS.sub("", text) or text
