"""The outline of a page's Markdown: headings, links and blocks, each with its place in the file.

Block structure comes from markdown-it; inline text is read only where a heading or a link needs it. Tables are told
from paragraphs afterwards, since parsing every cell is slow and nobody asks for cells.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
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
_TABLE_RULE = re.compile(r"^[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?>(?:\|[ \t]*+:?-++:?[ \t]*+){0,9999})\|?[ \t]*+$")
_LONGEST_HEADING = 2_000
_LONGEST_HEADING_TEXT = 500
"""Characters of a heading that are kept: every chunk under it carries them."""
_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX_LINE = re.compile(r"^ {0,3}(#{1,6})(?![^ \t])(.*)$")
_NEWLINE = re.compile("\n")
_COARSE = 1_000

MAX_LINES = 100_000
"""Lines of a page that are read as Markdown: each may cost kilobytes, and millions would fill the memory."""

MAX_LINKS = 10_000
"""Links of a page that an index keeps: nobody follows more, and a page of nothing else would fill a disk."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What stands where on a page; the blocks cover every line that is not blank, in order.

    Beyond MAX_LINES there are neither headings nor links, and there are at most MAX_LINKS links; `left_out` says so.
    """

    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    blocks: tuple[Block, ...]
    left_out: tuple[str, ...] = ()


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

    def block(self, kind: str, begin: int, end: int, offset: int = 0) -> Block | None:
        """The block on the lines [begin, end) without the blank ones at its edges."""
        while begin < end and not self.texts[end - 1].strip():
            end -= 1
        while begin < end and not self.texts[begin].strip():
            begin += 1
        if begin >= end:
            return None
        start, stop = offset + self.starts[begin], offset + self.starts[end] - 1
        return Block(kind, start, stop, self.first + begin, self.first + end - 1)


def outline(body: str, first_line: int = 1, style: AnchorStyle = "github", file: str = "") -> Outline:
    """Read the outline of a body whose first line is this line of the file; any text has one."""
    beginning, rest = _parted(body)
    lines = _Lines.of(beginning, first_line)
    tokens, references = _tokens(lines, beginning)
    anchors = Anchors(style)
    headings: list[Heading] = []
    for at, token in enumerate(tokens):
        if token.type == "inline" and token.map and tokens[at - 1].type == "heading_open":
            text = _heading_text(token.content)
            headings.append(Heading(int(tokens[at - 1].tag[1]), text, anchors.add(text), first_line + token.map[0]))
    found = tuple(islice(_links(tokens, references, first_line, file), MAX_LINKS + 1))
    left_out = [f"the page has more than {MAX_LINES:,} lines; headings and links are of those"] if rest else []
    if len(found) > MAX_LINKS:
        left_out.append(f"the page has more than {MAX_LINKS:,} links; the first {MAX_LINKS:,} are kept")
    blocks = (*_blocks(tokens, lines), *_coarse_blocks(body, rest, first_line))
    return Outline(tuple(headings), found[:MAX_LINKS], blocks, tuple(left_out))


def _links(tokens: Sequence[Token], references: Mapping[str, Any], first_line: int, file: str) -> Iterator[Link]:
    for token in tokens:
        if token.type != "inline" or not token.map:
            continue
        line = first_line + token.map[0]
        at = 0
        for place in links(token.content, references):
            line += token.content.count("\n", at, place.offset)
            at = max(at, place.offset)
            paths = paths_of(place.targets, place.wiki, file)
            yield Link(one_line(place.targets[0]), one_line(place.text), line, place.wiki, paths)


def _parted(body: str) -> tuple[str, int]:
    """What of a body is read as Markdown, and where the rest begins if there is one."""
    if body.count("\n") < MAX_LINES:
        return body, 0
    rest = next(islice(_NEWLINE.finditer(body), MAX_LINES - 1, None)).end()
    return (body[:rest], rest) if rest < len(body) else (body, 0)


def _tokens(lines: "_Lines", text: str) -> tuple[list[Token], Mapping[str, Any]]:
    env: dict[str, Any] = {}
    try:
        tokens = _parser().parse(text, env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        tokens = _plain_tokens(lines)
    return tokens, env.get("references", {})


def link_lines(body: str) -> Iterator[tuple[bool, int, int]]:
    """The lines [begin, end) of a body in which links may stand, and those that define one (True), in no order."""
    body, _ = _parted(body)
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
        text = one_line(content[: _LONGEST_HEADING * 10])
    elif len(content) > _LONGEST_HEADING:
        text = one_line(plain_inline(content[: _LONGEST_HEADING * 10]))
    else:
        content = WIKI_LINK.sub(lambda link: wiki_link(link[1])[1], content)
        tokens = MarkdownIt.parseInline(_inline_parser(), content)
        text = one_line("".join(_texts(tokens[0].children or ())) if tokens else content)
    return text[:_LONGEST_HEADING_TEXT].rstrip()


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


def _coarse_blocks(body: str, begin: int, first_line: int) -> Iterator[Block]:
    """What follows the part that is read as Markdown, a thousand lines at a time."""
    line = first_line + body.count("\n", 0, begin)
    while 0 < begin < len(body):
        last = next(islice(_NEWLINE.finditer(body, begin), _COARSE - 1, None), None)
        end = last.end() if last else len(body)
        text = body[begin:end]
        yield from _present(_Lines.of(text, line).block("paragraph", 0, text.count("\n") + 1, begin))
        line += text.count("\n")
        begin = end


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
            tokens.append(Token("inline", "", 0, map=[at, at + 1], level=1, content=_unclosed(heading[2])))
    return tokens


def _unclosed(heading: str) -> str:
    """The text of an ATX heading without the hashes that close it."""
    text = heading.strip()
    open_text = text.rstrip("#")
    return open_text.rstrip() if not open_text or open_text[-1] in " \t" else text
