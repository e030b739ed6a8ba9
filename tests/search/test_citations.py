"""Sentences of a language model are checked against the passages that they cite."""

import sys
from collections import Counter

import pytest

from bench import claims
from wikiholt.search.citations import QuotedPassages

PASSAGES = [
    ["Boiler › Care", "Descale the boiler every 3 months with citric acid.", "Never use vinegar.", "Anna has the key."],
    ["Office", "The office opens at nine, before the shop.", "Parking costs 1,200 a year.", "Use ports 8080 and 9090."],
]
GERMAN = [["Heizung", "Die Heizung darf nachts nicht ausgeschaltet werden.", "Der Hausmeister heißt Brandt."]]


@pytest.mark.parametrize(
    ("sentence", "cited", "fault"),
    [
        ("The boiler must be descaled every three months with citric acid.", [1], ""),
        ("Vinegar must not be used for the boiler.", [1], ""),
        ("The key is with Anna.", [1], ""),
        ("never use vinegar", [1], ""),
        ("Parking costs 1200 per year.", [2], ""),
        ("Descale the boiler every 3 months; the office opens at 9.", [1, 2], ""),
        ("Descale the boiler every 3 months.", [], "it cites no passage"),
        ("Descale the boiler every 3 months.", [7], "there is no passage 7"),
        ("Descale the boiler every 3 months.", [0], "there is no passage 0"),
        ("Descale the boiler every 3 months.", [2], "the passages do not have"),
        ("Descale the boiler every 6 months with citric acid.", [1], "the passages do not have the number 6"),
        ("Do not descale the boiler with citric acid.", [1], "the passages do not negate this"),
        ("Use vinegar.", [1], "the passages negate: use, vinegar"),
        ("The key is with Bruno.", [1], "the passages do not have the name Bruno"),
        ("The office opens at nine, after the shop.", [2], "the passages have before, not after"),
        ("Descale the boiler every 3 months and replace its rubber gasket.", [1], "the passages do not have"),
        ("…", [1], "it has no words to compare"),
        ("", [1], "it has no words to compare"),
    ],
)
def test_a_sentence_is_supported_or_says_what_is_not(sentence: str, cited: list[int], fault: str) -> None:
    found = QuotedPassages(PASSAGES, "english").find_fault(sentence, cited)
    assert found.startswith(fault) if fault else found == ""


@pytest.mark.parametrize(
    ("sentence", "is_supported"),
    [
        ("Nachts darf die Heizung nicht ausgeschaltet werden.", True),
        ("Nachts darf die Heizung ausgeschaltet werden.", False),
        ("Der Hausmeister heißt Krüger.", False),
    ],
)
def test_other_languages_have_their_negations(sentence: str, *, is_supported: bool) -> None:
    assert (QuotedPassages(GERMAN, "german").find_fault(sentence, [1]) == "") == is_supported


@pytest.mark.parametrize(
    ("sentence", "is_supported"),
    [
        ("当番は月曜日に交代します。", True),
        ("引き継ぎの通話は10分です。", True),
        ("引き継ぎの通話は30分です。", False),
        ("駐車場は建物の裏側にあります。", False),
    ],
)
def test_scripts_without_spaces_are_compared_by_pairs(sentence: str, *, is_supported: bool) -> None:
    passages = [["当番", "当番は毎週月曜日に交代します。", "引き継ぎは10分の通話で行います。"]]
    assert (QuotedPassages(passages, "english").find_fault(sentence, [1]) == "") == is_supported


def test_a_copied_sentence_is_supported_whatever_it_negates() -> None:
    lines = [
        "It needs no labels and changes nothing.",
        "Neither Anna nor the key was there, or none of it.",
        "A · yes · no · no",
    ]
    quoted = QuotedPassages([["Page", *lines]], "english")
    assert [quoted.find_fault(line, [1]) for line in lines] == [""] * 3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *((text, "it has no words to compare") for text in ("\x00", "’’’", "--- |||")),
        *((text, "it is too long") for text in ("9" * 100_000, "not " * 5_000, "a." * 5_000)),
        ("١٢ ½ ²", ""),
    ],
)
def test_any_text_can_be_compared(text: str, fault: str) -> None:
    quoted = QuotedPassages([[text], PASSAGES[0]], "english")
    assert quoted.find_fault(text, [1, 2]) == fault


@pytest.mark.model
def test_most_falsified_sentences_are_noticed_and_few_faithful_ones_struck() -> None:
    faults = [(claim.kind == claims.FAITHFUL, claims.find_fault(claim)) for claim in claims.read_claims()]
    false, faithful = ([fault for is_faithful, fault in faults if is_faithful is kind] for kind in (False, True))
    assert len(false) >= 60 <= len(faithful)
    assert sum(map(bool, false)) >= 0.8 * len(false)
    assert sum(map(bool, faithful)) <= 0.08 * len(faithful)


def test_the_words_of_a_sentence_are_not_compared_with_each_word_of_the_passages() -> None:
    passages = [["Page", *(f"{number} ab" for number in range(100))] for _ in range(5)]
    quoted, calls = QuotedPassages(passages, "english"), Counter[str]()
    sys.setprofile(lambda _, event, __: calls.update([event]))
    try:
        fault = quoted.find_fault(" ".join(passages[0][1:]), range(1, 6))
    finally:
        sys.setprofile(None)
    assert not fault
    assert calls.total() < 1_000_000  # 3.5 million if each word is compared with each word
