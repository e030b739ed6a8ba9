"""Formulas in the notation of TeX, as MathML: `$…$` and `$$…$$` in text, `$$` around lines, code blocks `math`."""

import re
from html import escape, unescape
from typing import Any
from xml.etree.ElementTree import Element

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_MAX_FORMULA_CHARS = 2_000
_MAX_FORMULA_LINES = 100
_MAX_PAGE_FORMULA_CHARS = 40_000
"""Maximum length of all formulas of a page; others are shown as TeX. The converter takes up to 10 µs for each."""
_MAX_DEPTH = 40
_EXPANDING_COMMAND = re.compile(
    r"\\(?:sideset|newcommand|renewcommand|providecommand|def|newenvironment|DeclareMathOperator)(?![A-Za-z])"
)
"""Commands that repeat their arguments, so that a short formula may become one without end."""
_CONTENT = r"((?>(?:[^$\\]|\\[\s\S]){1,2000}))"
_INLINE = re.compile(rf"\$\${_CONTENT}\$\$|\$(?![\s$]){_CONTENT}(?<!\s)\$(?![\w$])")
_MATH_SIGN = re.compile(r"[\\^_=+<>{}]| [-*/] ")


def add_formula_rules(parser: MarkdownIt) -> None:
    parser.inline.ruler.before("link", "formula", _parse_inline_formula)
    parser.block.ruler.before("fence", "formula_block", _parse_formula_block, {"alt": ["paragraph", "blockquote"]})
    parser.add_render_rule("formula", _render_inline_formula)
    parser.add_render_rule("formula_block", _render_formula_block)


def render_formula_block(source: str, environment: Any) -> str:
    """Render a formula in a line of its own; as TeX if it cannot be converted."""
    formula = _convert(source, "block", environment)
    return f'<div class="formula">{formula}</div>\n' if formula else f"<pre><code>{escape(source)}</code></pre>\n"


def _parse_inline_formula(state: StateInline, silent: bool) -> bool:
    """Parse `$x^2$`. A sum of money, a shell variable or prose between two dollar signs is no formula."""
    start = state.pos
    if state.src[start] != "$" or (start and (state.src[start - 1].isalnum() or state.src[start - 1] == "$")):
        return False
    match = _INLINE.match(state.src, start, state.posMax)
    if match is None:
        return False
    content = match[1] or match[2]
    if match[1] is None and re.search(r"\s", content) and not _MATH_SIGN.search(content):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup = content, "$" if match[1] is None else "$$"
    state.pos = match.end()
    return True


def _parse_formula_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Parse lines that begin with `$$` and end with `$$`."""
    if state.is_code_block(start_line):
        return False
    for line in range(start_line, min(end_line, start_line + _MAX_FORMULA_LINES)):
        if line > start_line and state.sCount[line] < state.blkIndent:
            return False
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
        if line == start_line:
            if not text.startswith("$$"):
                return False
            text = text[2:]
            if "$$" in text[:-2]:
                return False
        if text.endswith("$$"):
            break
    else:
        return False
    if not silent:
        state.line = line + 1
        token = state.push("formula_block", "math", 0)
        token.content = state.getLines(start_line, line + 1, state.blkIndent, False).strip()[2:-2].strip()
        token.map = [start_line, state.line]
    return True


def _render_inline_formula(_self: RendererHTML, tokens: list[Token], index: int, _: Any, environment: Any) -> str:
    token = tokens[index]
    formula = _convert(token.content, "inline" if token.markup == "$" else "block", environment)
    return formula or f"<code>{escape(token.markup + token.content + token.markup)}</code>"


def _render_formula_block(_self: RendererHTML, tokens: list[Token], index: int, _: Any, environment: Any) -> str:
    return render_formula_block(tokens[index].content, environment)


def _convert(source: str, display: str, environment: Any) -> str | None:
    """The MathML of a formula; None if it is too long or cannot be converted."""
    environment["formula_chars"] = environment.get("formula_chars", 0) + len(source)
    is_long = len(source) > _MAX_FORMULA_CHARS or environment["formula_chars"] > _MAX_PAGE_FORMULA_CHARS
    if is_long or not source.strip() or _EXPANDING_COMMAND.search(source):
        return None
    # It reads a table of 2,500 symbols, which most pages do not need.
    from latex2mathml.converter import Converter  # noqa: PLC0415

    try:
        return _serialize(Converter(display=display).convert_to_element(source))
    except Exception:  # noqa: BLE001 - it raises errors of many kinds for what it cannot parse
        return None


def _serialize(element: Element, depth: int = 0) -> str:
    """An element as HTML; the converter writes some characters of its text as references. Raises ValueError."""
    if depth > _MAX_DEPTH:
        raise ValueError("the formula is nested too deeply")
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items() if name != "xmlns")
    content = escape(unescape(element.text or ""), quote=False)
    content += "".join(_serialize(child, depth + 1) for child in element)
    return f"<{element.tag}{attributes}>{content}</{element.tag}>"
