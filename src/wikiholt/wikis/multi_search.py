"""Merges searches of several wikis. Each wiki is searched by itself, through a handle that the caller may use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from wikiholt.domain.search import SearchInterface, SearchResult
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.session import WikiSession

MAX_WIKIS_PER_SEARCH = 50


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
    """The best hits of all wikis, by score. A score is a probability, so scores of different wikis are comparable.

    A wiki that cannot be searched is named in the notes, and so are those of `failures`, which could not be opened.
    Raises the first error if no wiki can be searched.
    """
    results: dict[str, SearchResult] = {}
    errors = dict(failures)
    for handle in handles:
        try:
            results[handle.wiki.slug] = handle.search(request, interface=interface)
        except WikiholtError as error:
            errors[handle.wiki.slug] = error
    if not results:
        raise next(iter(errors.values()))
    return _merge_results(request, results, {slug: describe_error(error) for slug, error in errors.items()})


def _merge_results(request: SearchRequest, results: dict[str, SearchResult], reasons: dict[str, str]) -> SearchResult:
    hits = [replace(hit, wiki=slug) for slug, result in results.items() for hit in result.hits]
    # The sort is stable: hits of equal score stay in the order of their wiki.
    hits.sort(key=lambda hit: -hit.score)
    corrected = {result.did_you_mean for result in results.values()}
    notes = [f"{slug}: {note}" for slug, result in results.items() for note in result.notes]
    if len(corrected) > 1:  # some wikis know the words as typed
        notes += [f"{slug}: searched for “{r.did_you_mean}”" for slug, r in results.items() if r.did_you_mean]
    notes += [f"{slug} was not searched: {reason}" for slug, reason in reasons.items()]
    return SearchResult(
        query=request.query,
        mode=next(iter(results.values())).mode,
        hits=tuple(hits[: request.n]),
        total=sum(result.total for result in results.values()),
        took_ms=sum(result.took_ms for result in results.values()),
        indexed_revision=None,
        head_revision=None,
        stale=any(result.stale for result in results.values()),
        degraded=bool(reasons) or any(result.degraded for result in results.values()),
        nothing_relevant=all(result.nothing_relevant for result in results.values()),
        notes=tuple(notes),
        did_you_mean=corrected.pop() if len(corrected) == 1 else "",
        reranked=any(result.reranked for result in results.values()),
        wikis=tuple(results),
    )
