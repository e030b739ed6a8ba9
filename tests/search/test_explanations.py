"""The line that says why a hit is there."""

from dataclasses import replace

import pytest

from tests.search.test_answers import COFFEE, JUDGE, make_hit, make_result
from wikiholt.domain.search import Hit, Snippet, Span
from wikiholt.search.answers import build_answer
from wikiholt.search.explanations import explain_hit

HIT = replace(
    make_hit("Coffee machine", COFFEE, score=0.6),
    channels=("semantic", "keyword"),
    snippet=Snippet("Descale it once a month.", (Span(0, 7), Span(18, 23)), Span(0, 24)),
    name_matches=(Span(7, 14),),
)


@pytest.mark.parametrize(
    ("hit", "boost", "parts"),
    [
        (HIT, 1.0, ["meaning of “Descale it once a month.” (cosine 0.80)", "words: descale, month", "title: machine"]),
        (HIT, 1.5, ["boost × 1.5"]),
        (replace(HIT, channels=("keyword", "pinned"), score=1.0), 1.0, ["pinned to this query", "score 1.00"]),
        (replace(HIT, channels=("name",)), 1.0, ["the query is its name"]),
        (replace(HIT, channels=("filter",)), 1.0, ["passes the filters"]),
        (replace(HIT, snippet=Snippet("")), 1.0, ["meaning of the passage (cosine 0.80)"]),
    ],
)
def test_a_line_names_each_reason(hit: Hit, boost: float, parts: list[str]) -> None:
    line = explain_hit(hit, 0.8, boost)
    assert "\n" not in line
    assert all(part in line for part in parts), line


def test_the_score_is_a_product() -> None:
    assert explain_hit(HIT, 0.8).endswith("score 0.60 = 0.80 that the wiki has an answer × 0.75 that it is this page")
    assert explain_hit(HIT, 0.0).endswith("score 0.60")


def test_only_an_explained_search_explains_the_sentences_of_its_answer() -> None:
    plain = build_answer(make_result(make_hit("Coffee", COFFEE)), JUDGE)
    assert {each.explanation for each in plain.sentences} == {""}
    explained = build_answer(make_result(replace(make_hit("Coffee", COFFEE), explanation="why")), JUDGE)
    assert all(each.explanation.startswith("rank ") and " = " in each.explanation for each in explained.sentences)
