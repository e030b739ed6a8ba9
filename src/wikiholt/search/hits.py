"""Turns ranked pages into hits: the snippet of the shown chunk, a score, a link; and counts the facets of hits."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from wikiholt.domain.page import Facets
from wikiholt.domain.search import Confidence, Facet, Hit, Snippet
from wikiholt.search.passages import ShownPage
from wikiholt.search.query import Query
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.snippets import QueryMatcher, SentenceScorer, SnippetBuilder

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
        candidate, page, chunk = shown
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
        )


def format_page_link(template: str, path: str, anchor: str = "") -> str:
    """The link to a page, or to a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


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
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    paths = (page.path.removeprefix(start) for page in pages if page.path.startswith(start))
    return Facets(
        len(pages),
        _count(page.category for page in pages if page.category is not None),
        _count(tag for page in pages for tag in dict.fromkeys(page.tags)),
        _count(start + path.partition("/")[0] for path in paths if "/" in path),
    )


def _count(values: Iterable[str]) -> tuple[Facet, ...]:
    """The values and their counts, most frequent first; values that differ only in case are one."""
    counts: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for value in values:
        counts[value.casefold()] += 1
        spellings.setdefault(value.casefold(), value)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Facet(spellings[key], count) for key, count in ordered)
