"""Parses a page's Markdown into headings with anchors, links and blocks, with their positions in the file.

Inline text is parsed only for headings and links. Tables are recognized after the blocks, since parsing every cell is
slow and cells are not needed.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from typing import Any, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from wikiholt.domain.page import Heading, Link, MarkdownBlock
from wikiholt.text.charset import to_one_line
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import NO_METADATA, InlineMetadata, find_inline_metadata, split_heading_id, to_gfm
from wikiholt.text.inline import WIKI_LINK_PATTERN, find_links, may_have_links, parse_wiki_link, strip_inline_to_line
from wikiholt.text.links import resolve_link_paths

AnchorStyle = Literal["github", "otterwiki"]

_ASCII_DROPPED = re.compile(r"[^\w\- ]", re.ASCII)
_NOT_SLUG = re.compile(r"[^\w\s\-]", re.ASCII)
_DASHES = re.compile(r"[-\s]+")

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


# Blocks, and the texts in them, in the tree of tokens that markdown-it makes of a body.


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


# Headings, links and blocks with their positions.


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

_INLINE_MARKUP = re.compile(r"[\\`*_\[<&]")
_TABLE_RULE = re.compile(r"^[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?>(?:\|[ \t]*+:?-++:?[ \t]*+){0,9999})\|?[ \t]*+$")
_MAX_HEADING_CHARS = 2_000
_MAX_HEADING_TEXT_CHARS = 500
"""Stored characters of a heading; every chunk under the heading repeats them."""
_NEWLINE = re.compile("\n")

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
        return cls(texts, [0, *accumulate([len(text) + 1 for text in texts])], first)

    def add_block(self, found: list[MarkdownBlock], kind: str, begin: int, end: int, offset: int = 0) -> None:
        """Add the block on the lines [begin, end), without blank lines at its edges, unless all are blank."""
        texts = self.texts
        while begin < end and not texts[end - 1].strip():
            end -= 1
        while begin < end and not texts[begin].strip():
            begin += 1
        if begin < end:
            start, stop = offset + self.starts[begin], offset + self.starts[end] - 1
            found.append(MarkdownBlock(kind, start, stop, self.first + begin, self.first + end - 1))


def parse_outline(
    body: str, first_line: int = 1, style: AnchorStyle = "github", file: str = "", dialect: Dialect = GFM
) -> PageOutline:
    """Parse a body whose first line is `first_line` of the file. Never raises."""
    parsed_body, rest = _split_body(body)
    lines = _BodyLines.from_body(parsed_body, first_line)
    parsed = parse_blocks(parsed_body)
    anchors = AnchorGenerator(style)
    headings: list[Heading] = []
    for source in parsed.texts:
        if source.heading_level:
            content, heading_id = split_heading_id(source.content, dialect.has_routes or file.endswith(".mdx"))
            text = _get_heading_text(to_gfm(content, dialect))
            anchor = heading_id or anchors.add(text)
            headings.append(Heading(source.heading_level, text, anchor, first_line + source.begin))
    links = tuple(islice(_find_page_links(parsed.texts, parsed.references, first_line, file, dialect), MAX_LINKS + 1))
    warnings = (
        [f"the page has more than {MAX_LINES:,} lines; headings and links after these are ignored"] if rest else []
    )
    if len(links) > MAX_LINKS:
        warnings.append(f"the page has more than {MAX_LINKS:,} links; only the first {MAX_LINKS:,} are indexed")
    blocks = _find_blocks(parsed.blocks, lines)
    if rest:
        rest_lines = _BodyLines.from_body(body[rest:], first_line + body.count("\n", 0, rest))
        rest_lines.add_block(blocks, "paragraph", 0, len(rest_lines.texts), rest)
    contents = (text.content for text in parsed.texts)
    metadata = find_inline_metadata(contents, dialect) if dialect.has_note_markup else NO_METADATA
    return PageOutline(tuple(headings), links[:MAX_LINKS], tuple(blocks), tuple(warnings), metadata)


def _find_page_links(
    texts: Sequence[InlineText], references: Mapping[str, Any], first_line: int, file: str, dialect: Dialect
) -> Iterator[Link]:
    for content, begin, _, _ in texts:
        if not may_have_links(content):
            continue
        line = first_line + begin
        position = 0
        for link in find_links(content, references, dialect.link_order):
            line += content.count("\n", position, link.offset)
            position = max(position, link.offset)
            paths = resolve_link_paths(link.targets, link.is_wiki_link, file, dialect.resolution)
            yield Link(to_one_line(link.targets[0]), to_one_line(link.text), line, link.is_wiki_link, paths)


def _split_body(body: str) -> tuple[str, int]:
    """The part of a body that is parsed as Markdown, and the offset of the rest, or 0."""
    if body.count("\n") < MAX_LINES:
        return body, 0
    rest = next(islice(_NEWLINE.finditer(body), MAX_LINES - 1, None)).end()
    return (body[:rest], rest) if rest < len(body) else (body, 0)


def iter_link_lines(body: str) -> Iterator[tuple[bool, int, int]]:
    """Line ranges [begin, end) of a body that may contain links (False) or a link definition (True), in any order."""
    parsed = parse_blocks(_split_body(body)[0])
    for text in parsed.texts:
        yield False, text.begin, text.end
    for reference in (*parsed.references.values(), *parsed.env.get("duplicate_refs", ())):
        if reference.get("map"):
            yield True, *reference["map"]


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


def _find_blocks(blocks: Sequence[BlockLines], lines: _BodyLines) -> list[MarkdownBlock]:
    """The top-level blocks in order, lists item by item, and link definitions between them."""
    found: list[MarkdownBlock] = []
    last_line = 0
    for kind, block_begin, block_end in blocks:
        if block_end <= last_line:
            continue
        begin, end = max(block_begin, last_line), min(block_end, len(lines.texts))
        if begin > last_line:
            lines.add_block(found, "definition", last_line, begin)
        table = _find_table(lines.texts, begin, end) if kind == "paragraph" and end > begin + 1 else end
        lines.add_block(found, kind, begin, table)
        if table < end:
            lines.add_block(found, "table", table, end)
        last_line = end
    lines.add_block(found, "definition", last_line, len(lines.texts))
    return found


def _find_table(texts: Sequence[str], begin: int, end: int) -> int:
    """The line of a paragraph on which a table begins, or its end."""
    for index in range(begin + 1, end):
        text = texts[index]
        if "-" in text and "|" in text + texts[index - 1] and _TABLE_RULE.match(text):
            return index - 1
    return end
