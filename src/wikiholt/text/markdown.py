"""Parses a page's Markdown into headings with anchors, links and blocks, with their positions in the file.

markdown-it finds the blocks; inline text is parsed only for headings and links. Tables are recognized afterwards,
since parsing every cell is slow and cells are not needed.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock, heading
from markdown_it.token import Token

from wikiholt.domain.page import Heading, Link, MarkdownBlock
from wikiholt.text.charset import to_one_line
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import NO_METADATA, InlineMetadata, find_inline_metadata, split_heading_id, to_gfm
from wikiholt.text.inline import WIKI_LINK_PATTERN, find_links, parse_wiki_link, strip_inline_to_line
from wikiholt.text.links import resolve_link_paths

AnchorStyle = Literal["github", "otterwiki"]

_ASCII_DROPPED = re.compile(r"[^\w\- ]", re.ASCII)
_NOT_SLUG = re.compile(r"[^\w\s\-]", re.ASCII)
_DASHES = re.compile(r"[-\s]+")


def make_github_slug(text: str) -> str:
    """GitHub's slug: lower case; letters, marks, digits, `_` and `-` stay, spaces become `-`, the rest is removed."""
    lowered = text.strip().lower()
    if lowered.isascii():
        kept = _ASCII_DROPPED.sub("", lowered)
    else:
        kept = "".join(c for c in lowered if c in "- " or _is_word_character(c))
    return kept.replace(" ", "-")


def make_otterwiki_slug(text: str) -> str:
    """Otterwiki's slug: ASCII only (accents and other scripts removed), lower case, one dash for spaces and dashes."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _DASHES.sub("-", _NOT_SLUG.sub("", ascii_text.strip().lower()))


def _is_word_character(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LM" or category in {"Nd", "Nl", "Pc"}


class AnchorGenerator:
    """Generates the anchors of one page's headings, in order; a repeated heading gets `-1`, `-2`, ….

    GitHub's anchors are unique. Otterwiki (2.26) counts by heading text alone, so `A`, `A`, `A-1` gives `a-1` twice;
    this does the same, since the anchor must be the one that the wiki generates.
    """

    def __init__(self, style: AnchorStyle) -> None:
        self._style = style
        self._counts: dict[str, int] = {}

    def add(self, text: str) -> str:
        if self._style == "otterwiki":
            slug = make_otterwiki_slug(text)
            count = self._counts.get(slug, -1) + 1
            self._counts[slug] = count
            return f"{slug}-{count}" if count else slug
        slug = make_github_slug(text)
        anchor = slug
        while anchor in self._counts:
            self._counts[slug] += 1
            anchor = f"{slug}-{self._counts[slug]}"
        self._counts[anchor] = 0
        return anchor


# Outline.

_BLOCK_KINDS = {
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
_MAX_HEADING_CHARS = 2_000
_MAX_HEADING_TEXT_CHARS = 500
"""Stored characters of a heading; every chunk under the heading repeats them."""
_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX_LINE = re.compile(r"^ {0,3}(#{1,6})(?![^ \t])(.*)$")
_NEWLINE = re.compile("\n")
_TEXT_START = re.compile(r"[^\s`~>*\-_+#<=0-9]|`(?!``)")
"""The first character of a line that continues a paragraph, or begins one or a link definition."""
_COARSE_BLOCK_LINES = 1_000

MAX_LINES = 100_000
"""Lines of a page that are parsed as Markdown: each may take kilobytes of memory."""

MAX_LINKS = 10_000
"""Links of a page that are indexed; a page of nothing but links would fill the disk."""


@dataclass(frozen=True, slots=True)
class PageOutline:
    """The structure of a page. The blocks cover every line that is not blank, in order.

    Beyond MAX_LINES there are no headings and links, and there are at most MAX_LINKS links; `warnings` say so.
    """

    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    blocks: tuple[MarkdownBlock, ...]
    warnings: tuple[str, ...] = ()
    metadata: InlineMetadata = NO_METADATA


@dataclass(frozen=True, slots=True)
class _BodyLines:
    """The lines of a body and their offsets."""

    texts: Sequence[str]
    starts: Sequence[int]
    first: int

    @classmethod
    def from_body(cls, body: str, first: int) -> "_BodyLines":
        texts = body.split("\n")
        return cls(texts, [0, *accumulate(len(text) + 1 for text in texts)], first)

    def make_block(self, kind: str, begin: int, end: int, offset: int = 0) -> MarkdownBlock | None:
        """The block on the lines [begin, end), without blank lines at its edges; None if all are blank."""
        while begin < end and not self.texts[end - 1].strip():
            end -= 1
        while begin < end and not self.texts[begin].strip():
            begin += 1
        if begin >= end:
            return None
        start, stop = offset + self.starts[begin], offset + self.starts[end] - 1
        return MarkdownBlock(kind, start, stop, self.first + begin, self.first + end - 1)


def parse_outline(
    body: str, first_line: int = 1, style: AnchorStyle = "github", file: str = "", dialect: Dialect = GFM
) -> PageOutline:
    """Parse a body whose first line is `first_line` of the file. Never raises."""
    parsed_body, rest = _split_body(body)
    lines = _BodyLines.from_body(parsed_body, first_line)
    tokens, env = _parse_tokens(parsed_body)
    anchors = AnchorGenerator(style)
    headings: list[Heading] = []
    for index, token in enumerate(tokens):
        if token.type == "inline" and token.map and tokens[index - 1].type == "heading_open":
            content, heading_id = split_heading_id(token.content, dialect.has_admonitions or file.endswith(".mdx"))
            text = _get_heading_text(to_gfm(content, dialect))
            anchor = heading_id or anchors.add(text)
            headings.append(Heading(int(tokens[index - 1].tag[1]), text, anchor, first_line + token.map[0]))
    links = tuple(islice(_find_page_links(tokens, env.get("references", {}), first_line, file, dialect), MAX_LINKS + 1))
    warnings = (
        [f"the page has more than {MAX_LINES:,} lines; headings and links after these are ignored"] if rest else []
    )
    if len(links) > MAX_LINKS:
        warnings.append(f"the page has more than {MAX_LINKS:,} links; only the first {MAX_LINKS:,} are indexed")
    blocks = (*_iter_blocks(tokens, lines), *_iter_coarse_blocks(body, rest, first_line))
    texts = (token.content for token in tokens if token.type == "inline")
    metadata = find_inline_metadata(texts, dialect) if dialect.has_note_markup else NO_METADATA
    return PageOutline(tuple(headings), links[:MAX_LINKS], blocks, tuple(warnings), metadata)


def _find_page_links(
    tokens: Sequence[Token], references: Mapping[str, Any], first_line: int, file: str, dialect: Dialect
) -> Iterator[Link]:
    for token in tokens:
        if token.type != "inline" or not token.map:
            continue
        line = first_line + token.map[0]
        position = 0
        for link in find_links(token.content, references, dialect.link_order):
            line += token.content.count("\n", position, link.offset)
            position = max(position, link.offset)
            paths = resolve_link_paths(link.targets, link.is_wiki_link, file, dialect.resolution)
            yield Link(to_one_line(link.targets[0]), to_one_line(link.text), line, link.is_wiki_link, paths)


def _split_body(body: str) -> tuple[str, int]:
    """The part of a body that is parsed as Markdown, and the offset of the rest, or 0."""
    if body.count("\n") < MAX_LINES:
        return body, 0
    rest = next(islice(_NEWLINE.finditer(body), MAX_LINES - 1, None)).end()
    return (body[:rest], rest) if rest < len(body) else (body, 0)


def _parse_tokens(text: str) -> tuple[list[Token], dict[str, Any]]:
    """The block tokens of a text, and markdown-it's environment with its link definitions."""
    env: dict[str, Any] = {}
    try:
        return _get_parser().parse(text, env), env
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return _parse_plain_tokens(text), env


def iter_link_lines(body: str) -> Iterator[tuple[bool, int, int]]:
    """Line ranges [begin, end) of a body that may contain links (False) or a link definition (True), in any order."""
    tokens, env = _parse_tokens(_split_body(body)[0])
    for token in tokens:
        if token.type == "inline" and token.map:
            yield False, token.map[0], token.map[1]
    for reference in (*env.get("references", {}).values(), *env.get("duplicate_refs", ())):
        if reference.get("map"):
            yield True, *reference["map"]


@cache
def _get_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    parser.core.ruler.disable(["inline", "text_join"])
    parser.block.ruler.before("code", "common_block", _parse_common_block)
    return parser


def _parse_common_block(state: StateBlock, line: int, end_line: int, silent: bool) -> bool:
    """A heading, or a paragraph in which no line can begin another block: the other rules need not be tried."""
    start = state.bMarks[line] + state.tShift[line]
    if state.is_code_block(line):
        return False
    if state.src[start] == "#":
        return heading(state, line, end_line, silent)
    if state.src[start] == "[":
        return False  # maybe a link definition: of many in a row, each would be searched to the end of all
    next_line = line
    while next_line < state.lineMax and not state.isEmpty(next_line):
        if not _TEXT_START.match(state.src, state.bMarks[next_line] + state.tShift[next_line]):
            return False
        next_line += 1
    content = mdTrim(state.getLines(line, next_line, state.blkIndent, False))
    state.line = next_line
    state.push("paragraph_open", "p", 1).map = [line, next_line]
    token = state.push("inline", "", 0)
    token.content = content
    token.map = [line, next_line]
    token.children = []
    state.push("paragraph_close", "p", -1)
    return True


def _get_heading_text(content: str) -> str:
    if not _INLINE_MARKUP.search(content):
        text = to_one_line(content[: _MAX_HEADING_CHARS * 10])
    elif len(content) > _MAX_HEADING_CHARS:
        text = to_one_line(strip_inline_to_line(content[: _MAX_HEADING_CHARS * 10]))
    else:
        content = WIKI_LINK_PATTERN.sub(lambda link: parse_wiki_link(link[1])[1], content)
        tokens = MarkdownIt.parseInline(_get_inline_parser(), content)
        text = to_one_line("".join(_iter_texts(tokens[0].children or ())) if tokens else content)
    return text[:_MAX_HEADING_TEXT_CHARS].rstrip()


@cache
def _get_inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("strikethrough")


def _iter_texts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            yield " "
        elif token.type != "html_inline":
            yield token.content


def _iter_blocks(tokens: Sequence[Token], lines: _BodyLines) -> Iterator[MarkdownBlock]:
    """The top-level blocks in order, lists item by item, and link definitions between them."""
    last_line = 0
    for token in tokens:
        kind = _get_block_kind(token)
        if not kind or not token.map or token.map[1] <= last_line:
            continue
        begin, end = max(token.map[0], last_line), min(token.map[1], len(lines.texts))
        yield from _to_tuple(lines.make_block("definition", last_line, begin))
        if kind == "paragraph":
            yield from _iter_paragraph_blocks(lines, begin, end)
        else:
            yield from _to_tuple(lines.make_block(kind, begin, end))
        last_line = end
    yield from _to_tuple(lines.make_block("definition", last_line, len(lines.texts)))


def _iter_coarse_blocks(body: str, begin: int, first_line: int) -> Iterator[MarkdownBlock]:
    """The part of a body after MAX_LINES, in blocks of a thousand lines."""
    line = first_line + body.count("\n", 0, begin)
    while 0 < begin < len(body):
        last = next(islice(_NEWLINE.finditer(body, begin), _COARSE_BLOCK_LINES - 1, None), None)
        end = last.end() if last else len(body)
        text = body[begin:end]
        yield from _to_tuple(_BodyLines.from_body(text, line).make_block("paragraph", 0, text.count("\n") + 1, begin))
        line += text.count("\n")
        begin = end


def _get_block_kind(token: Token) -> str | None:
    if token.level == 0 and token.type not in {"bullet_list_open", "ordered_list_open"}:
        return _BLOCK_KINDS.get(token.type)
    return "list" if token.level == 1 and token.type == "list_item_open" else None


def _iter_paragraph_blocks(lines: _BodyLines, begin: int, end: int) -> Iterator[MarkdownBlock]:
    """A paragraph, or a paragraph followed by a table."""
    for index in range(begin + 1, end):
        text = lines.texts[index]
        if "-" in text and "|" in text + lines.texts[index - 1] and _TABLE_RULE.match(text):
            yield from _to_tuple(lines.make_block("paragraph", begin, index - 1))
            yield from _to_tuple(lines.make_block("table", index - 1, end))
            return
    yield from _to_tuple(lines.make_block("paragraph", begin, end))


def _to_tuple(block: MarkdownBlock | None) -> tuple[MarkdownBlock, ...]:
    return (block,) if block else ()


def _parse_plain_tokens(body: str) -> list[Token]:
    """Headings found line by line, outside fences, for text that markdown-it cannot parse."""
    tokens: list[Token] = []
    fence = ""
    for index, text in enumerate(body.split("\n")):
        match = _FENCE_LINE.match(text)
        if match and (not fence or (match[1].startswith(fence))):
            fence = "" if fence else match[1]
        heading = None if fence else _ATX_LINE.match(text)
        if heading:
            tokens.append(Token("heading_open", f"h{len(heading[1])}", 1, map=[index, index + 1], level=0))
            tokens.append(
                Token("inline", "", 0, map=[index, index + 1], level=1, content=_strip_closing_hashes(heading[2]))
            )
    return tokens


def _strip_closing_hashes(heading: str) -> str:
    """The text of an ATX heading without its closing hashes."""
    text = heading.strip()
    open_text = text.rstrip("#")
    return open_text.rstrip() if not open_text or open_text[-1] in " \t" else text
