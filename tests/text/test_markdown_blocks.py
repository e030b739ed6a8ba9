"""The blocks and texts of a page."""

import pytest

from wikiholt.text import markdown
from wikiholt.text.markdown import BlockLines, InlineText, parse_blocks

BODY = (
    "# A\n\nText\nmore\n- [x](y)\n  - inner\n\n    end\n1. one\n\n> q\n> # B\n\n```js\n# no\n```\n<div>\n\n---\n[a]: b"
)


def test_blocks_of_the_top_level_and_the_texts_in_them_are_found_with_their_lines() -> None:
    found = parse_blocks(BODY)
    assert found.blocks == [
        BlockLines("heading", 0, 1),
        BlockLines("paragraph", 2, 4),
        BlockLines("list", 4, 8),
        BlockLines("list", 8, 10),
        BlockLines("quote", 10, 12),
        BlockLines("fence", 13, 16),
        BlockLines("html", 16, 17),
        BlockLines("rule", 18, 19),
    ]
    assert found.texts[:2] == [InlineText("A", 0, 1, 1), InlineText("Text\nmore", 2, 4)]
    assert found.texts[-1] == InlineText("B", 11, 12, 1)
    assert found.references["A"]["href"] == "b"


def test_if_markdown_it_fails_the_headings_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(markdown.MarkdownIt, "parse", fail)
    assert parse_blocks("# A #\n\n    code\n```\n# no\n```\n## B").texts == [
        InlineText("A", 0, 1, 1),
        InlineText("B", 6, 7, 2),
    ]
