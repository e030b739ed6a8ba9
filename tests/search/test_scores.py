"""Properties of scores: independent of n, consistent with the order, and meaningful."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.index import CosineScale
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import Confidence, PageFilter, SearchMode
from wikiholt.embedding import load_embedder
from wikiholt.errors import ModelError
from wikiholt.search import searcher
from wikiholt.search.ranking import (
    ANSWER_SUMS,
    CLEAR_FACTOR,
    HIGH_SCORE,
    LARGE_WIKI_PAGES,
    MEDIUM_SCORES,
    SMALL_WIKI_PAGES,
    SUMMED_PAGES,
    Candidate,
    Competition,
    ScoreFeatures,
    align_likelihoods,
    compute_likelihood,
    get_competition,
    limit_likelihoods,
    rank_candidates,
    rate_hits,
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
    Candidate,
    page_id=st.integers(1, 8),
    chunk_id=st.just(1),
    distance=st.floats(0, 1.3),
    keyword_share=st.none() | amounts,
    channels=st.just(()),
    likelihood=st.none(),
    title_overlap=amounts,
    scale=st.just(CosineScale()),
    cosine=st.none() | amounts,
)


@given(st.sampled_from(SearchMode), st.lists(candidate, max_size=12))
def test_scores_do_not_change_the_order(mode: SearchMode, found: list[Candidate]) -> None:
    def amount(hit: Candidate) -> float:
        nearest, words = max(0.0, 1.0 - (hit.distance or 0.0)), hit.keyword_share or 0.0
        meaning = nearest if hit.cosine is None else hit.cosine
        if mode is SearchMode.SEMANTIC:
            return meaning
        return (
            words + 0.2 * hit.title_overlap
            if mode is SearchMode.KEYWORD
            else 0.6 * meaning + 0.4 * words + 0.3 * hit.title_overlap * meaning
        )

    best = rank_candidates(mode, found)
    scored = with_likelihoods(mode, best, get_competition(mode, best))
    assert [hit._replace(likelihood=None) for hit in scored] == best
    for one, after in pairwise(best):
        assert amount(one) >= amount(after) - 1e-9
    judged = [hit.score for hit in rate_hits(mode, limit_likelihoods(scored))]
    assert judged == sorted(judged, reverse=True)
    assert all(0 <= score <= 1 for score in judged)


@given(st.sampled_from(SearchMode), st.lists(candidate, min_size=1, max_size=8), st.integers(0, 8))
def test_a_score_depends_only_on_the_page_and_the_search_depth(
    mode: SearchMode, found: list[Candidate], n: int
) -> None:
    best = rank_candidates(mode, found)
    among = get_competition(mode, best)
    assert with_likelihoods(mode, best[:n], among) == with_likelihoods(mode, best, among)[:n]


@given(st.sampled_from(SearchMode), *[st.floats(-1, 1.3)] * 4, st.floats(0, 0.5))
def test_more_evidence_never_lowers_a_score(
    mode: SearchMode, evidence: float, meaning: float, margin: float, lead: float, more: float
) -> None:
    known = ScoreFeatures(evidence, meaning, margin, lead)
    for name in ScoreFeatures._fields:
        assert compute_likelihood(mode, known._replace(**{name: getattr(known, name) + more})) >= compute_likelihood(
            mode, known
        )


@given(
    st.sampled_from(SearchMode), st.lists(candidate, min_size=1, max_size=8), st.integers(0, 3000), st.integers(0, 3000)
)
def test_the_fewer_pages_a_wiki_has_the_less_evidence_is_needed(
    mode: SearchMode, found: list[Candidate], page_count: int, more: int
) -> None:
    best = rank_candidates(mode, found)
    small, large = (
        with_likelihoods(mode, best, get_competition(mode, best, pages)) for pages in (page_count, page_count + more)
    )
    for one, other in zip(small, large, strict=True):
        assert (one.likelihood or 0) >= (other.likelihood or 0)
        assert one._replace(likelihood=None) == other._replace(likelihood=None)


@pytest.mark.parametrize("mode", list(SearchMode))
def test_scores_differ_only_between_small_and_large_wikis(mode: SearchMode) -> None:
    best = [Candidate(1, 1, 0.6, 0.2)]
    likelihoods = [
        with_likelihoods(mode, best, get_competition(mode, best, pages))[0].likelihood or 0
        for pages in (1, SMALL_WIKI_PAGES, 200, LARGE_WIKI_PAGES, 100_000)
    ]
    tiny, small, medium, large, huge = likelihoods
    assert tiny == small > medium > large == huge


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_search_scores_by_the_number_of_pages_of_its_wiki(
    notes: IndexedWiki, mode: SearchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_counts = []

    def record(mode: SearchMode, candidates: Sequence[Candidate], page_count: int) -> Competition:
        page_counts.append(page_count)
        return get_competition(mode, candidates, page_count)

    monkeypatch.setattr(searcher, "get_competition", record)
    notes.handle.search(SearchRequest("slugs after rain", n=1, mode=mode, where=PageFilter(path_prefix="garden")))
    assert page_counts == [len(PAGES)]


@given(st.lists(candidate, min_size=1, max_size=8))
def test_hybrid_scores_are_at_least_what_the_meaning_alone_earns(found: list[Candidate]) -> None:
    by_meaning = rank_candidates(SearchMode.SEMANTIC, found)
    alone = with_likelihoods(SearchMode.SEMANTIC, by_meaning, get_competition(SearchMode.SEMANTIC, by_meaning))
    best = rank_candidates(SearchMode.HYBRID, found)
    together = with_likelihoods(SearchMode.HYBRID, best, get_competition(SearchMode.HYBRID, best))
    earned = {hit._replace(likelihood=None): hit.likelihood for hit in alone}
    assert all((hit.likelihood or 0) >= (earned[hit._replace(likelihood=None)] or 0) - 1e-9 for hit in together)


def test_the_likelihood_of_the_reranker_is_kept() -> None:
    read, unread = Candidate(1, 1, 0.2, 0.9, likelihood=0.125), Candidate(2, 2, 0.4, 0.5)
    best = rank_candidates(SearchMode.HYBRID, [read, unread])
    scored = with_likelihoods(SearchMode.HYBRID, best, get_competition(SearchMode.HYBRID, best))
    assert scored[0].likelihood == 0.125
    assert scored[1].likelihood is not None


def test_passages_of_one_page_do_not_compete() -> None:
    passages = [Candidate(1, chunk, 0.2, 0.8, title_overlap=0.5) for chunk in (1, 2, 3)]
    alone, several = (
        with_likelihoods(SearchMode.HYBRID, found, get_competition(SearchMode.HYBRID, found))[0]
        for found in (passages[:1], passages)
    )
    assert alone.likelihood == several.likelihood


@pytest.mark.model
@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
@pytest.mark.parametrize(("code", "page"), [("0x6100", "office/printer"), ("TRN-5031", "kitchen/coffee")])
def test_a_rare_code_is_not_a_low_hit(handbook: IndexedWiki, mode: SearchMode, code: str, page: str) -> None:
    answer = handbook.handle.search(SearchRequest(code, n=3, mode=mode))
    assert page in [hit.path for hit in answer.hits[:2]]
    assert answer.hits[0].score >= MEDIUM_SCORES[mode]
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
@pytest.mark.parametrize("query", ["unlock the entrance", "how do I get into a room", "door locks"])
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


def test_likelihoods_are_finite_for_any_evidence() -> None:
    for mode in SearchMode:
        for amount in (-1e6, 0.0, 1e6):
            value = compute_likelihood(mode, ScoreFeatures(amount, amount, amount, amount))
            assert math.isfinite(value)
            assert 0 <= value <= 1
    assert max(MEDIUM_SCORES.values()) < HIGH_SCORE


def align(mode: SearchMode, likelihoods: Sequence[float], page_count: int = LARGE_WIKI_PAGES) -> list[float | None]:
    candidates = [Candidate(page_id, likelihood=likelihood) for page_id, likelihood in enumerate(likelihoods)]
    return [candidate.likelihood for candidate in align_likelihoods(mode, candidates, page_count)]


@pytest.mark.parametrize("mode", list(SearchMode))
def test_pages_that_share_the_likelihood_are_an_answer_together(mode: SearchMode) -> None:
    each = ANSWER_SUMS[mode] / SUMMED_PAGES
    assert each < MEDIUM_SCORES[mode]
    *equal, other = align(mode, [each + 0.001] * SUMMED_PAGES + [each / 2])
    assert equal == [equal[0]] * SUMMED_PAGES
    assert equal[0] is not None
    assert MEDIUM_SCORES[mode] < equal[0] < HIGH_SCORE
    assert other == pytest.approx(equal[0] / 2, rel=0.02)
    assert align(mode, [each - 0.001] * SUMMED_PAGES) == [each - 0.001] * SUMMED_PAGES


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_doubtful_page_without_others_is_no_answer(mode: SearchMode) -> None:
    clear = CLEAR_FACTOR * MEDIUM_SCORES[mode]
    assert clear < ANSWER_SUMS[mode]
    first, second = align(mode, [clear - 0.01, 0.01])
    assert first is not None
    assert first < MEDIUM_SCORES[mode]
    assert second is not None
    assert 0 < second < first
    assert align(mode, [clear, 0.01]) == [clear, 0.01]


def test_a_small_wiki_needs_fewer_pages_for_an_answer() -> None:
    likelihoods = [0.3, 0.2, 0.1]
    assert align(SearchMode.HYBRID, likelihoods, SMALL_WIKI_PAGES) == likelihoods
    assert align(SearchMode.HYBRID, likelihoods) != likelihoods


def test_several_passages_of_a_page_count_once_for_an_answer() -> None:
    passages = [Candidate(1, chunk, likelihood=0.3) for chunk in range(5)]
    assert max(c.likelihood or 0 for c in align_likelihoods(SearchMode.HYBRID, passages, LARGE_WIKI_PAGES)) < 0.27


def test_no_page_is_no_answer() -> None:
    assert align_likelihoods(SearchMode.HYBRID, [], LARGE_WIKI_PAGES) == []
    assert align(SearchMode.HYBRID, [0.0, 0.0]) == [0.0, 0.0]
