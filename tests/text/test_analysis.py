"""The analyser's cache: its size does not change results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text import analysis
from wikiholt.text.analysis import Analyser

WORDS = st.sampled_from(["running", "tests", "universities", "cats", "kubectl_applies", "GPUs東京", "café’s", "x" * 70])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=4)


@given(texts=TEXTS, most=st.integers(1, 6))
def test_words_of_a_page_do_not_depend_on_what_was_read_before(texts: list[str], most: int) -> None:
    expected = [Analyser("english").to_field_text(text) for text in texts]
    uncached = Analyser("english")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "_MAX_CACHED_TOKENS", most)
        assert [uncached.to_field_text(text) for text in texts] == expected
        assert [uncached.to_field_text(text) for text in texts] == expected
        assert uncached.get_token_forms("running") == ("running",)


def test_the_cache_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "_MAX_CACHED_TOKENS", 10)
    words = Analyser("english")
    words.to_terms(" ".join(f"word{n}" for n in range(100)))
    assert len(words._cache) <= 10
