"""Comparisons end soon, whatever the texts are."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from wikiholt.api.operations.page_parts import iter_diff_lines
from wikiholt.domain.page import PageContent
from wikiholt.domain.search import Facet
from wikiholt.errors import InvalidPage
from wikiholt.interfaces.web.renderer import render_changes
from wikiholt.search.filter_notes import _suggest
from wikiholt.text.comparison import find_close_matches

_MAX_SECONDS = 20
"""Of CPU time, on a slow machine. Without a limit each of these takes minutes."""


@pytest.fixture(autouse=True)
def _is_fast() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < _MAX_SECONDS


def test_the_most_similar_text_is_first() -> None:
    known = ["Equipment/Printer", "Equipment/Printers", "Coffee"]
    assert find_close_matches("Equipment/Printer ", known, 2, 0.75) == ["Equipment/Printer", "Equipment/Printers"]
    assert find_close_matches("Tea", known, 2, 0.75) == []


_HARD_TEXT = "".join("aaa" + chr(0x4E00 + number) for number in range(60))
"""Has many short parts in common with a long row of the same letter, and none that is longer than the others."""


def test_similar_paths_of_many_long_paths() -> None:
    known = [f"{_HARD_TEXT}{number}" for number in range(2000)]
    assert len(find_close_matches("a" * 199, known, 2, 0.5)) == 2


def test_similar_values_of_many_long_values() -> None:
    facets = [Facet(f"{_HARD_TEXT}{number}", 1) for number in range(1000)]
    assert "did you mean" in _suggest("a" * 199, facets)


def test_versions_of_a_page_with_many_equal_lines() -> None:
    old = "a\n" * 3000
    new = "".join(f"a\nline {number}\n" for number in range(1500))
    assert "too long to compare" in render_changes(old, new)


def test_versions_of_a_page_for_an_agent() -> None:
    old = "".join(f"s{number // 50}\n" for number in range(5000))
    new = "".join(f"s{number // 25}\nline {number}\n" for number in range(2500))
    pages = [cast(PageContent, SimpleNamespace(content=content, file="a.md")) for content in (old, new)]
    with pytest.raises(InvalidPage, match="too long to compare"):
        list(iter_diff_lines(*pages))
