"""Renders Markdown for a terminal: wrapped paragraphs, lists, quotes, code and tables, with or without colors.

Every line is complete in itself, so that a pager can show any part of the text.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.text import Text
from rich.theme import Theme

from wikiholt.interfaces.cli.output import TerminalStyle, to_safe_text
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import get_link_text
from wikiholt.text.inline import WIKI_LINK_PATTERN

_MIN_WIDTH = 20
"""The innermost text has at least this width; else the page is shown as it is written."""
_COLUMNS_PER_LEVEL = 4
_MAX_NESTING = 100
_MAX_PARAGRAPH_CHARS = 50_000
"""A page with a longer paragraph is shown as it is written: parsing it may take minutes."""
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_COMMENT = re.compile(r"\s*<!--.*?-->\s*", re.DOTALL)
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ERRORS = (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError)


class _Heading(Heading):
    """A heading with its number signs, which show the level without colors too."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(("#" * int(self.tag[1:]) + " ", "dim"), self.text)


class _CodeBlock(CodeBlock):
    """Code with its own line breaks, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self.text.plain.expandtabs(4).rstrip("\n").split("\n")
        yield Text("\n".join(f"    {line}" for line in lines), "cyan", no_wrap=True, overflow="ignore")


class _Tokens(Markdown):
    """The blocks of a page that is already parsed."""

    elements = Markdown.elements | {"heading_open": _Heading, "fence": _CodeBlock, "code_block": _CodeBlock}

    def __init__(self, tokens: Iterable[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = list(tokens)


def render_markdown(text: str, width: int, style: TerminalStyle, dialect: Dialect = GFM) -> list[str]:
    """The lines of a page body. Text that the parser cannot handle is shown as it is written."""
    if max(map(len, _PARAGRAPH_END.split(text))) <= _MAX_PARAGRAPH_CHARS:
        try:
            tokens = _get_parser().parse(text, {"dialect": dialect})
            if all(token.level * _COLUMNS_PER_LEVEL <= width - _MIN_WIDTH for token in tokens):
                return _render(tokens, width, style)
        except _ERRORS:
            pass
    return to_safe_text(text).split("\n")


def _render(tokens: Iterable[Token], width: int, style: TerminalStyle) -> list[str]:
    output = StringIO()
    console = Console(
        file=output,
        width=width,
        force_terminal=style.use_color,
        color_system="standard" if style.use_color else None,
        theme=Theme({"markdown.code": "cyan"}),
        highlight=False,
    )
    console.print(_Tokens(_simplify(tokens)))
    text = "\n".join(line.rstrip() for line in output.getvalue().split("\n")).strip("\n")
    return text.split("\n") if text else []


@cache
def _get_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wiki_link", _parse_wiki_link)
    return parser


def _parse_wiki_link(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: the text that a wiki link displays, or the file name of an embedded picture."""
    match = WIKI_LINK_PATTERN.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        text = get_link_text(match, state.env["dialect"])
        state.push("text", "", 0).content = text or f"[image: {match[1].partition('|')[0]}]"
    state.pos = match.end()
    return True


def _simplify(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens with safe text, and with text for what rich leaves out or shows elsewhere: HTML and pictures."""
    for token in tokens:
        token.content = to_safe_text(token.content)
        token.attrs = {name: to_safe_text(str(value)) for name, value in token.attrs.items()}
        token.children = list(_simplify(token.children or ()))
        if token.type == "image":
            text = f"[image: {token.content or token.attrs.get('src', '')}]"
            token.type, token.tag, token.content, token.children = "text", "", text, []
        elif token.type == "html_inline":
            token.type = "hardbreak" if _LINE_BREAK.fullmatch(token.content) else "text"
        elif token.type == "html_block":
            if _COMMENT.fullmatch(token.content):
                continue
            token.type = "code_block"
        if token.markup != "autolink":  # its text is the address
            yield token
