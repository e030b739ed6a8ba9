"""Questions with relevance judgements, and invalid files of them."""

import pytest

from wikiholt.errors import InvalidEvaluation
from wikiholt.wikis.evaluation.questions import QuestionKind, parse_judged_questions

PAGES = {"a": "a", "a.md": "a", "b": "b"}
QUERIES = ['{"id": "1", "text": "how to a"}', "", '{"_id": 2, "text": "b?", "more": 1}', '{"id": "3", "text": "c"}']


def test_queries_have_their_relevant_pages() -> None:
    found = parse_judged_questions(QUERIES, ["1\ta.md\t2", "1\tb\t0", "2\t0\tb\t1", "", "3\tb\t0"], PAGES.get)
    assert [(question.id, question.text, dict(question.relevant)) for question in found] == [
        ("1", "how to a", {"a": 2}),
        ("2", "b?", {"b": 1}),
    ]
    assert {question.kind for question in found} == {QuestionKind.LABELLED}


def test_a_header_line_is_not_a_judgement() -> None:
    (found,) = parse_judged_questions(QUERIES, ["query-id\tcorpus-id\tscore", "1\ta\t1"], PAGES.get)
    assert found.id == "1"


@pytest.mark.parametrize(
    ("queries", "judgements", "said"),
    [
        ([*QUERIES, "{nope"], [], "line 5 of the queries is not JSON"),
        (['["a", "b"]'], [], "line 1 of the queries has no id or no text"),
        (['{"id": "1"}'], [], "line 1 of the queries has no id or no text"),
        (['{"id": "1", "text": "  "}'], [], "line 1 of the queries has no id or no text"),
        (['{"id": true, "text": "x"}'], [], "line 1 of the queries has no id or no text"),
        (['{"id": "1", "text": "' + "x" * 2001 + '"}'], [], "has a text of 2001 characters"),
        ([QUERIES[0], QUERIES[0]], [], "line 2 of the queries repeats the id '1'"),
        (QUERIES, ["1\ta\t1", "1\tghost\t1"], "line 2 of the qrels names 'ghost', which is not an indexed page"),
        (QUERIES, ["9\ta\t1"], "line 1 of the qrels judges the query '9', which is not in the queries"),
        (QUERIES, ["1 a 1"], "line 1 of the qrels is not a judgement"),
        (QUERIES, ["1\ta\tvery"], "line 1 of the qrels is not a judgement"),
        (QUERIES, ["1\ta\t1\t1\t1"], "line 1 of the qrels is not a judgement"),
        (QUERIES, ["1\t\t1"], "line 1 of the qrels is not a judgement"),
        (QUERIES, ["1\ta\t101"], "line 1 of the qrels is not a judgement"),
    ],
    ids=range(14),
)
def test_an_invalid_line_is_named(queries: list[str], judgements: list[str], said: str) -> None:
    with pytest.raises(InvalidEvaluation) as caught:
        parse_judged_questions(queries, judgements, PAGES.get)
    assert said in caught.value.message
    assert caught.value.hint
