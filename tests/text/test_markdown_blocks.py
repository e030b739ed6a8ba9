"""Blocks are found as markdown-it finds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.text.markdown_samples import markdown_texts
from wikiholt.text import markdown_blocks
from wikiholt.text.markdown_blocks import BlockLines, InlineText, ParsedBlocks, parse_blocks

_KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "fence": "fence",
    "code_block": "code",
    "blockquote_open": "quote",
    "html_block": "html",
    "hr": "rule",
}
_LINES = (
    "word",
    "  word",
    "    word",
    "\tword",
    "é",
    "**bold**",
    "*",
    "-x",
    "7 words",
    "7. seven",
    "1. one",
    "10) ten",
    "- item",
    "-  item",
    "-     code",
    "-",
    "- - item",
    "- [ ] task",
    "- <b>",
    "* item",
    "  - inner",
    "    - innermost",
    "   indented",
    "> quote",
    ">quote",
    "> > quote",
    "> - item",
    ">",
    "# Heading #",
    "#",
    "#tag",
    "####### no",
    "  ## Heading",
    "```",
    "```js",
    "``` a`b",
    "~~~",
    "  ```",
    "`x`",
    "---",
    "- - -",
    "===",
    "=x",
    "***",
    "<div>",
    "<b>",
    "<!-- c",
    "-->",
    "[a]: b",
    "[a]: b 'c",
    "[a](b)",
    "[a",
    "| a | b |",
    "\u00a0",
)
_PIECES = (*_LINES, "- ", "> ", "  ", "    ", "\t", "1. ", "\r", "\0")
_pages = st.lists(st.sampled_from(("", "", *_LINES)), max_size=16).map("\n".join)
_texts = st.lists(st.sampled_from(("\n", "\n\n", *_PIECES)), max_size=20).map("".join)


@given(_pages | _texts | markdown_texts)
def test_blocks_and_texts_are_those_of_markdown_it(text: str) -> None:
    found, expected = parse_blocks(text), _parse_by_markdown_it(text)
    assert _trim(found.blocks, text) == _trim(expected.blocks, text)
    assert found.texts == expected.texts
    assert found.env == expected.env


def test_common_blocks_are_found_without_markdown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(markdown_blocks, "StateBlock")
    body = "# A\n\nText\nmore\n- [x](y)\n  - : z\n\n    w\n1. n\n\n> q\n>\n> r\n\n```js\n# no\n```\n<div>\n- no\n\nend"
    body += "\n\n<!-- c\n\n- no -->\nend"
    assert parse_blocks(body) == _parse_by_markdown_it(body)


def test_if_markdown_it_fails_the_headings_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(markdown_blocks, "StateBlock", fail)
    assert parse_blocks("# A #\n\n    code\n```\n# no\n```\n## B").texts == [
        InlineText("A", 0, 1, 1),
        InlineText("B", 6, 7, 2),
    ]


def _parse_by_markdown_it(text: str) -> ParsedBlocks:
    parser = MarkdownIt("commonmark")
    parser.core.ruler.disable(["inline", "text_join"])
    found = ParsedBlocks()
    tokens = parser.parse(text, found.env)
    for index, token in enumerate(tokens):
        if token.map is None:
            continue
        if token.type == "inline":
            before = tokens[index - 1]
            level = int(before.tag[1]) if before.type == "heading_open" else 0
            found.texts.append(InlineText(token.content, *token.map, level))
        elif token.level == 0 and token.type in _KINDS:
            found.blocks.append(BlockLines(_KINDS[token.type], *token.map))
        elif token.level == 1 and token.type == "list_item_open":
            found.blocks.append(BlockLines("list", *token.map))
    return found


def _trim(blocks: list[BlockLines], text: str) -> list[BlockLines]:
    """The blocks without blank lines at their ends, which some rules include."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    trimmed = []
    for kind, begin, end in blocks:
        last = min(end, len(lines))
        while last > begin and not lines[last - 1].strip(" \t"):
            last -= 1
        trimmed.append(BlockLines(kind, begin, last))
    return trimmed
