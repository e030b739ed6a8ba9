"""The outline of a page's Markdown: headings, links and blocks, each with its place in the file.

Block structure comes from markdown-it; inline text is read only where a heading or a link needs it. Tables are told
from paragraphs afterwards, since parsing every cell is slow and nobody asks for cells.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from wikiholt.model import Block, Heading, Link
from wikiholt.text.anchors import Anchors, AnchorStyle
from wikiholt.text.decoding import one_line
from wikiholt.text.inline import WIKI_LINK, links, plain_inline, wiki_link
from wikiholt.text.links import paths_of

_KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "fence": "fence",
    "code_block": "code",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "blockquote_open": "quote",
    "html_block": "html",
    "hr": "rule",
}
_INLINE_MARKUP = re.compile(r"[\\`*_\[<&]")
_TABLE_RULE = re.compile(r"^[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_LONGEST_HEADING = 2_000
_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX_LINE = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")


@dataclass(frozen=True, slots=True)
class Outline:
    """What stands where on a page; the blocks cover every line that is not blank, in order."""

    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a body and where each begins."""

    texts: Sequence[str]
    starts: Sequence[int]
    first: int

    @classmethod
    def of(cls, body: str, first: int) -> "_Lines":
        texts = body.split("\n")
        return cls(texts, [0, *accumulate(len(text) + 1 for text in texts)], first)

    def block(self, kind: str, begin: int, end: int) -> Block | None:
        """The block on the lines [begin, end) without the blank ones at its edges."""
        while begin < end and not self.texts[end - 1].strip():
            end -= 1
        while begin < end and not self.texts[begin].strip():
            begin += 1
        if begin >= end:
            return None
        return Block(kind, self.starts[begin], self.starts[end] - 1, self.first + begin, self.first + end - 1)


def outline(body: str, first_line: int = 1, style: AnchorStyle = "github", file: str = "") -> Outline:
    """Read the outline of a body whose first line is this line of the file; any text has one."""
    lines = _Lines.of(body, first_line)
    env: dict[str, Any] = {}
    try:
        tokens = _parser().parse(body, env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        tokens = _plain_tokens(lines)
    references: Mapping[str, Any] = env.get("references", {})
    anchors = Anchors(style)
    headings: list[Heading] = []
    found: list[Link] = []
    for at, token in enumerate(tokens):
        if token.type != "inline" or not token.map:
            continue
        line = first_line + token.map[0]
        if tokens[at - 1].type == "heading_open":
            text = _heading_text(token.content)
            headings.append(Heading(int(tokens[at - 1].tag[1]), text, anchors.add(text), line))
        content = token.content
        at_char = 0
        for place in links(content, references):
            line += content.count("\n", at_char, place.offset)
            at_char = max(at_char, place.offset)
            paths = paths_of(place.targets, place.wiki, file)
            found.append(Link(one_line(place.targets[0]), one_line(place.text), line, place.wiki, paths))
    return Outline(tuple(headings), tuple(found), tuple(_blocks(tokens, lines)))


def link_lines(body: str) -> Iterator[tuple[bool, int, int]]:
    """The lines [begin, end) of a body in which links may stand, and those that define one (True), in no order."""
    env: dict[str, Any] = {}
    try:
        tokens = _parser().parse(body, env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        tokens = _plain_tokens(_Lines.of(body, 1))
    for token in tokens:
        if token.type == "inline" and token.map:
            yield False, token.map[0], token.map[1]
    for reference in (*env.get("references", {}).values(), *env.get("duplicate_refs", ())):
        if reference.get("map"):
            yield True, *reference["map"]


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    parser.core.ruler.disable(["inline", "text_join"])
    return parser


def _heading_text(content: str) -> str:
    if not _INLINE_MARKUP.search(content):
        return one_line(content)
    if len(content) > _LONGEST_HEADING:
        return one_line(plain_inline(content))
    content = WIKI_LINK.sub(lambda link: wiki_link(link[1])[1], content)
    tokens = MarkdownIt.parseInline(_inline_parser(), content)
    return one_line("".join(_texts(tokens[0].children or ())) if tokens else content)


@cache
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("strikethrough")


def _texts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            yield " "
        elif token.type != "html_inline":
            yield token.content


def _blocks(tokens: Sequence[Token], lines: _Lines) -> Iterator[Block]:
    """The top-level blocks in order, lists item by item, and what lies between them (link definitions)."""
    done = 0
    for token in tokens:
        kind = _kind(token)
        if not kind or not token.map or token.map[1] <= done:
            continue
        begin, end = max(token.map[0], done), min(token.map[1], len(lines.texts))
        yield from _present(lines.block("definition", done, begin))
        if kind == "paragraph":
            yield from _paragraph(lines, begin, end)
        else:
            yield from _present(lines.block(kind, begin, end))
        done = end
    yield from _present(lines.block("definition", done, len(lines.texts)))


def _kind(token: Token) -> str | None:
    if token.level == 0 and token.type not in {"bullet_list_open", "ordered_list_open"}:
        return _KINDS.get(token.type)
    return "list" if token.level == 1 and token.type == "list_item_open" else None


def _paragraph(lines: _Lines, begin: int, end: int) -> Iterator[Block]:
    """A paragraph, or the paragraph and the table that it ends in."""
    for at in range(begin + 1, end):
        text = lines.texts[at]
        if "-" in text and "|" in text + lines.texts[at - 1] and _TABLE_RULE.match(text):
            yield from _present(lines.block("paragraph", begin, at - 1))
            yield from _present(lines.block("table", at - 1, end))
            return
    yield from _present(lines.block("paragraph", begin, end))


def _present(block: Block | None) -> tuple[Block, ...]:
    return (block,) if block else ()


def _plain_tokens(lines: _Lines) -> list[Token]:
    """A rough outline for the text markdown-it gives up on: headings and fences, line by line."""
    tokens: list[Token] = []
    fence = ""
    for at, text in enumerate(lines.texts):
        found = _FENCE_LINE.match(text)
        if found and (not fence or (found[1].startswith(fence))):
            fence = "" if fence else found[1]
        heading = None if fence else _ATX_LINE.match(text)
        if heading:
            tokens.append(Token("heading_open", f"h{len(heading[1])}", 1, map=[at, at + 1], level=0))
            tokens.append(Token("inline", "", 0, map=[at, at + 1], level=1, content=heading[2] or ""))
    return tokens
