"""Merging the results of several wikis: order, pages of hits, facets, failures."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from wikiholt.domain.search import (
    Confidence,
    Facet,
    Hit,
    PropertyFacets,
    SearchInterface,
    SearchMode,
    SearchResult,
    Snippet,
    SortOrder,
)
from wikiholt.errors import IndexMissing, InvalidQuery
from wikiholt.search.request import MAX_HITS, SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.multi_search import search_wikis


def make_hit(path: str, score: float, day: int | None = None) -> Hit:
    updated = datetime(2024, 5, day, tzinfo=UTC) if day else None
    return Hit(path, path, path, Snippet(""), 0.5, score, Confidence.LOW, (), (), "", 1, 1, 0, None, (), updated)


def make_handle(slug: str, hits: Sequence[Hit] = (), error: Exception | None = None, **fields: object) -> WikiHandle:
    """A handle that answers with the first hits, as a wiki does."""

    def search(request: SearchRequest, *, interface: SearchInterface) -> SearchResult:
        assert (request.offset, interface) == (0, SearchInterface.CLI)
        if error is not None:
            raise error
        values = {
            "indexed_revision": "a",
            "head_revision": "a",
            "stale": False,
            "degraded": False,
            "nothing_relevant": False,
            "considered": 10,
        } | fields
        return SearchResult("q", SearchMode.HYBRID, tuple(hits[: request.n]), took_ms=1.0, **values)  # type: ignore[arg-type]

    return cast(WikiHandle, SimpleNamespace(wiki=SimpleNamespace(slug=slug), search=search))


def search(request: SearchRequest, *handles: WikiHandle) -> SearchResult:
    return search_wikis(handles, request, interface=SearchInterface.CLI)


GARDEN = make_handle("garden", [make_hit("a", 0.8, 1), make_hit("b", 0.4, 3), make_hit("c", 0.1)], answer=0.8)
KITCHEN = make_handle("kitchen", [make_hit("d", 0.7, 2), make_hit("e", 0.4, 4)], answer=0.8)


def get_places(result: SearchResult) -> list[str]:
    return [f"{hit.wiki}/{hit.path}" for hit in result.hits]


def test_hits_are_ordered_by_score_and_equal_scores_by_wiki() -> None:
    result = search(SearchRequest("q", 4), GARDEN, KITCHEN)
    assert get_places(result) == ["garden/a", "kitchen/d", "garden/b", "kitchen/e"]
    assert (result.wikis, result.considered, result.took_ms) == (("garden", "kitchen"), 20, 2.0)


def test_a_wiki_that_more_likely_has_an_answer_takes_probability_from_the_others() -> None:
    vague = make_handle("vague", [make_hit("v", 0.6)], answer=0.6)
    sure = make_handle("sure", [make_hit("s", 0.5), make_hit("t", 0.4)], answer=0.95)
    result = search(SearchRequest("q"), vague, sure)
    assert get_places(result) == ["sure/s", "sure/t", "vague/v"]
    # The odds are 1.5 and 19; each wiki's share of them is divided among its pages as before.
    assert [hit.score for hit in result.hits] == pytest.approx(
        [0.5 / 0.95 * 19 / 21.5, 0.4 / 0.95 * 19 / 21.5, 1.5 / 21.5]
    )


def test_the_confidence_follows_the_score_among_all_wikis() -> None:
    names = ("one", "two")
    handles = [
        make_handle(name, [replace(make_hit(name, 0.9), confidence=Confidence.HIGH)], answer=0.9) for name in names
    ]
    assert [hit.confidence for hit in search(SearchRequest("q"), *handles).hits] == [Confidence.MEDIUM] * 2
    (alone,) = search(SearchRequest("q"), handles[0]).hits
    assert (alone.score, alone.confidence) == (pytest.approx(0.9), Confidence.HIGH)


def test_a_page_that_is_surely_right_leaves_the_others_a_score() -> None:
    sure = make_handle("sure", [make_hit("s", 1.0)], answer=1.0)
    result = search(SearchRequest("q"), sure, KITCHEN)
    assert get_places(result) == ["sure/s", "kitchen/d", "kitchen/e"]
    assert all(0 < hit.score <= 1 for hit in result.hits)


def test_pages_of_hits_follow_one_another() -> None:
    pages = [get_places(search(SearchRequest("q", 2, offset=at), GARDEN, KITCHEN)) for at in (0, 2, 4, 6)]
    assert pages == [["garden/a", "kitchen/d"], ["garden/b", "kitchen/e"], ["garden/c"], []]
    with pytest.raises(InvalidQuery) as refused:
        search(SearchRequest("q", MAX_HITS, offset=1), GARDEN, KITCHEN)
    assert "name one wiki" in refused.value.hint


def test_hits_can_be_ordered_by_date_and_those_without_come_last() -> None:
    result = search(SearchRequest("q", 5, sort=SortOrder.DATE), GARDEN, KITCHEN)
    assert get_places(result) == ["kitchen/e", "garden/b", "kitchen/d", "garden/a", "garden/c"]


def test_values_of_a_property_are_counted_in_all_wikis() -> None:
    def make(slug: str, *values: Facet) -> WikiHandle:
        return make_handle(slug, facets=(PropertyFacets("status", values),))

    handles = make("a", Facet("draft", 2), Facet("done", 1)), make("b", Facet("done", 4))
    (facets,) = search(SearchRequest("q", facets=("status",)), *handles).facets
    assert facets == PropertyFacets("status", (Facet("done", 5), Facet("draft", 2)))


def test_a_wiki_that_fails_is_a_note_and_only_failures_are_an_error() -> None:
    broken = make_handle("broken", error=IndexMissing("not indexed yet", hint="sync it"))
    result = search(SearchRequest("q"), broken, KITCHEN)
    assert (result.degraded, result.notes, result.wikis) == (
        True,
        ("broken was not searched: not indexed yet",),
        ("kitchen",),
    )
    with pytest.raises(IndexMissing):
        search(SearchRequest("q"), broken)


def test_the_merged_result_is_as_fresh_and_as_relevant_as_its_parts() -> None:
    stale = make_handle("stale", [make_hit("s", 0.2)], stale=True, nothing_relevant=True, did_you_mean="sage")
    result = search(SearchRequest("q"), stale, KITCHEN)
    assert (result.stale, result.nothing_relevant, result.did_you_mean) == (True, False, "")
    assert "stale: searched for “sage”" in result.notes
    assert search(SearchRequest("q"), stale).did_you_mean == "sage"


def test_a_wiki_whose_filter_is_empty_is_explained_only_if_nothing_was_found() -> None:
    empty = make_handle("empty", [], considered=0, notes=("no page has the tag 'x'",))
    assert search(SearchRequest("q"), empty, KITCHEN).notes == ()
    assert search(SearchRequest("q"), empty).notes == ("empty: no page has the tag 'x'",)


def test_a_wiki_whose_repository_cannot_be_read_is_always_named() -> None:
    missing = make_handle(
        "missing", [], considered=0, stale=True, head_revision=None, notes=("its repository is missing",)
    )
    assert search(SearchRequest("q"), missing, KITCHEN).notes == ("missing: its repository is missing",)
