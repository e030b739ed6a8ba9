"""Renders Markdown for a terminal: wrapped paragraphs, lists, quotes, code and tables, with or without colors.

Every line is complete in itself, so that a pager can show any part of the text.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from wikiholt.interfaces.cli.output import TerminalStyle, to_safe_text
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import get_link_text
from wikiholt.text.inline import WIKI_LINK_PATTERN

_OFF = "\x1b[0m"
_STYLE_CODES = {"strong": "\x1b[1m", "em": "\x1b[3m", "s": "\x1b[9m", "link": "\x1b[4m"}
_CODE_STYLE, _DIM, _BOLD = "\x1b[36m", "\x1b[2m", "\x1b[1m"
_MIN_WIDTH = 20
_MIN_COLUMN_WIDTH = 6
_MAX_NESTING = 100
_MAX_INLINE_CHARS = 50_000
"""A longer paragraph is shown as it is written: parsing it may take minutes."""
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_PIECES = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")
_WIDE_CHARACTER = re.compile(f"[{_WIDE}]")
_COMMENT = re.compile(r"\s*<!--.*?-->\s*", re.DOTALL)
_PARSE_ERRORS = (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError)


@dataclass(frozen=True, slots=True)
class TextRun:
    """A piece of text in one style; `codes` are the escape sequences that switch it on."""

    text: str
    codes: str = ""


@dataclass(slots=True)
class _Word:
    """Pieces that stay on one line. `has_space` tells whether a space precedes the word."""

    runs: list[TextRun]
    has_space: bool


def render_markdown(text: str, width: int, style: TerminalStyle, dialect: Dialect = GFM) -> list[str]:
    """The lines of a page body. Text that the parser cannot handle is shown as it is written."""
    environment: dict[str, Any] = {"dialect": dialect}
    try:
        tokens = _get_block_parser().parse(text, environment)
        if all(token.level < _MAX_NESTING - 1 for token in tokens):  # the parser omits what is deeper
            blocks = SyntaxTreeNode(tokens).children
            return _Renderer(style, environment).render_blocks(blocks, max(width, _MIN_WIDTH))
    except _PARSE_ERRORS:
        pass
    return to_safe_text(text).split("\n")


@cache
def _get_block_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table").disable("inline")


@cache
def _get_inline_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("strikethrough")
    parser.inline.ruler.before("link", "wiki_link", _parse_wiki_link)
    return parser


def _parse_wiki_link(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: the text that a wiki link displays, or the file name of an embedded picture."""
    match = WIKI_LINK_PATTERN.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        text = get_link_text(match, state.env["dialect"])
        token = state.push("wiki_link" if text else "image", "", 0)
        token.content = text or match[1].partition("|")[0]
    state.pos = match.end()
    return True


class _Renderer:
    def __init__(self, style: TerminalStyle, environment: Mapping[str, Any]) -> None:
        self._style = style
        self._environment = dict(environment)

    def render_blocks(self, nodes: Iterable[SyntaxTreeNode], width: int, *, tight: bool = False) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            block = self._render_block(node, width)
            lines += ["", *block] if block and lines and not tight else block
        return lines

    def _render_block(self, node: SyntaxTreeNode, width: int) -> list[str]:
        render = {
            "heading": self._render_heading,
            "paragraph": lambda block, columns: wrap_runs(self._read_inline(block), columns),
            "fence": self._render_code,
            "code_block": self._render_code,
            "bullet_list": self._render_list,
            "ordered_list": self._render_list,
            "blockquote": self._render_quote,
            "table": self._render_table,
            "hr": lambda _, columns: [self._color("─" * columns, _DIM)],
            "html_block": self._render_html,
        }.get(node.type)
        return render(node, width) if render else self.render_blocks(node.children, width)

    def _render_code(self, node: SyntaxTreeNode, _: int) -> list[str]:
        lines = to_safe_text(node.content.expandtabs(4)).rstrip("\n").split("\n")
        return [f"    {self._color(line, _CODE_STYLE)}".rstrip() for line in lines]

    def _render_quote(self, node: SyntaxTreeNode, width: int) -> list[str]:
        inner = self.render_blocks(node.children, max(width - 2, _MIN_WIDTH))
        return [f"{self._color('│', _DIM)} {line}".rstrip() for line in inner]

    def _render_html(self, node: SyntaxTreeNode, _: int) -> list[str]:
        if _COMMENT.fullmatch(node.content):
            return []
        return [self._color(line, _DIM) for line in to_safe_text(node.content).strip("\n").split("\n")]

    def _render_heading(self, node: SyntaxTreeNode, width: int) -> list[str]:
        level = int(node.tag[1:])
        runs = [TextRun(run.text, self._codes(_BOLD) + run.codes) for run in self._read_inline(node)]
        if level > 2:
            return wrap_runs([TextRun("#" * level + " ", self._codes(_DIM)), *runs], width)
        lines = wrap_runs(runs, width)
        longest = max((_get_width(line) for line in wrap_runs([TextRun(run.text) for run in runs], width)), default=0)
        return [*lines, self._color(("=" if level == 1 else "-") * longest, _DIM)]

    def _render_list(self, node: SyntaxTreeNode, width: int) -> list[str]:
        is_ordered = node.type == "ordered_list"
        first = int(node.attrs.get("start", 1)) if is_ordered else 0
        tight = any(block.hidden for item in node.children for block in item.children if block.type == "paragraph")
        lines: list[str] = []
        for number, item in enumerate(node.children, first):
            marker = f"{number}. " if is_ordered else "• "
            inner = self.render_blocks(item.children, max(width - len(marker), _MIN_WIDTH), tight=tight) or [""]
            lines += [""] if lines and not tight else []
            lines.append((marker + inner[0]).rstrip())
            lines += [f"{' ' * len(marker)}{line}".rstrip() for line in inner[1:]]
        return lines

    def _render_table(self, node: SyntaxTreeNode, width: int) -> list[str]:
        rows = [[self._read_inline(cell) for cell in row.children] for part in node.children for row in part.children]
        columns = max(map(len, rows), default=0)
        natural = [max((_measure(row[n]) for row in rows if n < len(row)), default=0) for n in range(columns)]
        widths = _fit_columns(natural, width - 2 * (columns - 1))
        lines: list[str] = []
        for position, row in enumerate(rows):
            cells = [wrap_runs(cell, column) for cell, column in zip(row, widths, strict=False)]
            if position == 0:
                cells = [[self._color(line, _BOLD) for line in cell] for cell in cells]
            lines += _join_cells(cells, widths)
            if position == 0:
                lines.append(self._color("  ".join("─" * column for column in widths), _DIM))
        return lines

    def _read_inline(self, node: SyntaxTreeNode) -> list[TextRun]:
        content = "\n".join(child.content for child in node.children if child.type == "inline")
        if len(content) > _MAX_INLINE_CHARS:
            return [TextRun(to_safe_text(content))]
        tokens = _get_inline_parser().parseInline(content, self._environment)
        return self._read_tokens(tokens[0].children or []) if tokens else []

    def _read_tokens(self, tokens: Sequence[Token]) -> list[TextRun]:
        runs: list[TextRun] = []
        open_styles: list[str] = []
        links: list[tuple[str, int]] = []
        for token in tokens:
            name = token.type.removesuffix("_open").removesuffix("_close")
            if token.nesting == 1:
                open_styles.append(_STYLE_CODES.get(name, ""))
                links += [(str(token.attrs.get("href", "")), len(runs))] if name == "link" else []
            elif token.nesting == -1:
                open_styles.pop()
                runs += self._format_target(*links.pop(), runs) if name == "link" else []
            else:
                text, codes = _read_leaf(token)
                runs.append(TextRun(to_safe_text(text), self._codes("".join(open_styles) + codes)))
        return runs

    def _format_target(self, target: str, start: int, runs: Sequence[TextRun]) -> list[TextRun]:
        """The target of a link after its text, unless the text says the same."""
        text = "".join(run.text for run in runs[start:])
        shown = to_safe_text(target)
        return [] if not shown or shown in (text, f"mailto:{text}") else [TextRun(f" <{shown}>", self._codes(_DIM))]

    def _codes(self, codes: str) -> str:
        return codes if self._style.use_color else ""

    def _color(self, text: str, codes: str) -> str:
        return f"{codes}{text}{_OFF}" if self._style.use_color and text else text


def _read_leaf(token: Token) -> tuple[str, str]:
    match token.type:
        case "softbreak":
            return " ", ""
        case "hardbreak":
            return "\n", ""
        case "code_inline":
            return token.content, _CODE_STYLE
        case "image":
            return f"[image: {token.content or token.attrs.get('src', '')}]", _DIM
        case "html_inline":
            is_break = re.fullmatch(r"<br\s*/?>", token.content, re.IGNORECASE)
            return ("\n", "") if is_break else (token.content, _DIM)
        case _:
            return token.content, _STYLE_CODES["link"] if token.type == "wiki_link" else ""


def wrap_runs(runs: Sequence[TextRun], width: int) -> list[str]:
    """Wrap styled text at spaces and between wide characters. A longer word stays whole, so that it can be copied."""
    lines: list[str] = []
    row: list[_Word] = []
    row_width = 0
    for word in _split_words(runs):
        word_width = sum(_get_width(run.text) for run in word.runs) if word else 0
        space = int(bool(word and word.has_space and row))
        if word is None or (row and row_width + space + word_width > width):
            lines.append(_format_row(row))
            row, row_width, space = [], 0, 0
        if word is not None:
            row.append(word)
            row_width += space + word_width
    return [*lines, _format_row(row)] if row else lines


def _split_words(runs: Iterable[TextRun]) -> Iterable[_Word | None]:
    """Words in order; None is a line break."""
    word: _Word | None = None
    has_space = False
    for run in runs:
        for piece in _PIECES.findall(run.text):
            if piece.isspace() and piece != "\u00a0":
                yield from [word] if word else []
                yield from [None] if piece == "\n" else []
                word, has_space = None, True
            elif word is None or _WIDE_CHARACTER.match(piece) or _WIDE_CHARACTER.match(word.runs[-1].text):
                yield from [word] if word else []
                word, has_space = _Word([TextRun(piece, run.codes)], has_space), False
            else:
                word.runs.append(TextRun(piece, run.codes))
    yield from [word] if word else []


def _format_row(row: Sequence[_Word]) -> str:
    merged: list[TextRun] = []
    for position, word in enumerate(row):
        runs = [TextRun(" "), *word.runs] if word.has_space and position else word.runs
        for run in runs:
            if merged and merged[-1].codes == run.codes:
                merged[-1] = TextRun(merged[-1].text + run.text, run.codes)
            else:
                merged.append(run)
    return "".join(f"{run.codes}{run.text}{_OFF}" if run.codes else run.text for run in merged)


def _get_width(text: str) -> int:
    """The number of columns that a terminal needs for the text."""
    if text.isascii():
        return len(text)
    return sum(_get_character_width(char) for char in text)


def _get_character_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _measure(runs: Sequence[TextRun]) -> int:
    """The width of the longest line of the text."""
    return max(map(_get_width, "".join(run.text for run in runs).split("\n")))


def _fit_columns(widths: Sequence[int], available: int) -> list[int]:
    """Shrink the widest columns until the table fits, but none below the minimum."""
    fitted = list(widths)
    while sum(fitted) > available:
        widest = max(range(len(fitted)), key=fitted.__getitem__)
        if fitted[widest] <= _MIN_COLUMN_WIDTH:
            break
        fitted[widest] -= 1
    return fitted


def _join_cells(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = []
    for number in range(max((len(cell) for cell in cells), default=0)):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        shown = [_get_width(re.sub(r"\x1b\[\d+m", "", part)) for part in parts]
        padded = [part + " " * (width - used) for part, used, width in zip(parts, shown, widths, strict=False)]
        lines.append("  ".join(padded).rstrip())
    return lines
