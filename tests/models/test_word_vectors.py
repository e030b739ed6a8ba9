"""Which sentence is closest to a query, by the model's word vectors."""

from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny_model import write_model
from wikiholt.domain.protocols import SupportsSentenceScoring
from wikiholt.models import load_embedder
from wikiholt.models.embedder import OnnxEmbedder

PASSAGE = (
    "The office is on the second floor, beside the stairs.",
    "Every evening a copy of all files is written to the disk in the cellar.",
    "Vehicles can be parked in the yard after six o'clock.",
    "Whoever leaves last turns the heating down and the lights off.",
)


CLOSEST = {"nightly backup of our documents": 1, "automobile": 2, "downstairs or upstairs": 0, "LAMPS": 3}
"""Queries that share no word with the passage, and the sentence that is closest."""


@pytest.mark.model
def test_the_closest_sentence_may_share_no_word_with_the_query(int8: OnnxEmbedder) -> None:
    found = {}
    for query in CLOSEST:
        close = int8.make_sentence_scorer(query)
        assert close is not None
        found[query] = int(np.argmax(close(PASSAGE)))
    assert found == CLOSEST


@pytest.mark.model
def test_the_answer_does_not_depend_on_earlier_queries(int8: OnnxEmbedder) -> None:
    assert isinstance(int8, SupportsSentenceScoring)
    first = int8.make_sentence_scorer("warm rooms")
    other = int8.make_sentence_scorer("コーヒー")
    assert first is not None
    assert other is not None
    scored = first(PASSAGE)
    other(PASSAGE)
    first(["Tea?"])
    assert first(PASSAGE) == scored
    again = int8.make_sentence_scorer("warm rooms")
    assert again is not None
    assert again(list(PASSAGE)) == scored


@pytest.mark.model
@pytest.mark.parametrize("query", ["", "?!", "猫", "\ud800", "a" * 5000, "word " * 2000], ids=range(6))
def test_any_text_can_be_compared(int8: OnnxEmbedder, query: str) -> None:
    close = int8.make_sentence_scorer(query)
    assert close is not None
    assert close([]) == []
    scores = close(["", "…", "猫が好きです", "\udfff half a pair", "x" * 3000, "the cat"])
    assert len(scores) == 6
    assert np.isfinite(scores).all()


def test_a_model_without_word_vectors_gives_no_scores(tmp_path: Path) -> None:
    assert load_embedder(write_model(tmp_path)).make_sentence_scorer("cat") is None
