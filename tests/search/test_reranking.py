"""Reranked searches: order, scores, and failures of the reranker."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.candidate_fixtures import Row, make_rows
from tests.search.rerank_fixtures import PAGES, RerankFixture, ReversingReranker, TimedOutReranker, get_ranking
from wikiholt.domain.index import CosineScale
from wikiholt.domain.protocols import Reranker
from wikiholt.domain.search import SearchInterface, SearchMode
from wikiholt.errors import InvalidQuery, ModelMissing
from wikiholt.search.ranking import (
    Candidates,
    QueryShape,
    Verdict,
    compute_features,
    judge_answer,
    make_query_shape,
    rank_candidates,
    with_likelihoods,
)
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import RERANK_DEPTH, RerankConfig, reorder_candidates, should_rerank
from wikiholt.testing import FakeReranker
from wikiholt.wikis.handle import WikiHandle

RERANKED_MODES = [SearchMode.HYBRID, SearchMode.SEMANTIC]
QUERY = "how often is the boiler inspected when in use"


@pytest.fixture(scope="module")
def rerank_wiki(tmp_path_factory: pytest.TempPathFactory) -> RerankFixture:
    return RerankFixture(tmp_path_factory.mktemp("house"))


@pytest.fixture
def plain(rerank_wiki: RerankFixture) -> Iterator[WikiHandle]:
    handle = rerank_wiki.open_handle()
    yield handle
    handle.close()


@pytest.mark.parametrize("mode", RERANKED_MODES)
def test_the_reranker_changes_the_order_and_the_answer_says_so(
    rerank_wiki: RerankFixture, plain: WikiHandle, mode: SearchMode
) -> None:
    reader = ReversingReranker()
    handle = rerank_wiki.open_handle(lambda: reader)
    answer, before = (
        handle.search(SearchRequest(QUERY, 30, mode, rerank=True)),
        plain.search(SearchRequest(QUERY, 30, mode)),
    )
    assert (answer.reranked, answer.degraded, before.reranked) == (True, False, False)
    assert [path for path, _, _ in get_ranking(answer)] != [path for path, _, _ in get_ranking(before)]
    assert {hit.path for hit in answer.hits[:RERANK_DEPTH]} == {hit.path for hit in before.hits[:RERANK_DEPTH]}
    assert [hit.path for hit in answer.hits[RERANK_DEPTH:]] == [hit.path for hit in before.hits[RERANK_DEPTH:]]
    handle.close()


@pytest.mark.parametrize("mode", RERANKED_MODES)
def test_a_larger_n_only_extends_a_reranked_list(rerank_wiki: RerankFixture, mode: SearchMode) -> None:
    handle = rerank_wiki.open_handle(ReversingReranker)
    complete = get_ranking(handle.search(SearchRequest(QUERY, len(PAGES), mode, rerank=True)))
    assert len(complete) == len(PAGES)
    for n in (1, 3, RERANK_DEPTH - 1, RERANK_DEPTH, RERANK_DEPTH + 1, 25):
        assert get_ranking(handle.search(SearchRequest(QUERY, n, mode, rerank=True))) == complete[:n]
    handle.close()


@pytest.mark.parametrize("mode", RERANKED_MODES)
@pytest.mark.parametrize("reader", [FakeReranker, ReversingReranker])
def test_scores_stay_in_bounds_and_never_rise_down_the_list(
    rerank_wiki: RerankFixture, mode: SearchMode, reader: type[FakeReranker]
) -> None:
    handle = rerank_wiki.open_handle(reader)
    scores = [score for _, score, _ in get_ranking(handle.search(SearchRequest(QUERY, 30, mode, rerank=True)))]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    handle.close()


def test_name_headings_and_passage_are_read_of_each_page_once(rerank_wiki: RerankFixture) -> None:
    reader = FakeReranker()
    handle = rerank_wiki.open_handle(lambda: reader)
    handle.search(SearchRequest("inspect the boiler", 1, rerank=True))
    ((query, texts),) = reader.calls
    assert query == "inspect the boiler"
    assert len(texts) == len(set(texts)) == 2 * RERANK_DEPTH
    passages, names = texts[:RERANK_DEPTH], texts[RERANK_DEPTH:]
    assert any(text.startswith("Boiler inspect") and "every 2 weeks" in text for text in passages)
    assert "boiler / inspect\nBoiler inspect" in names
    assert not any("#" in text for text in texts)
    handle.close()


@pytest.mark.parametrize("mode", RERANKED_MODES)
@pytest.mark.parametrize("n", [1, 7, 30])
def test_after_the_time_limit_the_answer_is_not_reranked(
    rerank_wiki: RerankFixture, plain: WikiHandle, mode: SearchMode, n: int
) -> None:
    handle = rerank_wiki.open_handle(TimedOutReranker)
    answer, before = (
        handle.search(SearchRequest(QUERY, n, mode, rerank=True)),
        plain.search(SearchRequest(QUERY, n, mode)),
    )
    assert answer.hits == before.hits
    assert (answer.reranked, answer.degraded, before.degraded) == (False, True, False)
    assert any("timeout" in note for note in answer.notes)
    same = replace(answer, took_ms=0.0, degraded=False, notes=())
    assert same == replace(before, took_ms=0.0)
    handle.close()


def _raise_missing_model() -> Reranker:
    raise ModelMissing("The package is not installed at /somewhere/secret", hint="install it")


@pytest.mark.parametrize("mode", RERANKED_MODES)
def test_a_missing_reranker_is_noted_by_code_and_logged_in_full(
    rerank_wiki: RerankFixture, plain: WikiHandle, mode: SearchMode, caplog: pytest.LogCaptureFixture
) -> None:
    handle = rerank_wiki.open_handle(_raise_missing_model)
    with caplog.at_level(logging.WARNING):
        answer = handle.search(SearchRequest(QUERY, 5, mode, rerank=True))
    assert answer.hits == plain.search(SearchRequest(QUERY, 5, mode)).hits
    assert (answer.reranked, answer.degraded) == (False, True)
    assert any("model-missing" in note for note in answer.notes)
    assert "secret" not in str(answer.notes)
    assert "not installed at /somewhere/secret" in caplog.text
    handle.close()


class FailingReranker(FakeReranker):
    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        raise RuntimeError("a path of this machine")


def test_any_failure_of_the_reranker_only_disables_reranking(
    rerank_wiki: RerankFixture, plain: WikiHandle, caplog: pytest.LogCaptureFixture
) -> None:
    handle = rerank_wiki.open_handle(FailingReranker)
    answer = handle.search(SearchRequest(QUERY, 5, rerank=True))
    assert answer.hits == plain.search(SearchRequest(QUERY, 5)).hits
    assert (answer.reranked, answer.degraded) == (False, True)
    assert any("failed" in note for note in answer.notes)
    assert "machine" not in str(answer.notes)
    assert "a path of this machine" in caplog.text
    handle.close()


def test_rerank_false_does_not_call_the_reranker(rerank_wiki: RerankFixture, plain: WikiHandle) -> None:
    handle = rerank_wiki.open_handle(_raise_missing_model)
    answer = handle.search(SearchRequest(QUERY, 5, rerank=False))
    assert answer.hits == plain.search(SearchRequest(QUERY, 5)).hits
    assert (answer.reranked, answer.degraded) == (False, False)
    handle.close()


def _rank(rows: Sequence[Row], mode: SearchMode = SearchMode.HYBRID) -> tuple[Candidates, Verdict]:
    ranked = rank_candidates(mode, make_rows(rows), QueryShape(), CosineScale())
    return ranked, judge_answer(mode, ranked, QueryShape(), CosineScale())


def _make_candidates(share: float, other: float) -> list[Row]:
    """Two pages that contain these shares of the words, at distances to match."""
    return [Row(1, 1, 1 - share, share), Row(2, 2, 1 - other, other)]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.95, 0.2), False), ((0.5, 0.48), True), ((0.05, 0.04), False)],
    ids=["clear", "unclear", "hopeless"],
)
def test_a_hybrid_search_is_reranked_if_its_answer_is_unclear(shares: tuple[float, float], expected: bool) -> None:
    candidates, verdict = _rank(_make_candidates(*shares))
    question = QueryShape(function_words=0.5, brevity=1.0)
    assert should_rerank(SearchRequest("boiler"), candidates, verdict, question) is expected
    assert should_rerank(SearchRequest("boiler", rerank=True), candidates, verdict, question)
    assert not should_rerank(SearchRequest("boiler", rerank=False), candidates, verdict, question)
    assert should_rerank(SearchRequest("boiler", mode=SearchMode.SEMANTIC), candidates, verdict, question)
    assert not should_rerank(SearchRequest("boiler", rerank=True), candidates[:0], verdict, question)


def test_a_name_is_reranked_only_on_request() -> None:
    candidates, verdict = _rank(_make_candidates(0.5, 0.48))
    name, words = (make_query_shape(terms, len(terms)) for terms in (["boiler", "room"], ["a", "b", "c", "d", "e"]))
    assert not should_rerank(SearchRequest("boiler room"), candidates, verdict, name)
    assert should_rerank(SearchRequest("boiler room", rerank=True), candidates, verdict, name)
    assert not should_rerank(SearchRequest("many words"), candidates, verdict, words)
    question = make_query_shape(["boiler"], 3)
    assert should_rerank(SearchRequest("where is boiler"), candidates, verdict, question)


def test_the_automatic_reranker_is_for_english_wikis_on_the_command_line_and_for_agents() -> None:
    config = RerankConfig(_raise_missing_model, 1.0, interfaces=frozenset({SearchInterface.CLI, SearchInterface.MCP}))
    asked, unasked = SearchRequest("where", rerank=True), SearchRequest("where")
    for interface in (SearchInterface.CLI, SearchInterface.MCP):
        assert config.limit(unasked, interface, "english") == unasked
        assert config.limit(asked, interface, "german") == asked
        for language in ("german", "english+german"):
            assert config.limit(unasked, interface, language).rerank is False
    for interface in (SearchInterface.HTTP, SearchInterface.OTTERWIKI):
        assert config.limit(unasked, interface, "english").rerank is False
        with pytest.raises(InvalidQuery, match="no reranker"):
            config.limit(asked, interface, "english")
    assert replace(config, interfaces=None).limit(unasked, SearchInterface.HTTP, "german") == unasked


def test_a_clear_answer_does_not_load_the_reranker(rerank_wiki: RerankFixture, plain: WikiHandle) -> None:
    handle = rerank_wiki.open_handle(_raise_missing_model)
    answer = handle.search(SearchRequest("boiler inspect", 5))
    assert answer.hits == plain.search(SearchRequest("boiler inspect", 5)).hits
    assert (answer.reranked, answer.degraded) == (False, False)
    assert handle.search(SearchRequest("boiler inspect", 5, rerank=True)).degraded
    handle.close()


def test_rerank_without_a_configured_reranker_is_refused(plain: WikiHandle) -> None:
    with pytest.raises(InvalidQuery, match="no reranker") as caught:
        plain.search(SearchRequest(QUERY, 5, rerank=True))
    assert "rerank.model" in caught.value.hint
    assert plain.search(SearchRequest(QUERY, 5)).hits


def test_keyword_and_similar_searches_are_not_reranked(rerank_wiki: RerankFixture) -> None:
    reader = FakeReranker()
    handle = rerank_wiki.open_handle(lambda: reader)
    answer = handle.search(SearchRequest("boiler", 5, SearchMode.KEYWORD, rerank=True))
    assert answer.hits
    assert (answer.reranked, answer.degraded) == (False, False)
    assert any("not reranked" in note for note in answer.notes)
    assert not handle.find_similar("boiler/clean").reranked
    assert reader.calls == []
    handle.close()


def test_several_passages_of_a_page_are_reranked_separately_and_all_kept(rerank_wiki: RerankFixture) -> None:
    handle = rerank_wiki.open_handle(FakeReranker)
    complete = get_ranking(handle.search(SearchRequest(QUERY, 30, chunks_per_page=2, rerank=True)))
    assert get_ranking(handle.search(SearchRequest(QUERY, 4, chunks_per_page=2, rerank=True))) == complete[:4]
    handle.close()


def test_a_page_rated_higher_by_the_reranker_comes_first_with_the_likelihood_of_that_place() -> None:
    ranked, verdict = _rank([Row(1, 1, 0.5, 0.4), Row(2, 2, 0.5, 0.4)])
    best = reorder_candidates(SearchMode.HYBRID, ranked, [-8.0, 8.0], [-8.0, 8.0], verdict)
    assert best["page_id"].tolist() == [2, 1]
    unread = with_likelihoods(ranked, verdict)
    assert best["likelihood"].tolist() == unread["likelihood"].tolist()


def test_pages_far_behind_the_best_keep_their_order() -> None:
    candidates = [Row(number, number, 0.5, 0.4 - number / 100) for number in (1, 2, 3)]
    logits = [-6.0, -4.0, 9.0]
    for mode in RERANKED_MODES:
        ranked, verdict = _rank(candidates, mode)
        ordered = reorder_candidates(mode, ranked, logits, logits, verdict)
        assert ordered["page_id"].tolist() == [3, 1, 2]


def test_a_name_counts_less_where_names_were_compared() -> None:
    near, named = Row(1, 1, 0.50), Row(2, 2, 0.55)
    orders = {}
    for mode in RERANKED_MODES:
        ranked, verdict = _rank([near, named], mode)
        orders[mode] = reorder_candidates(mode, ranked, [0.0, 8.0], [0.0, 0.0], verdict)["page_id"].tolist()
    assert orders == {SearchMode.HYBRID: [1, 2], SearchMode.SEMANTIC: [2, 1]}


def test_a_models_cosines_count_on_the_common_scale() -> None:
    high = CosineScale(0.5, 0.9)
    far_and_near = make_rows([Row(2, 2, 0.6), Row(1, 1, 0.3)])
    assert compute_features(far_and_near, high)[0].tolist() == pytest.approx([0, 0.5])
    ranked = rank_candidates(SearchMode.SEMANTIC, far_and_near, QueryShape(), high)
    assert ranked["page_id"].tolist() == [1, 2]
    distances = (0.0, 0.1234567, 0.7, 1.0, 1.4)
    unscaled = compute_features(make_rows([Row(1, 1, distance) for distance in distances]), CosineScale())[0]
    assert unscaled.tolist() == [max(0.0, 1.0 - distance) for distance in distances]


def test_a_wiki_is_searched_on_the_scale_of_the_model_it_was_built_with(
    rerank_wiki: RerankFixture, plain: WikiHandle
) -> None:
    scaled = rerank_wiki.open_handle(scale=CosineScale(0.3, 0.9))
    for mode in RERANKED_MODES:
        before, after = (handle.search(SearchRequest(QUERY, 30, mode)).hits for handle in (plain, scaled))
        assert [hit.distance for hit in before] != [hit.score for hit in before]
        assert {hit.path: hit.distance for hit in before} == {hit.path: hit.distance for hit in after}
        assert [hit.score for hit in before] != [hit.score for hit in after]
    scaled.close()


def test_etags_of_answers_depend_on_the_reranker(rerank_wiki: RerankFixture, plain: WikiHandle, tmp_path: Path) -> None:
    handle = rerank_wiki.open_handle(FakeReranker)
    assert (handle.reranker_identity, plain.reranker_identity) == ("a reader", "")
    assert handle.get_version_token() == plain.get_version_token()
    handle.close()
