"""From ranked pages to hits a person can read: the chunk to show, its snippet, a score, a link."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from wikiholt.model import Hit, Mode, StoredChunk, StoredPage, WordQuery
from wikiholt.ports import WikiIndex
from wikiholt.ranking import Candidate, confidence, score
from wikiholt.text.snippets import snippet

_LONG_PAGE = 200
"""Chunks of a page beyond which its words are not looked for in every chunk."""


class HitMaker:
    """Makes the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str) -> None:
        self._index = index
        self._url = url
        self._language = language

    def make(self, query: WordQuery, mode: Mode, best: Sequence[Candidate]) -> list[Hit]:
        """One hit a candidate, in their order; a page that was deleted meanwhile is left out."""
        pages = self._index.stored_pages([candidate.page_id for candidate in best])
        known = [candidate for candidate in best if candidate.page_id in pages]
        chunks = self._chunks(known, pages, query)
        hits = []
        for candidate in known:
            chunk = choose(chunks.get(candidate.page_id, ()), candidate.chunk_id, query)
            hits.append(self._hit(candidate, pages[candidate.page_id], chunk, score(mode, candidate), query))
        return hits

    def _chunks(
        self, best: Sequence[Candidate], pages: Mapping[int, StoredPage], query: WordQuery
    ) -> Mapping[int, Sequence[StoredChunk]]:
        """The chunks to choose from, page by page: all of a page that words found, else the nearest."""
        by_words = {c.page_id for c in best if c.chunk_id is None or (c.share is not None and query)}
        whole = [page_id for page_id in by_words if pages[page_id].chunks <= _LONG_PAGE]
        found = dict(self._index.page_chunks(whole))
        singles = self._index.stored_chunks([c.chunk_id for c in best if c.chunk_id and c.page_id not in found])
        for chunk in singles.values():
            found[chunk.page_id] = [chunk]
        return found

    def _hit(
        self, candidate: Candidate, page: StoredPage, chunk: StoredChunk | None, value: float, query: WordQuery
    ) -> Hit:
        anchor = chunk.anchor if chunk else ""
        return Hit(
            name=page.name,
            path=page.path,
            url=self._link(page.path, anchor),
            snippet=snippet(chunk.text if chunk else page.name, query, language=self._language),
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=value,
            confidence=confidence(value),
            channels=candidate.channels,
            heading_path=chunk.heading_path if chunk else (),
            anchor=anchor,
            first_line=chunk.first_line if chunk else 1,
            last_line=chunk.last_line if chunk else 1,
            chunk_index=chunk.index if chunk else 0,
            category=page.category,
            tags=page.tags,
            last_updated=page.last_updated,
        )

    def _link(self, path: str, anchor: str) -> str:
        link = self._url.replace("{path}", quote(path))
        return f"{link}#{quote(anchor)}" if anchor else link


def choose(chunks: Sequence[StoredChunk], nearest: int | None, query: WordQuery) -> StoredChunk | None:
    """The chunk to show: the nearest in meaning, unless another holds words of the query and it holds none."""
    if not chunks:
        return None
    by_id = {chunk.chunk_id: chunk for chunk in chunks}
    near = by_id.get(nearest) if nearest is not None else None
    if near is not None and (not query or mentioned(near.text.casefold(), query)):
        return near
    held = [mentioned(chunk.text.casefold(), query) for chunk in chunks]
    most = max(held)
    if near is not None and not most:
        return near
    return chunks[held.index(most)]


def mentioned(folded: str, query: WordQuery) -> float:
    """The share of the query's words that a case-folded text holds; stems are looked for as parts of words."""
    terms = {*query.terms, *(term for phrase in query.phrases for term in phrase)}
    if not terms:
        return 1.0 if query.prefix and query.prefix in folded else 0.0
    # A stem's last letter may differ from the word's ("studi", "study").
    return sum((term[:-1] if len(term) > 4 else term) in folded for term in terms) / len(terms)
