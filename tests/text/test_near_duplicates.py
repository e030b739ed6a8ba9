"""Which texts are nearly the same."""

from random import Random

import pytest

from wikiholt.text import near_duplicates
from wikiholt.text.near_duplicates import MIN_WORDS, Wording, WordingGroups, are_nearly_same, read_wording

WORDS = [f"{first}{last}" for first in "bdfgklmn" for last in ("ade", "ip", "orn", "ust", "eel", "ack", "olt", "ump")]
TEXT = " ".join(WORDS)


def are_same(one: str, other: str) -> bool:
    first, second = read_wording(one), read_wording(other)
    return first is not None and second is not None and are_nearly_same(first, second)


@pytest.mark.parametrize(
    "other",
    [
        TEXT,
        TEXT.upper(),
        TEXT.replace(" ", ",\n- "),
        TEXT.replace("kip", "**kip**"),
        f"{TEXT} and",
        TEXT.replace("kip", "cow"),
    ],
)
def test_markup_and_a_word_in_sixty_do_not_count(other: str) -> None:
    assert are_same(TEXT, other)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("kip", "cow").replace("nip", "hen"),
        " ".join(reversed(WORDS)),
        f"{TEXT} {' '.join(WORDS[:9])[::-1]}",
        " ".join(WORDS[:50]),
        "",
    ],
)
def test_two_other_words_or_another_order_count(other: str) -> None:
    assert not are_same(TEXT, other)


def test_other_numbers_count() -> None:
    assert are_same(f"{TEXT} port 8080", f"{TEXT} port 8080!")
    assert not are_same(f"{TEXT} port 8080", f"{TEXT} port 8081")
    assert not are_same(f"{TEXT} since v2", f"{TEXT} since v3")


def test_one_number_of_many_and_addresses_do_not_count() -> None:
    numbers = " ".join(map(str, range(100, 130)))
    assert are_same(f"{TEXT} {numbers}", f"{TEXT} {numbers} 7")
    assert are_same(f"see [it](../a1/b2.md) {TEXT} https://a.example/7", f"see [it](c3.md) {TEXT} https://a.example/8")


def test_short_texts_are_never_nearly_the_same() -> None:
    assert read_wording(" ".join(WORDS[: MIN_WORDS - 1])) is None
    assert read_wording("--- | " * 500) is None
    groups = WordingGroups()
    assert [groups.add(None), groups.add(None)] == [0, 1]


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    text = "庭の土を耕して種をまき水をやる。春には花が咲き、秋には実がなる。冬の間は道具を手入れする。" * 2
    assert are_same(text, text.replace("。", "！"))
    assert not are_same(text, text.replace("花が咲き", "鳥が鳴き"))


def test_texts_are_grouped_as_if_each_was_compared_with_all_others() -> None:
    random = Random(7)
    texts = [TEXT]
    for _ in range(150):
        words = random.choice(texts).split()
        words[random.randrange(len(words))] = random.choice(WORDS)
        texts.append(" ".join(words))
    wordings = [read_wording(text) for text in texts]
    firsts: list[int] = []
    expected = []
    for number, wording in enumerate(wordings):
        same = (at for at, first in enumerate(firsts) if are_same(texts[first], texts[number]))
        expected.append(next(same, len(firsts)))
        if expected[-1] == len(firsts):
            firsts.append(number)
        assert wording is not None
    for groups in (WordingGroups(), WordingGroups(filter(None, wordings))):
        assert [groups.add(wording) for wording in wordings] == expected
    assert 1 < len(firsts) < len(texts)


@pytest.mark.parametrize("template", [f"{TEXT} page", " ".join(WORDS[:32])])
def test_texts_that_share_a_template_are_not_all_compared(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[Wording]()
    monkeypatch.setattr(near_duplicates, "are_nearly_same", lambda _, other: compared.append(other))
    texts = [f"{template} {number} " + " ".join(f"{word}{number}x" for word in WORDS[48:]) for number in range(200)]
    texts += [f"{TEXT} page {number}" for number in range(200)]
    wordings = [wording for wording in map(read_wording, texts) if wording is not None]
    groups = WordingGroups(wordings)
    assert len({groups.add(wording) for wording in wordings}) == len(texts)
    assert not compared
