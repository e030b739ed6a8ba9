"""From ranked pages to hits a person can read: the chunk to show, its snippet, a score, a link."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from wikiholt.model import Hit, Mode, Snippet, StoredChunk, StoredPage, WordQuery
from wikiholt.ports import WikiIndex
from wikiholt.ranking import Candidate, Judgement, judgements
from wikiholt.text.analysis import bare
from wikiholt.text.snippets import Closeness, snippet

_HEADINGS = re.compile(r"\A(?:\s*#{1,6}[ \t][^\n]*(?:\n|\Z))+\s*")

_LONG_PAGE = 200
"""Chunks of a page beyond which words are not looked for: reading thousands would take longer than the search."""


class HitMaker:
    """Makes the hits of one wiki."""

    def __init__(self, index: WikiIndex, url: str, language: str) -> None:
        self._index = index
        self._url = url
        self._language = language

    def make(
        self, query: WordQuery, mode: Mode, best: Sequence[Candidate], closeness: Closeness | None = None
    ) -> list[Hit]:
        """One hit a candidate, in their order; a page deleted meanwhile and a passage shown already are left out.

        `closeness` tells which sentence of a passage is closest to the query, where there is a model to tell it.
        """
        pages = self._index.stored_pages([candidate.page_id for candidate in best])
        known = [candidate for candidate in best if candidate.page_id in pages]
        rows = zip(known, self._chosen(known, pages, query), judgements(mode, known), strict=True)
        around = partial(snippet, query=query, language=self._language, closeness=closeness)
        hits: list[Hit] = []
        told: set[tuple[int, int | None]] = set()
        for candidate, chunk, judgement in rows:
            passage = (candidate.page_id, chunk.index if chunk else None)
            if passage not in told:
                told.add(passage)
                hits.append(self._hit(candidate, pages[candidate.page_id], chunk, judgement, around))
        return hits

    def _chosen(
        self, best: Sequence[Candidate], pages: Mapping[int, StoredPage], query: WordQuery
    ) -> list[StoredChunk | None]:
        """The chunk to show of each: the nearest, unless another holds words of the query and it holds none."""
        nearest = self._index.stored_chunks([c.chunk_id for c in best if c.chunk_id is not None])
        chosen = [nearest.get(c.chunk_id) if c.chunk_id is not None else None for c in best]
        parts = looked_for(query)
        unsure: dict[int, int] = {}
        for at, (c, chunk) in enumerate(zip(best, chosen, strict=True)):
            if chunk is None or (c.share is not None and not mentioned(chunk.text, parts)):
                unsure.setdefault(c.page_id, at)
        read = [page_id for page_id, at in unsure.items() if pages[page_id].chunks <= _LONG_PAGE or chosen[at] is None]
        for page_id, chunks in self._index.page_chunks(read, _LONG_PAGE).items():
            chosen[unsure[page_id]] = most_telling(chunks, chosen[unsure[page_id]], parts)
        return chosen

    def _hit(
        self,
        candidate: Candidate,
        page: StoredPage,
        chunk: StoredChunk | None,
        judged: Judgement,
        around: Callable[[str], Snippet],
    ) -> Hit:
        anchor = chunk.anchor if chunk else ""
        return Hit(
            name=page.name,
            path=page.path,
            url=page_link(self._url, page.path, anchor),
            snippet=(around(shown(chunk.text)) if chunk else None) or around(page.name),
            distance=None if candidate.distance is None else round(max(candidate.distance, 0.0), 6),
            score=judged.score,
            confidence=judged.confidence,
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


def page_link(template: str, path: str, anchor: str = "") -> str:
    """The link of a page, or of a heading on it."""
    link = template.replace("{path}", quote(path))
    return f"{link}#{quote(anchor)}" if anchor else link


def shown(text: str) -> str:
    """A chunk's text without the headings it begins with, which a hit names beside it; they stay if they are all."""
    return _HEADINGS.sub("", text) or text


def most_telling(chunks: Sequence[StoredChunk], near: StoredChunk | None, parts: Sequence[str]) -> StoredChunk:
    """The chunk that holds most of what is looked for; the near one, or else the first, if none holds any."""
    held = [mentioned(chunk.text, parts) for chunk in chunks]
    most = max(held)
    return near if near is not None and not most else chunks[held.index(most)]


def looked_for(query: WordQuery) -> tuple[str, ...]:
    """What of a query's words to look for in a text: stems, as parts of the words that they are the stems of."""
    terms = dict.fromkeys([*query.terms, *(term for phrase in query.phrases for term in phrase)])
    if not terms:
        return (query.prefix,) if query.prefix else ()
    # A stem's last letter may differ from the word's ("studi", "study"); what holds digits or signs has no stem.
    return tuple(term[:-1] if len(term) > 4 and term.isalpha() else term for term in terms)


def mentioned(text: str, parts: Sequence[str]) -> int:
    """How many of these parts of words a text holds, its case and accents left aside."""
    folded = bare(text)
    # Pairs of characters of scripts without spaces keep their marks, which are no accents: が is not か.
    marked = folded if text.isascii() else unicodedata.normalize("NFKC", text)
    return sum(part in folded or part in marked for part in parts)
