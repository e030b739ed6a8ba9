"""Merges searches of several wikis. Each wiki is searched by itself, through a handle that the caller may use."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from wikiholt.domain.search import Confidence, Facet, Hit, PropertyFacets, SearchInterface, SearchResult, SortOrder
from wikiholt.errors import InvalidQuery, WikiholtError
from wikiholt.search.ranking import rate_score
from wikiholt.search.request import MAX_HITS, SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.session import WikiSession

MAX_WIKIS_PER_SEARCH = 50
_MAX_ANSWER = 0.999
"""No wiki is so certain that the others have no weight."""
_OLDEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenedWikis:
    """The wikis that a caller may search: those that could be opened, and the errors of the others by slug."""

    sessions: list[WikiSession]
    failures: dict[str, WikiholtError]


def search_wikis(
    handles: Sequence[WikiHandle],
    request: SearchRequest,
    *,
    interface: SearchInterface,
    failures: Mapping[str, WikiholtError] = MappingProxyType({}),
    describe_error: Callable[[WikiholtError], str] = lambda error: error.message,
) -> SearchResult:
    """The best hits of all wikis, by score: the probability that one is the page wanted, among the pages of all wikis.

    A wiki that cannot be searched is named in the notes, and so are those of `failures`, which could not be opened.
    Raises the first error if no wiki can be searched.
    """
    if request.depth > MAX_HITS:
        raise InvalidQuery(
            f"{request.depth} hits of several wikis were requested", hint=f"use at most {MAX_HITS}, or name one wiki"
        )
    of_each = replace(request, offset=0, n=request.depth)
    results: dict[str, SearchResult] = {}
    errors = dict(failures)
    for handle in handles:
        try:
            results[handle.wiki.slug] = handle.search(of_each, interface=interface)
        except WikiholtError as error:
            errors[handle.wiki.slug] = error
    if not results:
        raise next(iter(errors.values()))
    return _merge_results(request, results, {slug: describe_error(error) for slug, error in errors.items()})


def _merge_results(request: SearchRequest, results: dict[str, SearchResult], reasons: dict[str, str]) -> SearchResult:
    hits = _weigh_hits(results)
    # The sort is stable: hits of equal score stay in the order of their wiki.
    if request.sort is SortOrder.DATE:
        hits.sort(key=lambda hit: hit.last_updated or _OLDEST, reverse=True)
    else:
        hits.sort(key=lambda hit: hit.score, reverse=True)
    corrected = {result.did_you_mean for result in results.values()}
    # A sound wiki of which no page passes the filter needs no explanation if there are hits of others.
    explained = {
        slug: result
        for slug, result in results.items()
        if not hits or result.considered or result.degraded or result.stale  # stale: its repository may be unreadable
    }
    notes = [f"{slug}: {note}" for slug, result in explained.items() for note in result.notes]
    if len(corrected) > 1:  # some wikis know the words as typed
        notes += [f"{slug}: searched for “{r.did_you_mean}”" for slug, r in results.items() if r.did_you_mean]
    notes += [f"{slug} was not searched: {reason}" for slug, reason in reasons.items()]
    return SearchResult(
        query=request.query,
        mode=next(iter(results.values())).mode,
        hits=tuple(hits[request.offset : request.depth]),
        considered=sum(result.considered for result in results.values()),
        took_ms=sum(result.took_ms for result in results.values()),
        indexed_revision=None,
        head_revision=None,
        stale=any(result.stale for result in results.values()),
        degraded=bool(reasons) or any(result.degraded for result in results.values()),
        nothing_relevant=all(result.nothing_relevant for result in results.values()),
        notes=tuple(notes),
        did_you_mean=corrected.pop() if len(corrected) == 1 else "",
        reranked=any(result.reranked for result in results.values()),
        offset=request.offset,
        facets=tuple(_merge_facets(name, results.values()) for name in request.facets),
        wikis=tuple(results),
        meaning_ready=min(result.meaning_ready for result in results.values()),
        seconds_left=max((r.seconds_left for r in results.values() if r.seconds_left is not None), default=None),
    )


def _weigh_hits(results: Mapping[str, SearchResult]) -> list[Hit]:
    """The hits of all wikis. A wiki that more likely has an answer takes probability from the others."""
    answers = {
        slug: min(max((result.answer, *(hit.score for hit in result.hits))), _MAX_ANSWER)
        for slug, result in results.items()
    }
    total = 1 + sum(answer / (1 - answer) for answer in answers.values())
    hits = []
    for slug, result in results.items():
        weight = 1 / (1 - answers[slug]) / total
        for hit in result.hits:
            score = hit.score * weight
            rated = rate_score(score, is_medium=hit.confidence is not Confidence.LOW)
            is_unknown = hit.confidence is Confidence.UNKNOWN
            hits.append(replace(hit, wiki=slug, score=score, confidence=hit.confidence if is_unknown else rated))
    return hits


def _merge_facets(name: str, results: Iterable[SearchResult]) -> PropertyFacets:
    """The values of a property in all wikis, most frequent first."""
    counts: Counter[str] = Counter()
    for facet in (facet for result in results for facet in result.facets if facet.name == name):
        counts.update({value.value: value.count for value in facet.values})
    return PropertyFacets(name, tuple(Facet(value, count) for value, count in counts.most_common()))
