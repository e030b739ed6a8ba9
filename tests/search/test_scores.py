"""Properties of scores: independent of n, consistent with the order, and meaningful."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.candidate_fixtures import Row, make_rows
from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.index import CosineScale
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import Confidence, SearchMode
from wikiholt.errors import ModelError
from wikiholt.models import load_embedder
from wikiholt.search.ranking import (
    ANSWER_PROBABILITY,
    COMPETING_PAGES,
    HIGH_SCORE,
    Candidate,
    QueryShape,
    TitleMatch,
    Verdict,
    judge_answer,
    make_query_shape,
    rank_candidates,
    rate_candidates,
    with_likelihoods,
)
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

LONG_TEXT = "\n\n".join(
    f"## Week {week}\n\nThe tomatoes were watered on day {week} and the beds by the wall weeded; the hoses leak again, "
    f"so bed {week} stayed dry until the evening, and the slugs came back to the lettuce after the rain."
    for week in range(1, 12)
)
PAGES: PageFiles = {
    "garden/journal.md": f"# Journal of the garden\n\n{LONG_TEXT}\n",
    "garden/tomatoes.md": "# Tomatoes\n\nWater tomatoes in the morning, at the root, and never over the leaves.\n",
    "garden/slugs.md": "# Slugs\n\nSlugs come after rain. Boards laid between the lettuce gather them by morning.\n",
    "garden/compost.md": "# Compost\n\nTurn the heap every other week; it must be as damp as a wrung sponge.\n",
    "office/printer.md": (
        "# Printer\n\nA jam is nearly always behind the rear flap. Error 0x6100 means that the drum is worn out.\n"
    ),
    "office/phones.md": "# Phones\n\nTo pass a call on, press hold, then the number, then hang up.\n",
    "office/keys-east.md": "# Keys, east wing\n\nKeys for the east wing hang in the porter's lodge. Sign for them.\n",
    "office/keys-west.md": "# Keys, west wing\n\nKeys for the west wing hang in the porter's lodge. Sign for them.\n",
    "kitchen/coffee.md": "# Coffee machine\n\nDescale it twice a year; code TRN-5031 on the display asks for it.\n",
    "kitchen/spares.md": "# Spare parts\n\nThe seal for TRN-5031 is in the left drawer, with the filters.\n",
}
QUERIES = ("slugs after rain", "0x6100", "keys of the wing -phones")


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.model)])
def notes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedWiki]:
    embedder = load_embedder(precision="int8") if request.param == "real" else None
    made = IndexedWiki(tmp_path_factory.mktemp("scores"), PAGES, embedder and (lambda: embedder)).sync()
    yield made
    made.close()


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedWiki]:
    embedder: Embedder = load_embedder(precision="int8")
    made = IndexedWiki(tmp_path_factory.mktemp("handbook"), PAGES, lambda: embedder).sync()
    yield made
    made.close()


@pytest.mark.parametrize("mode", list(SearchMode))
@pytest.mark.parametrize("per_page", [1, 3])
def test_the_first_hits_and_their_scores_are_the_same_for_every_n(
    notes: IndexedWiki, mode: SearchMode, per_page: int
) -> None:
    for query in QUERIES:
        request = SearchRequest(query, n=20, mode=mode, chunks_per_page=per_page)
        complete = [(hit.path, hit.score, hit.confidence) for hit in notes.handle.search(request).hits]
        for n in range(1, len(complete) + 1):
            some = notes.handle.search(dataclasses.replace(request, n=n)).hits
            assert [(hit.path, hit.score, hit.confidence) for hit in some] == complete[: len(some)]
            assert len(some) == n or per_page > 1  # a passage of two candidates is shown once


amounts = st.floats(0, 1)
candidate = st.builds(
    Row,
    page_id=st.integers(1, 8),
    chunk_id=st.just(1),
    distance=st.floats(0, 1.3),
    share=st.none() | amounts,
    title=st.builds(TitleMatch, amounts, amounts, st.integers(1, 500)),
    page_cosine=st.none() | amounts,
    likelihood=st.none(),
)
PLAIN, SCALE = QueryShape(), CosineScale()
shapes = st.builds(QueryShape, st.floats(0, 1), amounts, amounts, st.sampled_from([0.0, 1.0]))


def score(mode: SearchMode, found: Sequence[Row], shape: QueryShape = PLAIN) -> list[Candidate]:
    """Rank, judge and rate candidates as a search does."""
    ranked = rank_candidates(mode, make_rows(found), shape, SCALE)
    verdict = judge_answer(mode, ranked, shape, SCALE)
    return rate_candidates(with_likelihoods(ranked, verdict), verdict)


@given(st.sampled_from(SearchMode), st.lists(candidate, max_size=40), shapes)
def test_scores_follow_the_order_and_are_probabilities(mode: SearchMode, found: list[Row], shape: QueryShape) -> None:
    rated = score(mode, found, shape)
    ranked = rank_candidates(mode, make_rows(found), shape, SCALE)
    assert [hit.page_id for hit in rated] == ranked["page_id"].tolist()
    scores = [hit.likelihood for hit in rated]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= each <= 1 for each in scores)
    by_page = {hit.page_id: each for hit, each in reversed(list(zip(rated, scores, strict=True)))}
    assert sum(sorted(by_page.values(), reverse=True)[:COMPETING_PAGES]) <= 1 + 1e-9


@given(st.sampled_from(SearchMode), st.lists(candidate, min_size=1, max_size=8), shapes, st.integers(0, 8))
def test_a_score_depends_only_on_the_pages_that_compete(
    mode: SearchMode, found: list[Row], shape: QueryShape, n: int
) -> None:
    ranked = rank_candidates(mode, make_rows(found), shape, SCALE)
    verdict = judge_answer(mode, ranked, shape, SCALE)
    assert rate_candidates(with_likelihoods(ranked[:n], verdict), verdict) == score(mode, found, shape)[:n]


@given(st.sampled_from([SearchMode.HYBRID, SearchMode.SEMANTIC]), st.lists(candidate, min_size=1, max_size=8), amounts)
def test_a_nearer_page_never_ranks_lower(mode: SearchMode, found: list[Row], more: float) -> None:
    first = found[0]._replace(title=TitleMatch())
    nearer = first._replace(distance=(first.distance or 0.0) - more)
    ranks = [score(mode, [each])[0].rank for each in (first, nearer)]
    assert ranks[1] >= ranks[0] - 1e-9


def test_words_count_less_in_a_sentence_and_more_for_a_code() -> None:
    near, worded = Row(1, 1, 0.45, 0.1), Row(2, 2, 0.75, 0.8)
    sentence, name = make_query_shape(("pump", "clean", "often"), 8), make_query_shape(("xj4711", "pump"), 2)
    assert score(SearchMode.HYBRID, [near, worded], sentence)[0].page_id == 1
    assert score(SearchMode.HYBRID, [near, worded], name)[0].page_id == 2


def test_passages_of_one_page_do_not_compete() -> None:
    passages = [Row(1, chunk, 0.2, 0.8, title=TitleMatch(0.5, 0.5)) for chunk in (1, 2, 3)]
    alone, several = (score(SearchMode.HYBRID, found)[0] for found in (passages[:1], passages))
    assert alone.likelihood == several.likelihood


def test_equally_good_pages_are_an_answer_together() -> None:
    pages = [Row(page_id, page_id, 0.35, 0.6) for page_id in range(8)]
    rated = score(SearchMode.HYBRID, pages)
    assert rated[0].likelihood < ANSWER_PROBABILITY
    assert {hit.confidence for hit in rated} == {Confidence.MEDIUM}
    assert {hit.confidence for hit in score(SearchMode.HYBRID, [Row(1, 1, 0.9, 0.05)])} == {Confidence.LOW}


@pytest.mark.model
@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
@pytest.mark.parametrize(("code", "page"), [("0x6100", "office/printer"), ("TRN-5031", "kitchen/coffee")])
def test_a_rare_code_is_not_a_low_hit(handbook: IndexedWiki, mode: SearchMode, code: str, page: str) -> None:
    answer = handbook.handle.search(SearchRequest(code, n=3, mode=mode))
    assert page in [hit.path for hit in answer.hits[:2]]
    assert answer.hits[0].confidence is not Confidence.LOW
    assert not answer.nothing_relevant


@pytest.mark.model
@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_distinctly_best_page_has_high_confidence(handbook: IndexedWiki, mode: SearchMode) -> None:
    first, *others = handbook.handle.search(SearchRequest("turn the compost heap", n=3, mode=mode)).hits
    assert (first.path, first.confidence) == ("garden/compost", Confidence.HIGH)
    assert all(hit.confidence is Confidence.LOW for hit in others)


@pytest.mark.model
def test_of_two_equally_good_pages_neither_has_high_confidence(handbook: IndexedWiki) -> None:
    first, second = handbook.handle.search(SearchRequest("keys in the porter's lodge", n=2)).hits
    assert {first.path, second.path} == {"office/keys-east", "office/keys-west"}
    assert {first.confidence, second.confidence} == {Confidence.MEDIUM}


@pytest.mark.model
@pytest.mark.parametrize("query", ["where do I get the keys", "borrow the keys of a wing", "where do I sign for a key"])
def test_many_pages_about_a_topic_are_an_answer_together(tmp_path: Path, query: str) -> None:
    wings = ("north", "south", "upper", "lower", "old", "new")
    keys = {
        f"office/keys-{wing}.md": PAGES["office/keys-east.md"].replace("east", wing)  # type: ignore[union-attr]
        for wing in wings
    }
    embedder = load_embedder()
    made = IndexedWiki(tmp_path, {**PAGES, **keys}, lambda: embedder).sync()
    for n in (1, 4):
        answer = made.handle.search(SearchRequest(query, n=n))
        assert not answer.nothing_relevant
        assert all(hit.path.startswith("office/keys-") for hit in answer.hits)
        assert answer.hits[0].confidence is Confidence.MEDIUM
    made.close()


@pytest.mark.model
@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.SEMANTIC])
@pytest.mark.parametrize("query", ["boundary layer in hypersonic flow", "statins and the risk of stroke", "zebra"])
def test_a_question_that_the_wiki_does_not_answer_has_no_relevant_result(
    handbook: IndexedWiki, mode: SearchMode, query: str
) -> None:
    answer = handbook.handle.search(SearchRequest(query, n=5, mode=mode))
    assert answer.hits
    assert answer.nothing_relevant


def test_a_hybrid_search_without_its_model_is_scored_as_keyword_search(tmp_path: Path) -> None:
    away = False

    def embedder() -> Embedder:
        if away:
            raise ModelError("the model is away", hint="bring it back")
        return fake

    fake = FakeEmbedder()
    made = IndexedWiki(tmp_path, PAGES, embedder).sync()
    away = True
    degraded = made.handle.search(SearchRequest("porter wing", n=4))
    words = made.handle.search(SearchRequest("porter wing", n=4, mode=SearchMode.KEYWORD))
    made.close()
    assert degraded.degraded
    assert [(hit.path, hit.score, hit.confidence) for hit in degraded.hits] == [
        (hit.path, hit.score, hit.confidence) for hit in words.hits
    ]


def test_scores_are_finite_for_any_evidence() -> None:
    for mode in SearchMode:
        for amount in (-1e6, 0.0, 1e6):
            (rated,) = score(mode, [Row(1, 1, amount, abs(amount), page_cosine=amount)])
            assert 0 <= (rated.likelihood) <= 1
    assert ANSWER_PROBABILITY < HIGH_SCORE


def test_no_page_is_no_answer() -> None:
    assert score(SearchMode.HYBRID, []) == []
    assert judge_answer(SearchMode.HYBRID, make_rows([]), PLAIN, SCALE) == Verdict()
