"""Search, and pages like a page: what was found becomes an answer that fits its budget."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from wikiholt.model import Answer, Hit, Surface
from wikiholt.search.slips import as_typed
from wikiholt.surfaces.documents.meant import showing
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.documents.names import Names
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp.answers import NOTICE, Found, FoundPage, Rest
from wikiholt.surfaces.mcp.arguments import Like, Search
from wikiholt.surfaces.mcp.budget import shortened, tokens

_FRAME = 60
"""Tokens of what stands around a passage: path, heading, lines, score."""
_STALE = "The index has not reached the newest commit: what was changed last may be missing."
_NOTHING = (
    "Nothing relevant was found: the pages listed, if any, are only the nearest there are. Say so, or ask in other "
    "words, or look through list_pages."
)


@dataclass(frozen=True, slots=True)
class _Told:
    pages: list[FoundPage]
    left: int
    shortened: bool


def search(wiki: OpenWiki, asked: Search, budget: int) -> Found:
    request = asked.request()
    request = replace(request, where=wiki.narrowed(request.where))
    if asked.fresh:
        wiki.freshen()
    with wiki.answering() as handle:
        answer = handle.search(request, surface=Surface.MCP)
    return _found(wiki.names, answer, budget, lambda: ("search", asked.model_dump(exclude_defaults=True)))


def similar(wiki: OpenWiki, asked: Like, budget: int) -> Found:
    path, where = wiki.names.meant(asked.path), wiki.narrowed(asked.filter())
    with wiki.answering() as handle:
        answer = handle.similar(path, asked.n, where)
    return _found(wiki.names, answer, budget, lambda: ("similar_pages", asked.model_dump(exclude_defaults=True)))


def _found(names: Names, answer: Answer, budget: int, again: Callable[[], tuple[str, dict[str, Any]]]) -> Found:
    told = _fit(names, answer.hits, budget)
    notes = list(answer.notes)
    if answer.nothing_relevant or not answer.hits:
        notes.insert(0, _NOTHING)
    if answer.did_you_mean:
        typed = as_typed(answer.query, answer.did_you_mean)
        notes.insert(0, f"{showing(answer)} To search for what was typed, ask for: {typed}")
    if answer.stale:
        notes.append(_STALE)
    return {
        "query": answer.query,
        "did_you_mean": answer.did_you_mean or None,
        "mode": answer.mode.value,
        "results": told.pages,
        "nothing_relevant": answer.nothing_relevant or not answer.hits,
        "stale": answer.stale,
        "degraded": answer.degraded,
        "reranked": answer.reranked,
        "indexed_revision": answer.indexed_revision,
        "head_revision": answer.head_revision,
        "notes": notes,
        "notice": NOTICE,
        "rest": _rest(told, budget, again) if told.left or told.shortened else None,
    }


def _rest(told: _Told, budget: int, again: Callable[[], tuple[str, dict[str, Any]]]) -> Rest:
    tool, arguments = again()
    if told.left:
        said = f"{told.left} more results did not fit; ask with more max_tokens, or narrow the search."
    else:
        said = "Some passages did not fit; read them with read_page, or ask with more max_tokens."
    return {"told": said, "tool": tool, "arguments": {**arguments, "max_tokens": min(50_000, budget * 3)}}


def _fit(names: Names, hits: tuple[Hit, ...], budget: int) -> _Told:
    """Hits in their order: with the passage as long as there is room, then with the snippet, then not at all."""
    pages: list[FoundPage] = []
    spent, cut = 0, False
    for number, hit in enumerate(hits):
        frame = _FRAME + tokens(hit.snippet.text)
        whole = frame + tokens(hit.text)
        if pages and spent + frame > budget:
            return _Told(pages, len(hits) - number, cut)
        fits = spent + whole <= budget
        text = hit.text
        if not fits:
            text = "" if pages else shortened(hit.text, max(1, budget - frame))
            cut = True
        pages.append(_page(names, hit, text))
        spent += whole if fits else frame + tokens(text)
    return _Told(pages, 0, cut)


def _page(names: Names, hit: Hit, text: str) -> FoundPage:
    path = names.shown(hit.path)
    return {
        "id": path,
        "title": names.titled(hit.name, hit.path),
        "url": hit.url,
        "path": path,
        "heading_path": list(hit.heading_path),
        "lines": [hit.first_line, hit.last_line],
        "score": hit.score,
        "confidence": hit.confidence.value,
        "category": hit.category,
        "tags": list(hit.tags),
        "last_updated": moment(hit.last_updated),
        "snippet": hit.snippet.text,
        "text": text,
    }
