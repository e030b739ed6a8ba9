"""Finds the blocks of a page's Markdown and the texts in them, as markdown-it does, in a fraction of the time.

Headings, paragraphs, fences, comments, and lists and quotes of plain text are found here, line by line. markdown-it
parses every other block: it needs nothing of what is before a block of the top level.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock

# The beginning of a line that is only text: no other block begins so, and it underlines no heading.
_TEXT = (
    r"(?:[^\s`~>*\-_+#<=0-9]|`(?!``)|\*{1,2}(?=[^\s*])|_{1,2}(?=[^\s_])|[\-+=](?=[^\s\-=])|~(?!~~)|#{1,6}(?=[^\s#])"
    r"|[0-9]++(?![.)](?:\s|$)))"
)
_ITEM = rf"(?:[-*+]|(?P<number>[0-9]{{1,9}})[.)]) {{1,4}}(?={_TEXT})"
_BLOCK = re.compile(
    rf"(?P<paragraph> {{0,3}}{_TEXT})|(?P<heading>#{{1,6}})(?:[ \t]|$)|(?P<fence>`{{3,}}(?=[^`]*$)|~{{3,}})"
    rf"|(?P<quote>>)|(?P<list>{_ITEM})|(?P<comment><!--)|(?P<html></?(?ai:{'|'.join(block_names)})(?=\s|/?>|$))"
)
_TEXT_PATTERN = re.compile(_TEXT)
_PARAGRAPH_LINE = re.compile(rf"[ \t]*+{_TEXT}")
_PARAGRAPH_LINE_IN_LIST = re.compile(rf" *+{_TEXT}")
_PARAGRAPH_END = re.compile(rf"#{{1,6}}(?:[ \t]|$)|`{{3,}}(?=[^`]*$)|~{{3,}}|>|[-*+] {{1,4}}(?={_TEXT})")
_QUOTE_LINE = re.compile(rf">(?: ?(?={_TEXT})|[ \t]*+$)")
_ITEM_LINE = re.compile(rf"(?P<indent> *+){_ITEM}")
_ANY_MARKER = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])(?:\s|$)")
_MAX_DEPTH = 9
"""Lists in items that are parsed here: with more, markdown-it reads nothing further."""
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


@dataclass(slots=True)
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
    """Parse a body. If markdown-it fails in one of its blocks, only the headings of the body are found."""
    if "\r" in body or "\0" in body:
        body = body.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    parser = _BlockParser(body)
    try:
        parser.parse()
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return _find_headings(body, parser.found.env)
    return parser.found


class _BlockParser:
    """Parses one body. A method `_parse_…` adds the block that begins on a line and returns the line after it.

    It returns 0 if the block has lines that are not known here: then markdown-it parses the block.
    """

    def __init__(self, body: str) -> None:
        self.found = ParsedBlocks()
        self._body = body
        self._lines = body.split("\n")
        self._state: StateBlock | None = None

    def parse(self) -> None:
        lines = self._lines
        parsers = {
            "paragraph": self._parse_paragraph,
            "heading": self._parse_heading,
            "fence": self._parse_fence,
            "comment": self._parse_comment,
            "html": self._parse_html,
            "quote": self._parse_quote,
            "list": self._parse_list,
        }
        line = 0
        while line < len(lines):
            match = _BLOCK.match(lines[line])
            if match is not None and match.lastgroup is not None:
                line = parsers[match.lastgroup](line) or self._parse_other(line)
            elif lines[line].strip(" \t"):
                line = self._parse_other(line)
            else:
                line += 1

    def _parse_paragraph(self, first: int) -> int:
        lines = self._lines
        if _may_be_definition(lines[first].lstrip(" ")):
            return 0
        end = first + 1
        while end < len(lines) and (text := lines[end]):
            if not _PARAGRAPH_LINE.match(text):
                if _PARAGRAPH_END.match(text) or not text.strip(" \t"):
                    break
                return 0
            end += 1
        content = mdTrim("\n".join(lines[first:end]))
        if _may_be_definition(content):
            return 0
        self.found.blocks.append(BlockLines("paragraph", first, end))
        self.found.texts.append(InlineText(content, first, end))
        return end

    def _parse_heading(self, line: int) -> int:
        text = self._lines[line]
        content = text.lstrip("#").rstrip(" \t")
        level = len(text) - len(text.lstrip("#"))
        before_hashes = content.rstrip("#")
        if before_hashes.endswith((" ", "\t")):
            content = before_hashes
        self.found.blocks.append(BlockLines("heading", line, line + 1))
        self.found.texts.append(InlineText(mdTrim(content), line, line + 1, level))
        return line + 1

    def _parse_fence(self, first: int) -> int:
        lines = self._lines
        text = lines[first]
        fence = text[: len(text) - len(text.lstrip(text[0]))]
        is_closing = _compile_closing_fence(fence).match
        for line in range(first + 1, len(lines)):
            if fence in lines[line] and is_closing(lines[line]):
                break
        else:
            line = len(lines) - 1
        self.found.blocks.append(BlockLines("fence", first, line + 1))
        return line + 1

    def _parse_comment(self, first: int) -> int:
        """HTML that begins with a comment. It ends with the line on which the comment ends."""
        lines = self._lines
        end = next((line + 1 for line in range(first, len(lines)) if "-->" in lines[line]), len(lines))
        self.found.blocks.append(BlockLines("html", first, end))
        return end

    def _parse_html(self, first: int) -> int:
        """HTML that begins with the tag of a block. It ends with a blank line."""
        end = first + 1
        while end < len(self._lines) and self._lines[end].strip(" \t"):
            end += 1
        self.found.blocks.append(BlockLines("html", first, end))
        return end

    def _parse_quote(self, first: int) -> int:
        """A quote of paragraphs of which every line has a marker."""
        paragraphs: list[tuple[int, list[str]]] = []
        end = first
        is_open = False
        while end < len(self._lines) and (match := _QUOTE_LINE.match(text := self._lines[end])):
            content = text[match.end() :]
            if content and is_open:
                paragraphs[-1][1].append(content)
            elif content:
                paragraphs.append((end, [content]))
            is_open = bool(content)
            end += 1
        is_complete = end == len(self._lines) or not self._lines[end].strip(" \t")
        texts = [InlineText(mdTrim("\n".join(lines)), begin, begin + len(lines)) for begin, lines in paragraphs]
        if not is_complete or any(_may_be_definition(text.content) for text in texts):
            return 0
        self.found.blocks.append(BlockLines("quote", first, end))
        self.found.texts += texts
        return end

    def _parse_list(self, first: int) -> int:
        items = _ListParser(self._lines)
        end = items.parse(first)
        if end:
            ends = (*items.starts[1:], end)
            self.found.blocks += (BlockLines("list", *lines) for lines in zip(items.starts, ends, strict=True))
            self.found.texts += items.texts
        return end

    def _parse_other(self, line: int) -> int:
        """A block of any kind, by markdown-it."""
        parser = _get_parser()
        if self._state is None:
            self._state = StateBlock(self._body, parser, self.found.env, [])
        state = self._state
        state.line, state.tokens = line, []
        rules = parser.block.ruler.getRules("")
        next(rule for rule in rules if rule(state, line, state.lineMax, False))
        for index, token in enumerate(state.tokens):
            if token.map is None:
                continue
            begin, end = token.map
            if token.type == "inline":
                before = state.tokens[index - 1]
                level = int(before.tag[1]) if before.type == "heading_open" else 0
                self.found.texts.append(InlineText(token.content, begin, end, level))
            elif token.level == 0 and (kind := _BLOCK_KINDS.get(token.type)):
                self.found.blocks.append(BlockLines(kind, begin, end))
            elif token.level == 1 and token.type == "list_item_open":
                self.found.blocks.append(BlockLines("list", begin, end))
        return state.line


class _ListParser:
    """Parses one list of items that contain paragraphs and such lists, indented by spaces, exactly to their texts."""

    def __init__(self, lines: list[str]) -> None:
        self.starts: list[int] = []
        """The first line of each item, without those of lists in items."""
        self.texts: list[InlineText] = []
        self._lines = lines
        self._columns: list[int] = []
        """Where the texts of the open items begin."""
        self._paragraph = -1
        """The first line of the open paragraph."""

    def parse(self, first: int) -> int:
        """The line after the list that begins on a line; 0 if it has lines of another kind."""
        lines = self._lines
        line, marker, is_known = first, "", True
        while is_known and line < len(lines):
            text = lines[line]
            if item := _ITEM_LINE.match(text):
                item_marker = item[0].rstrip()[-1]
                if not item["indent"] and marker and item_marker != marker:
                    break
                marker = marker or item_marker
                is_known = self._open_item(line, item)
            elif not text.strip(" \t"):
                is_known = self._close_paragraph(line)
            elif self._paragraph < 0:
                indent = len(text) - len(text.lstrip(" "))
                self._close_items(indent)
                if not (text[0].isspace() or _ANY_MARKER.match(text)):
                    break
                is_known = indent in self._columns[-1:] and bool(_TEXT_PATTERN.match(text, indent))
                self._paragraph = line
            elif not _PARAGRAPH_LINE_IN_LIST.match(text):
                if _PARAGRAPH_END.match(text):
                    break
                is_known = False
            line += 1
        return line if is_known and self._close_paragraph(line) else 0

    def _open_item(self, line: int, item: re.Match[str]) -> bool:
        column, columns = item.end("indent"), self._columns
        interrupts = self._paragraph >= 0 and column == columns[-1]
        if (interrupts and item["number"] and int(item["number"]) != 1) or not self._close_paragraph(line):
            return False
        self._close_items(column)
        if column != (columns[-1] if columns else 0) or len(columns) >= _MAX_DEPTH:
            return False
        if not columns:
            self.starts.append(line)
        columns.append(item.end())
        self._paragraph = line
        return True

    def _close_items(self, indent: int) -> None:
        while self._columns and self._columns[-1] > indent:
            self._columns.pop()

    def _close_paragraph(self, end: int) -> bool:
        """Add the open paragraph, if there is one; False if it may be a link definition."""
        if self._paragraph < 0:
            return True
        first, column = self._paragraph, self._columns[-1]
        self._paragraph = -1
        indent = " " * column
        others = (_remove_indent(text, indent) for text in self._lines[first + 1 : end])
        content = mdTrim("\n".join((self._lines[first][column:], *others)))
        self.texts.append(InlineText(content, first, end))
        return not _may_be_definition(content)


def _remove_indent(text: str, indent: str) -> str:
    """The text without this indentation, or without all of a smaller one."""
    return text[len(indent) :] if text.startswith(indent) else text.lstrip(" ")


def _may_be_definition(content: str) -> bool:
    return content.startswith("[") and "]:" in content


@cache
def _compile_closing_fence(fence: str) -> re.Pattern[str]:
    return re.compile(rf" {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*$")


@cache
def _get_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


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
