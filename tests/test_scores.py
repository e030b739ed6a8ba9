"""What a score promises: the same for every n, never at the cost of the order, and that it means something."""

import dataclasses
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiki_contents import Notebook, Pages

from wikiholt.embedding import load
from wikiholt.errors import ModelError
from wikiholt.model import Confidence, Mode, Scale
from wikiholt.ports import Embedder
from wikiholt.ranking import HIGH, MEDIUM, Candidate, Grounds, judgements, likelihood, ranked, rivals, scored
from wikiholt.search import Request
from wikiholt.testing import FakeEmbedder

LONG = "\n\n".join(
    f"## Week {week}\n\nThe tomatoes were watered on day {week} and the beds by the wall weeded; the hoses leak again, "
    f"so bed {week} stayed dry until the evening, and the slugs came back to the lettuce after the rain."
    for week in range(1, 12)
)
PAGES: Pages = {
    "garden/diary.md": f"# Diary of the garden\n\n{LONG}\n",
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
    "kitchen/spares.md": "# Spare parts\n\nThe seal for TRN-5031 lies in the left drawer, with the filters.\n",
}
QUERIES = ("slugs after rain", "0x6100", "keys of the wing -phones")


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.real_model)])
def notes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    embedder = load("all-MiniLM-L6-v2", precision="int8") if request.param == "real" else None
    made = Notebook(tmp_path_factory.mktemp("scores"), PAGES, embedder and (lambda: embedder)).sync()
    yield made
    made.close()


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    embedder: Embedder = load("all-MiniLM-L6-v2", precision="int8")
    made = Notebook(tmp_path_factory.mktemp("handbook"), PAGES, lambda: embedder).sync()
    yield made
    made.close()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("per_page", [1, 3])
def test_the_first_hits_and_their_scores_are_the_same_for_every_n(notes: Notebook, mode: Mode, per_page: int) -> None:
    for query in QUERIES:
        request = Request(query, n=20, mode=mode, chunks_per_page=per_page)
        whole = [(hit.path, hit.score, hit.confidence) for hit in notes.handle.search(request).hits]
        for n in range(1, len(whole) + 1):
            some = notes.handle.search(dataclasses.replace(request, n=n)).hits
            assert [(hit.path, hit.score, hit.confidence) for hit in some] == whole[: len(some)]
            assert len(some) == n or per_page > 1  # a passage that two candidates show is shown once


amounts = st.floats(0, 1)
candidate = st.builds(
    Candidate,
    page_id=st.integers(1, 8),
    chunk_id=st.just(1),
    distance=st.floats(0, 1.3),
    share=st.none() | amounts,
    channels=st.just(()),
    likelihood=st.none(),
    naming=amounts,
    scale=st.just(Scale()),
)


@given(st.sampled_from(Mode), st.lists(candidate, max_size=12))
def test_scores_change_nothing_in_the_order(mode: Mode, found: list[Candidate]) -> None:
    def amount(each: Candidate) -> float:
        meaning, words = max(0.0, 1.0 - (each.distance or 0.0)), each.share or 0.0
        if mode is Mode.SEMANTIC:
            return meaning
        return (
            words + 0.2 * each.naming if mode is Mode.KEYWORD else (meaning + words) / 2 + 0.3 * each.naming * meaning
        )

    best = ranked(mode, found)
    told = scored(mode, best, rivals(mode, best))
    assert [each._replace(likelihood=None) for each in told] == best
    for one, after in pairwise(best):
        assert amount(one) >= amount(after) - 1e-9
    judged = [each.score for each in judgements(mode, told)]
    assert judged == sorted(judged, reverse=True)
    assert all(0 <= score <= 1 for score in judged)


@given(st.sampled_from(Mode), st.lists(candidate, min_size=1, max_size=8), st.integers(0, 8))
def test_a_score_follows_from_the_page_and_the_depth_looked_at_alone(
    mode: Mode, found: list[Candidate], n: int
) -> None:
    best = ranked(mode, found)
    among = rivals(mode, best)
    assert scored(mode, best[:n], among) == scored(mode, best, among)[:n]


@given(st.sampled_from(Mode), *[st.floats(-1, 1.3)] * 4, st.floats(0, 0.5))
def test_more_of_anything_that_speaks_for_a_page_never_lowers_its_score(
    mode: Mode, evidence: float, meaning: float, standing: float, lead: float, more: float
) -> None:
    known = Grounds(evidence, meaning, standing, lead)
    for name in Grounds._fields:
        assert likelihood(mode, known._replace(**{name: getattr(known, name) + more})) >= likelihood(mode, known)


def test_what_a_reranker_said_of_a_page_stands() -> None:
    read, unread = Candidate(1, 1, 0.2, 0.9, likelihood=0.125), Candidate(2, 2, 0.4, 0.5)
    best = ranked(Mode.HYBRID, [read, unread])
    told = scored(Mode.HYBRID, best, rivals(Mode.HYBRID, best))
    assert told[0].likelihood == 0.125
    assert told[1].likelihood is not None


def test_passages_of_one_page_are_no_rivals() -> None:
    passages = [Candidate(1, chunk, 0.2, 0.8, naming=0.5) for chunk in (1, 2, 3)]
    alone, several = (scored(Mode.HYBRID, found, rivals(Mode.HYBRID, found))[0] for found in (passages[:1], passages))
    assert alone.likelihood == several.likelihood


@pytest.mark.real_model
@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.KEYWORD])
@pytest.mark.parametrize(("code", "page"), [("0x6100", "office/printer"), ("TRN-5031", "kitchen/coffee")])
def test_a_code_that_few_pages_hold_is_no_low_hit(handbook: Notebook, mode: Mode, code: str, page: str) -> None:
    answer = handbook.handle.search(Request(code, n=3, mode=mode))
    assert page in [hit.path for hit in answer.hits[:2]]
    assert answer.hits[0].score >= MEDIUM[mode]
    assert not answer.nothing_relevant


@pytest.mark.real_model
@pytest.mark.parametrize("mode", list(Mode))
def test_a_page_that_stands_out_is_called_high(handbook: Notebook, mode: Mode) -> None:
    first, *others = handbook.handle.search(Request("turn the compost heap", n=3, mode=mode)).hits
    assert (first.path, first.confidence) == ("garden/compost", Confidence.HIGH)
    assert all(hit.confidence is Confidence.LOW for hit in others)


@pytest.mark.real_model
def test_of_two_pages_that_fit_alike_neither_is_called_high(handbook: Notebook) -> None:
    first, second = handbook.handle.search(Request("keys in the porter's lodge", n=2)).hits
    assert {first.path, second.path} == {"office/keys-east", "office/keys-west"}
    assert {first.confidence, second.confidence} == {Confidence.MEDIUM}


@pytest.mark.real_model
@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.SEMANTIC])
@pytest.mark.parametrize("query", ["boundary layer in hypersonic flow", "statins and the risk of stroke", "zebra"])
def test_a_question_that_the_wiki_does_not_answer_is_said_to_have_nothing(
    handbook: Notebook, mode: Mode, query: str
) -> None:
    answer = handbook.handle.search(Request(query, n=5, mode=mode))
    assert answer.hits
    assert answer.nothing_relevant


def test_a_hybrid_search_without_its_model_is_judged_as_one_by_words(tmp_path: Path) -> None:
    away = False

    def embedder() -> Embedder:
        if away:
            raise ModelError("the model is away", hint="bring it back")
        return fake

    fake = FakeEmbedder()
    made = Notebook(tmp_path, PAGES, embedder).sync()
    away = True
    degraded = made.handle.search(Request("porter wing", n=4))
    words = made.handle.search(Request("porter wing", n=4, mode=Mode.KEYWORD))
    made.close()
    assert degraded.degraded
    assert [(hit.path, hit.score, hit.confidence) for hit in degraded.hits] == [
        (hit.path, hit.score, hit.confidence) for hit in words.hits
    ]


def test_likelihoods_are_finite_for_any_evidence() -> None:
    for mode in Mode:
        for amount in (-1e6, 0.0, 1e6):
            value = likelihood(mode, Grounds(amount, amount, amount, amount))
            assert math.isfinite(value)
            assert 0 <= value <= 1
    assert max(MEDIUM.values()) < HIGH
