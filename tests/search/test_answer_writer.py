"""How the text of a language model becomes sentences with citations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.search.test_answers import make_hit, make_result
from wikiholt.domain.answer import Answer
from wikiholt.search.answer_writer import MAX_WRITTEN_SENTENCES, AnswerDraft, AnswerWriter
from wikiholt.text.dialect import GFM

PASSAGE = "Descale the machine every month. It stands in the kitchen. See v1.2 in e.g. the manual."


@dataclass
class Script:
    """Stands in for a server: its parts would arrive as given."""

    parts: Sequence[str]
    model: str = "m"

    def stream_text(self, *_: object) -> Iterator[str]:
        yield from self.parts


def write(*parts: str) -> AnswerDraft:
    result = make_result(make_hit("Coffee", PASSAGE))
    answer = Answer("how", False, 0.0, (), (), result)  # type: ignore[arg-type]
    draft = AnswerWriter(cast(Any, Script(parts)), 1.0).start(answer, "english", GFM)
    assert draft is not None
    draft.write_all()
    return draft


def get_sentences(*parts: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.text, each.citations) for each in write(*parts).get_written().sentences]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One [1]. Two [1][2]. Three.", [("One.", (1,)), ("Two.", (1, 2)), ("Three.", ())]),
        ("One. [1] Two. [1, 2]", [("One.", (1,)), ("Two.", (1, 2))]),
        ("One.[1][1]\nTwo [2]", [("One.", (1,)), ("Two", (2,))]),
        ("It is v1.2, e.g. here [1]. Yes?! No.", [("It is v1.2, e.g. here.", (1,)), ("Yes?!", ()), ("No.", ())]),
        ("- One [1]\n- Two [1]\n\n1. Three [1]\n", [("One", (1,)), ("Two", (1,)), ("Three", (1,))]),
        ("  One\t\r\n\n\n  two  words [1].  ", [("One", ()), ("two words.", (1,))]),
        ("<think>Is it so? [1]. No.\n</think>\n\nOne [1].", [("One.", (1,))]),
        ("一つ[1]。二つ。[1][2]三つ。", [("一つ。", (1,)), ("二つ。", (1, 2)), ("三つ。", ())]),
        ("One.\n[1]\nTwo.", [("One.", ()), ("Two.", ())]),
        ("\n\n", []),
        ("", []),
    ],
)
def test_sentences_and_citations_do_not_depend_on_the_parts(text: str, sentences: list[Any]) -> None:
    assert get_sentences(text) == sentences
    assert get_sentences(*text) == sentences


def test_a_model_that_finds_nothing_or_writes_too_much_is_noted() -> None:
    for text in ("NOT SAID", "Not said.", '"NOT SAID"'):
        written = write(*text).get_written()
        assert (written.sentences, written.note) == ((), "the language model found no answer in the passages")
    written = write("One [1]. " * 100).get_written()
    assert len(written.sentences) == MAX_WRITTEN_SENTENCES
    assert "more" in written.note


@pytest.mark.parametrize("char", [".", " ", "\n", "[1]", "<think>", "a", "9", "not ", "\u3002", "**"])
def test_any_text_is_read_in_little_time(char: str) -> None:
    """The limit of CPU time of a unit test holds."""
    written = write(*([char] * 20_000)).get_written()
    assert all(len(each.text) < 20_000 for each in written.sentences)
