"""Answers: the sentences that are chosen, their order and places, and the verdict."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from wikiholt.domain.index import CosineScale
from wikiholt.domain.search import Confidence, Hit, SearchMode, SearchResult, Snippet
from wikiholt.search.answers import (
    MAX_SENTENCES,
    MAX_WORDS,
    SentenceJudge,
    build_answer,
    format_sentence_link,
    resolve_follow_up,
)
from wikiholt.text.dialect import GFM

COFFEE = "The machine stands in the kitchen. Descale it once a month with vinegar. Everyone may use it at night."
TEA = "Tea is in the cupboard on the left. Descale it once a month with vinegar. The kettle switches itself off."


def make_hit(name: str, text: str, *, score: float = 0.8, line: int = 10, chunk: int = 0) -> Hit:
    return Hit(
        name=name,
        path=f"kitchen/{name}",
        url=f"/wiki/kitchen/{name}#care",
        snippet=Snippet(""),
        distance=0.2,
        score=score,
        confidence=Confidence.HIGH,
        channels=("semantic",),
        heading_path=("Care",),
        anchor="care",
        first_line=line,
        last_line=line,
        chunk_index=chunk,
        category=None,
        tags=(),
        last_updated=None,
        text=text,
        file=f"kitchen/{name}.md",
    )


def make_result(*hits: Hit, answer: float = 0.95) -> SearchResult:
    return SearchResult(
        query="how often to descale the machine",
        mode=SearchMode.HYBRID,
        hits=hits,
        considered=9,
        took_ms=1.0,
        indexed_revision="c" * 40,
        head_revision="c" * 40,
        stale=False,
        degraded=False,
        nothing_relevant=False,
        answer=answer,
    )


def score_shared_words(sentences: Sequence[str]) -> list[float]:
    wanted = {"descale", "month", "once"}
    return [len(wanted & set(sentence.lower().split())) / 3 for sentence in sentences]


JUDGE = SentenceJudge("how often to descale the machine", "english", GFM, CosineScale(), score_shared_words)
UNLIKE = replace(JUDGE, score=lambda sentences: [-0.2] * len(sentences))


def test_the_sentences_of_a_page_are_in_its_order_and_have_places() -> None:
    later = make_hit("Coffee", "Descale it twice a year if the water is soft.", line=30, chunk=1)
    answer = build_answer(make_result(later, make_hit("Coffee", COFFEE)), JUDGE)
    assert answer.answered
    assert [each.text for each in answer.sentences] == [
        "The machine stands in the kitchen.",
        "Descale it once a month with vinegar.",
        "Everyone may use it at night.",
        "Descale it twice a year if the water is soft.",
    ]
    assert {each.line for each in answer.sentences} == {10, 30}
    assert {each.file for each in answer.sentences} == {"kitchen/Coffee.md"}


def test_a_sentence_on_two_pages_is_shown_once() -> None:
    answer = build_answer(make_result(make_hit("Coffee", COFFEE), make_hit("Tea", TEA)), JUDGE)
    texts = [each.text for each in answer.sentences]
    assert texts.count("Descale it once a month with vinegar.") == 1
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("length", [3, 12, 300])
def test_an_answer_has_few_words_and_sentences(length: int) -> None:
    text = "\n\n".join(f"Sentence number {n} {'word ' * length}ends." for n in range(20))
    answer = build_answer(make_result(make_hit("Coffee", text)), JUDGE)
    assert 0 < len(answer.sentences) <= MAX_SENTENCES
    assert sum(len(each.text.removesuffix(" …").split()) for each in answer.sentences) <= MAX_WORDS


def test_an_unlikely_answer_is_not_shown_but_its_pages_are() -> None:
    weak = replace(make_hit("Coffee", COFFEE, score=0.02), distance=0.9)
    answer = build_answer(make_result(weak, weak, replace(weak, name="Tea", path="Tea"), answer=0.02), UNLIKE)
    assert not answer.answered
    assert answer.sentences == ()
    assert 0 <= answer.probability < 0.3
    assert [hit.name for hit in answer.closest] == ["Coffee", "Tea"]


def test_without_pages_there_is_no_answer() -> None:
    answer = build_answer(make_result(), JUDGE)
    assert (answer.answered, answer.probability, answer.sentences, answer.closest) == (False, 0.0, (), ())


def test_without_a_model_the_words_of_the_passage_decide() -> None:
    answer = build_answer(make_result(make_hit("Coffee", COFFEE)), replace(JUDGE, score=None))
    assert answer.probability > 0


def test_a_number_counts_if_the_question_asks_for_one() -> None:
    text = "\n\n".join(
        [*(f"The filter of machine {chr(97 + n)} is {'old ' * 14}." for n in range(8)), "It has 7 litres."]
    )
    asked = replace(JUDGE, question="how many litres has the machine", score=None)
    texts = [each.text for each in build_answer(make_result(make_hit("Coffee", text)), asked).sentences]
    assert "It has 7 litres." in texts


@pytest.mark.parametrize(
    ("question", "previous", "query"),
    [
        ("and how long?", "how often do we descale the machine", "often descale machine and how long?"),
        ("why?", "how often do we descale", "often descale why?"),
        ("who cleans it", "where is the coffee machine", "coffee machine who cleans it"),
        ("where is the printer", "how often do we descale", "where is the printer"),
        ("where is the printer", "", "where is the printer"),
        ("why?", "  ", "why?"),
    ],
)
def test_a_follow_up_without_words_of_its_own_gets_those_of_the_previous_question(
    question: str, previous: str, query: str
) -> None:
    assert resolve_follow_up(question, previous, "english") == query


def test_the_link_of_a_sentence_names_its_first_and_last_words() -> None:
    link = format_sentence_link("/wiki/Coffee#care", "Pour one litre, at most, into the well-kept tank and wait.")
    assert link == "/wiki/Coffee#care:~:text=Pour%20one%20litre%2C%20at,well%2Dkept%20tank%20and%20wait."
    assert format_sentence_link("/wiki/Coffee", "Wait.") == "/wiki/Coffee#:~:text=Wait."
    assert format_sentence_link("/wiki/Coffee", "Filter · 3 months") == "/wiki/Coffee"
