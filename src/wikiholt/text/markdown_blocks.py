"""Finds the blocks of a page's Markdown and the texts in them, in the tree of tokens that markdown-it makes of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX_LINE = re.compile(r"^ {0,3}(#{1,6})(?![^ \t])(.*)$")
_BLOCK_KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "fence": "fence",
    "code_block": "code",
    "blockquote_open": "quote",
    "html_block": "html",
    "hr": "rule",
}


class BlockLines(NamedTuple):
    """The kind and the lines [begin, end) of a block of the top level. Each item of a list is a block."""

    kind: str
    begin: int
    end: int


class InlineText(NamedTuple):
    """The text of a heading, whose level is not 0, or of a paragraph, without the markers of what it is in."""

    content: str
    begin: int
    end: int
    heading_level: int = 0


@dataclass(frozen=True, slots=True)
class ParsedBlocks:
    """The blocks of a body and the texts in them, in order, and its link definitions as markdown-it stores them."""

    blocks: list[BlockLines] = field(default_factory=list)
    texts: list[InlineText] = field(default_factory=list)
    env: dict[str, Any] = field(default_factory=dict)

    @property
    def references(self) -> Mapping[str, Any]:
        references: Mapping[str, Any] = self.env.get("references", {})
        return references


def parse_blocks(body: str) -> ParsedBlocks:
    """Parse a body. If markdown-it fails, only the headings of the body are found."""
    found = ParsedBlocks()
    try:
        tokens = _get_parser().parse(body, found.env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return _find_headings(body, found.env)
    heading_level = 0
    for token in tokens:
        if token.map is None:
            continue
        begin, end = token.map
        if token.type == "inline":
            found.texts.append(InlineText(token.content, begin, end, heading_level))
        heading_level = int(token.tag[1]) if token.type == "heading_open" else 0
        if token.level == 0 and (kind := _BLOCK_KINDS.get(token.type)):
            found.blocks.append(BlockLines(kind, begin, end))
        elif token.level == 1 and token.type == "list_item_open":
            found.blocks.append(BlockLines("list", begin, end))
    return found


@cache
def _get_parser() -> MarkdownIt:
    """A parser of blocks: the text of a paragraph is not parsed."""
    return MarkdownIt("commonmark").disable(["inline", "text_join"])


def _find_headings(body: str, env: dict[str, Any]) -> ParsedBlocks:
    """Headings found line by line, outside fences, for text that markdown-it cannot parse."""
    found = ParsedBlocks(env=env)
    fence = ""
    for line, text in enumerate(body.split("\n")):
        match = _FENCE_LINE.match(text)
        if match and (not fence or (match[1].startswith(fence))):
            fence = "" if fence else match[1]
        heading = None if fence else _ATX_LINE.match(text)
        if heading:
            content = _strip_closing_hashes(heading[2])
            found.blocks.append(BlockLines("heading", line, line + 1))
            found.texts.append(InlineText(content, line, line + 1, len(heading[1])))
    return found


def _strip_closing_hashes(heading: str) -> str:
    """The text of an ATX heading without its closing hashes."""
    text = heading.strip()
    open_text = text.rstrip("#")
    return open_text.rstrip() if not open_text or open_text[-1] in " \t" else text
