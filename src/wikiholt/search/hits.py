"""Turns ranked pages into hits: the chunk to show, its snippet, a score, a link."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from wikiholt.domain.search import Hit, KeywordQuery, Snippet, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.passages import PassageChooser
from wikiholt.search.ranking import Candidate
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.snippets import QueryMatcher, SentenceScorer, SnippetBuilder

_LEADING_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

LEAD_SNIPPET_CHARS = 300
"""Length of the first hit's snippet: up to three lines. The others have up to two."""

SNIPPET_CHARS = 150

_Row = tuple[Candidate, StoredPage, StoredChunk | None]


class HitBuilder:
    """Builds the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str, dialect: Dialect = GFM) -> None:
        self._index = index
        self._url = url
        self._language = language
        self.dialect = dialect

    def make_matcher(self, query: KeywordQuery) -> QueryMatcher:
        """Finds the words of the query in the hits of one search."""
        return QueryMatcher(query, self._language)

    def build(
        self,
        chooser: PassageChooser,
        candidates: Sequence[Candidate],
        pages: Mapping[int, StoredPage],
        sentence_scorer: SentenceScorer | None = None,
        matcher: QueryMatcher | None = None,
        *,
        has_lead: bool = False,
    ) -> list[Hit]:
        """One hit per candidate of these pages, in the same order. Repeated passages are left out.

        `sentence_scorer` finds the sentence of a passage that is closest to the query, and `matcher` its words. With
        `has_lead`, the first hit has a longer snippet.
        """
        existing = [candidate for candidate in candidates if candidate.page_id in pages]
        snippets = SnippetBuilder(matcher or self.make_matcher(chooser.query), sentence_scorer, self.dialect)
        chosen = chooser.choose(self._index, existing, pages)
        rows: dict[tuple[int, int | None], _Row] = {}
        for candidate, chunk in chosen:
            passage = (candidate.page_id, chunk.number if chunk else None)
            rows.setdefault(passage, (candidate, pages[candidate.page_id], chunk))
        lengths = [LEAD_SNIPPET_CHARS if has_lead and not number else SNIPPET_CHARS for number in range(len(rows))]
        texts = [strip_leading_headings(chunk.text) if chunk else "" for _, _, chunk in rows.values()]
        titles = [(page.name, *(chunk.heading_path if chunk else ())) for _, page, chunk in rows.values()]
        return [
            self._build_hit(row, snippet or snippets.build([row[1].name], [length])[0], snippets)
            for row, snippet, length in zip(rows.values(), snippets.build(texts, lengths, titles), lengths, strict=True)
        ]

    def _build_hit(self, row: _Row, snippet: Snippet, snippets: SnippetBuilder) -> Hit:
        candidate, page, chunk = row
        anchor = chunk.anchor if chunk else ""
        headings = chunk.heading_path if chunk else ()
        return Hit(
            name=page.name,
            path=page.path,
            url=format_page_link(self._url, page.path, anchor),
            snippet=snippet,
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=round(candidate.likelihood or 0.0, 4),
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
        )


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link to a page, or to a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


def strip_leading_headings(text: str) -> str:
    """Remove headings at the start of a chunk, which a hit lists separately, unless the chunk has nothing else."""
    return _LEADING_HEADINGS.sub("", text) or text
