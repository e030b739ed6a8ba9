"""The fragment a browser jumps to for a heading, as GitHub and as Otterwiki 2.26 make it."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

from wikiholt.domain.page import Heading, Link, MarkdownBlock
from wikiholt.text.charset import to_one_line
from wikiholt.text.inline import WIKI_LINK_PATTERN, find_links, parse_wiki_link, strip_inline_to_line
from wikiholt.text.links import resolve_link_paths

AnchorStyle = Literal["github", "otterwiki"]

_ASCII_DROPPED = re.compile(r"[^\w\- ]", re.ASCII)
_NOT_SLUG = re.compile(r"[^\w\s\-]", re.ASCII)
_DASHES = re.compile(r"[-\s]+")


def make_github_slug(text: str) -> str:
    """Lower case; letters, marks, digits, `_` and `-` stay, spaces become `-`, everything else goes."""
    lowered = text.strip().lower()
    if lowered.isascii():
        kept = _ASCII_DROPPED.sub("", lowered)
    else:
        kept = "".join(c for c in lowered if c in "- " or _is_word_character(c))
    return kept.replace(" ", "-")


def make_otterwiki_slug(text: str) -> str:
    """ASCII only (accents fall off, other scripts vanish), lower case, runs of spaces and dashes are one dash."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _DASHES.sub("-", _NOT_SLUG.sub("", ascii_text.strip().lower()))


def _is_word_character(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LM" or category in {"Nd", "Nl", "Pc"}


class AnchorGenerator:
    """Gives the headings of one page their anchors, in order; a repeated heading gets `-1`, `-2`, ….

    GitHub's are unique. Otterwiki counts by heading text alone, so `A`, `A`, `A-1` gives `a-1` twice there; we do as
    it does, since an anchor that the wiki does not make leads nowhere.
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


# The outline of a page's Markdown: headings, links and blocks, each with its place in the file. Block structure comes
# from markdown-it; inline text is read only where a heading or a link needs it. Tables are told from paragraphs
# afterwards, since parsing every cell is slow and nobody asks for cells.


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
"""Characters of a heading that are kept: every chunk under it carries them."""
_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX_LINE = re.compile(r"^ {0,3}(#{1,6})(?![^ \t])(.*)$")
_NEWLINE = re.compile("\n")
_COARSE_BLOCK_LINES = 1_000

MAX_LINES = 100_000
"""Lines of a page that are read as Markdown: each may cost kilobytes, and millions would fill the memory."""

MAX_LINKS = 10_000
"""Links of a page that an index keeps: nobody follows more, and a page of nothing else would fill a disk."""


@dataclass(frozen=True, slots=True)
class PageOutline:
    """What stands where on a page; the blocks cover every line that is not blank, in order.

    Beyond MAX_LINES there are neither headings nor links, and there are at most MAX_LINKS links; `left_out` says so.
    """

    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    blocks: tuple[MarkdownBlock, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _BodyLines:
    """The lines of a body and where each begins."""

    texts: Sequence[str]
    starts: Sequence[int]
    first: int

    @classmethod
    def from_body(cls, body: str, first: int) -> "_BodyLines":
        texts = body.split("\n")
        return cls(texts, [0, *accumulate(len(text) + 1 for text in texts)], first)

    def make_block(self, kind: str, begin: int, end: int, offset: int = 0) -> MarkdownBlock | None:
        """The block on the lines [begin, end) without the blank ones at its edges."""
        while begin < end and not self.texts[end - 1].strip():
            end -= 1
        while begin < end and not self.texts[begin].strip():
            begin += 1
        if begin >= end:
            return None
        start, stop = offset + self.starts[begin], offset + self.starts[end] - 1
        return MarkdownBlock(kind, start, stop, self.first + begin, self.first + end - 1)


def parse_outline(body: str, first_line: int = 1, style: AnchorStyle = "github", file: str = "") -> PageOutline:
    """Read the outline of a body whose first line is this line of the file; any text has one."""
    beginning, rest = _split_body(body)
    lines = _BodyLines.from_body(beginning, first_line)
    tokens, references = _parse_tokens(lines, beginning)
    anchors = AnchorGenerator(style)
    headings: list[Heading] = []
    for at, token in enumerate(tokens):
        if token.type == "inline" and token.map and tokens[at - 1].type == "heading_open":
            text = _get_heading_text(token.content)
            headings.append(Heading(int(tokens[at - 1].tag[1]), text, anchors.add(text), first_line + token.map[0]))
    found = tuple(islice(_find_page_links(tokens, references, first_line, file), MAX_LINKS + 1))
    left_out = [f"the page has more than {MAX_LINES:,} lines; headings and links are of those"] if rest else []
    if len(found) > MAX_LINKS:
        left_out.append(f"the page has more than {MAX_LINKS:,} links; the first {MAX_LINKS:,} are kept")
    blocks = (*_iter_blocks(tokens, lines), *_iter_coarse_blocks(body, rest, first_line))
    return PageOutline(tuple(headings), found[:MAX_LINKS], blocks, tuple(left_out))


def _find_page_links(
    tokens: Sequence[Token], references: Mapping[str, Any], first_line: int, file: str
) -> Iterator[Link]:
    for token in tokens:
        if token.type != "inline" or not token.map:
            continue
        line = first_line + token.map[0]
        at = 0
        for place in find_links(token.content, references):
            line += token.content.count("\n", at, place.offset)
            at = max(at, place.offset)
            paths = resolve_link_paths(place.targets, place.is_wiki_link, file)
            yield Link(to_one_line(place.targets[0]), to_one_line(place.text), line, place.is_wiki_link, paths)


def _split_body(body: str) -> tuple[str, int]:
    """What of a body is read as Markdown, and where the rest begins if there is one."""
    if body.count("\n") < MAX_LINES:
        return body, 0
    rest = next(islice(_NEWLINE.finditer(body), MAX_LINES - 1, None)).end()
    return (body[:rest], rest) if rest < len(body) else (body, 0)


def _parse_tokens(lines: "_BodyLines", text: str) -> tuple[list[Token], Mapping[str, Any]]:
    env: dict[str, Any] = {}
    try:
        tokens = _get_parser().parse(text, env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        tokens = _parse_plain_tokens(lines)
    return tokens, env.get("references", {})


def iter_link_lines(body: str) -> Iterator[tuple[bool, int, int]]:
    """The lines [begin, end) of a body in which links may stand, and those that define one (True), in no order."""
    body, _ = _split_body(body)
    env: dict[str, Any] = {}
    try:
        tokens = _get_parser().parse(body, env)
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        tokens = _parse_plain_tokens(_BodyLines.from_body(body, 1))
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
    return parser


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
    """The top-level blocks in order, lists item by item, and what lies between them (link definitions)."""
    done = 0
    for token in tokens:
        kind = _get_block_kind(token)
        if not kind or not token.map or token.map[1] <= done:
            continue
        begin, end = max(token.map[0], done), min(token.map[1], len(lines.texts))
        yield from _to_tuple(lines.make_block("definition", done, begin))
        if kind == "paragraph":
            yield from _iter_paragraph_blocks(lines, begin, end)
        else:
            yield from _to_tuple(lines.make_block(kind, begin, end))
        done = end
    yield from _to_tuple(lines.make_block("definition", done, len(lines.texts)))


def _iter_coarse_blocks(body: str, begin: int, first_line: int) -> Iterator[MarkdownBlock]:
    """What follows the part that is read as Markdown, a thousand lines at a time."""
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
    """A paragraph, or the paragraph and the table that it ends in."""
    for at in range(begin + 1, end):
        text = lines.texts[at]
        if "-" in text and "|" in text + lines.texts[at - 1] and _TABLE_RULE.match(text):
            yield from _to_tuple(lines.make_block("paragraph", begin, at - 1))
            yield from _to_tuple(lines.make_block("table", at - 1, end))
            return
    yield from _to_tuple(lines.make_block("paragraph", begin, end))


def _to_tuple(block: MarkdownBlock | None) -> tuple[MarkdownBlock, ...]:
    return (block,) if block else ()


def _parse_plain_tokens(lines: _BodyLines) -> list[Token]:
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
            tokens.append(Token("inline", "", 0, map=[at, at + 1], level=1, content=_strip_closing_hashes(heading[2])))
    return tokens


def _strip_closing_hashes(heading: str) -> str:
    """The text of an ATX heading without the hashes that close it."""
    text = heading.strip()
    open_text = text.rstrip("#")
    return open_text.rstrip() if not open_text or open_text[-1] in " \t" else text
