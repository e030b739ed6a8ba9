"""Anchors as GitHub and as Otterwiki make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.markdown import AnchorGenerator, make_github_slug, make_otterwiki_slug


@pytest.mark.parametrize(
    ("text", "github", "otterwiki"),
    [
        ("Getting Started", "getting-started", "getting-started"),
        ("What's new?", "whats-new", "whats-new"),
        ("A  B", "a--b", "a-b"),
        ("A - B", "a---b", "a-b"),
        ("C++ & C#", "c--c", "c-c"),
        ("snake_case", "snake_case", "snake_case"),
        ("v1.2.3", "v123", "v123"),
        ("Ünïcode", "ünïcode", "unicode"),
        ("日本語 見出し", "日本語-見出し", ""),
        ("हिन्दी", "हिन्दी", ""),
        ("🎉 Party", "-party", "party"),
        ("foo/bar", "foobar", "foobar"),
        ("  padded  ", "padded", "padded"),
        ("--flag", "--flag", "-flag"),
        ("100%", "100", "100"),
    ],
)
def test_slugs(text: str, github: str, otterwiki: str) -> None:
    assert make_github_slug(text) == github
    assert make_otterwiki_slug(text) == otterwiki


def test_repeated_headings_are_numbered() -> None:
    github, otterwiki = AnchorGenerator("github"), AnchorGenerator("otterwiki")
    headings = ["A", "A", "A-1", "a", "B"]
    assert [github.add(text) for text in headings] == ["a", "a-1", "a-1-1", "a-2", "b"]
    # Otterwiki does not check whether a number is taken, and the link must have the wiki's target
    assert [otterwiki.add(text) for text in headings] == ["a", "a-1", "a-1", "a-2", "b"]


@given(st.lists(st.text("aA1- ", max_size=4), max_size=40))
def test_github_anchors_are_unique(headings: list[str]) -> None:
    anchors = AnchorGenerator("github")
    made = [anchors.add(text) for text in headings]
    assert len(set(made)) == len(made)
