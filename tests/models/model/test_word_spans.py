"""Token spans from cached words are those of the tokenizer itself."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.support.tiers import limit_examples
from wikiholt.models import word_spans
from wikiholt.models.model_loader import load_tokenizer
from wikiholt.models.tokenizer import ModelTokenizer
from wikiholt.models.word_spans import WordSpanCache, can_split_words
from wikiholt.text.segmentation import TokenCounter

PARTS = (
    *(
        "don't",
        "'s",
        " 've",
        "x's",
        "''s",
        "('t",
        "'LL",
        "I'll",
        "`foo`",
        "foo.bar",
        "_x_",
        "1st",
        "v1.2",
        "--",
        "…",
        "“q”",
    ),
    *(
        "<s>",
        "<mask>",
        "[CLS]",
        "```js",
        " ",
        " \n",
        "\n\n",
        "    ",
        "\t",
        "\r\n",
        "\xa0",
        "\u3000",
        "\x1c",
        "\x85",
        "\u180e",
    ),
    *(
        "café",
        "e\u0301",
        " \u0301",
        "日本",
        "한국",
        "²",
        "Ⅷ",
        "🏽",
        "\u200d",
        "ا\u0651",
        "\ud800",
        "a" * 101,
        "word " * 30,
    ),
)
texts = st.lists(st.sampled_from(PARTS) | st.text(st.characters(), max_size=5), max_size=20).map("".join)


@pytest.fixture(scope="module", params=["wikiholt-1", "all-MiniLM-L6-v2"])
def tokenizer(request: pytest.FixtureRequest) -> ModelTokenizer:
    return load_tokenizer(request.param)


def tokenize(tokenizer: ModelTokenizer, text: str) -> list[tuple[int, int]]:
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    offsets: list[tuple[int, int]] = tokenizer._tokenizer.encode(text, add_special_tokens=False).offsets
    return offsets


@given(text=texts)
@settings(max_examples=limit_examples(2_000), deadline=None)
def test_spans_of_any_text_are_those_of_the_tokenizer(tokenizer: ModelTokenizer, text: str) -> None:
    expected = tokenize(tokenizer, text)
    spans = tokenizer.get_token_spans(text)
    assert len(spans) == len(expected)
    assert list(spans) == spans[:] == expected
    assert [spans[index] for index in range(len(spans))] == expected


@pytest.mark.parametrize("part", PARTS)
def test_each_part_between_words(tokenizer: ModelTokenizer, part: str) -> None:
    for text in (part, f"a{part}b", f"a {part} b", f"({part})", f"{part}{part}'s"):
        assert tokenizer.get_token_spans(text) == tokenize(tokenizer, text)


def test_the_cache_is_used_and_counts_the_same(tokenizer: ModelTokenizer) -> None:
    text = "The `kettle` isn't here: see [the list](../list.md), or ask at the door.\n\n" * 50
    cache = WordSpanCache(tokenizer._tokenizer)
    spans = cache.find_spans(text)
    assert spans is not None
    expected = TokenCounter(text, lambda part: tokenize(tokenizer, part))
    counter = TokenCounter(text, lambda _: spans)
    for start in range(0, len(text), 97):
        assert counter.count(start, start + 200) == expected.count(start, start + 200)


def test_a_full_cache_is_replaced(tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_spans, "_MAX_WORDS", 5)
    cache = WordSpanCache(tokenizer._tokenizer)
    kept = cache.find_spans("one two three")
    for text in ("four five six", "one two seven", "a b c d e f g h"):
        assert cache.find_spans(text) == tokenize(tokenizer, text)
    assert kept == tokenize(tokenizer, "one two three")


@pytest.mark.parametrize("chars", [99, 101, 999, 1001])
def test_long_words_have_the_spans_of_the_tokenizer(tokenizer: ModelTokenizer, chars: int) -> None:
    for letter in ("x", "-", " ", "é"):
        text = f"short {letter * chars}| end"
        assert WordSpanCache(tokenizer._tokenizer).find_spans(text) == tokenize(tokenizer, text)


@pytest.mark.parametrize("text", ["one two, three 'four'", "it's über-long", "x" * 2000, "new " * 50 + "réaliste"])
def test_a_limit_is_compared_with_the_number_of_tokens(tokenizer: ModelTokenizer, text: str) -> None:
    count = len(tokenize(tokenizer, text))
    cache = WordSpanCache(tokenizer._tokenizer)
    for _ in range(2):  # before and after its words are cached
        for limit in (0, count - 1, count, count + 1, 5 * len(text)):
            spans = cache.find_spans(text)
            assert spans is not None
            assert spans.has_at_most(limit) == (count <= limit)


def test_other_kinds_of_tokenizers_are_not_split() -> None:
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert can_split_words(words)
    words.post_processor = processors.ByteLevel(add_prefix_space=True)
    assert not can_split_words(words)
    words.post_processor = processors.ByteLevel(add_prefix_space=False)
    words.add_tokens([AddedToken("a b", normalized=True)])
    assert not can_split_words(words)
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not can_split_words(words)
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.normalizer = normalizers.NFKC()
    assert not can_split_words(words)
    assert not can_split_words(Tokenizer(models.Unigram()))
