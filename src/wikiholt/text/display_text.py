"""Converts Markdown to the running text that a reader sees, without any markup, with the ranges of its sentences.

Fragments are allowed. Macros, shortcodes, template tags and comments are replaced by the words they display, if any;
nothing is executed. Any input takes linear time.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wikiholt.domain.search import Span
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import convert_prose
from wikiholt.text.inline import WIKI_LINK_PATTERN, iter_code_spans, parse_wiki_link, remove_between, strip_inline
from wikiholt.text.model_text import iter_segments
from wikiholt.text.segmentation import CJK_RANGES, find_sentence_starts

_MAX_MACRO_CHARS = 1000
"""Maximum length of a macro; a longer one is text with braces."""

_MAX_PARTIAL_CHARS = 200
"""Maximum length of a macro that is cut off at the end of a fragment."""

_PARTIAL_SHORTCODE = re.compile(r"\A(?:(?!\n\n|\{\{|\}\}).){0,200}[>%]\}\}", re.DOTALL)
_TEXT_ARGUMENT = re.compile(r"""\b(?:text|label|title)=(?:"([^"]*+)"|'([^']*+)')""")
_TERM_ARGUMENT = re.compile(r"""\bterm_id=["']?([\w-]++)""")
_MACRO_CALL = re.compile(r"\s*+([\w.-]++)\s*+\(([^()]*+(?>(?:\([^()]*+\)[^()]*+){0,9999}))\)")
_QUOTED_ARGUMENT = re.compile(r"\"([^\"]*+)\"|'([^']*+)'")
# macros that display a link with a text; all others draw boxes, badges, bars and samples
_LINK_MACRO = re.compile(
    r"\w*xref|glossary|\w+element|svgattr|http(?:header|status|method)|webextapiref|rfc", re.IGNORECASE
)
_EMPTY_EMPHASIS = re.compile(r"(?<![*_\w])(?:\*{4}|_{4})(?![*_\w])")
"""What is left of a bold macro that displays nothing."""
_LONE_BRACES = re.compile(r"\{\{[{<%#!/&~]?|[>%#/~]?\}\}\}?|\{%-?|-?%\}")
_HIDDEN_ELEMENT = re.compile(r"<(script|style|template)\b[^<>]*+>", re.IGNORECASE)
_HIDDEN_END = {name: re.compile(rf"</{name}\b[^<>]*+>", re.IGNORECASE) for name in ("script", "style", "template")}
_COMMENT_END = re.compile(r"^[ \t]*+-->|-->[ \t]*+$", re.MULTILINE)
_FORMULA_END = {"$$": "$$", "\\\\(": "\\\\)", "\\\\[": "\\\\]", "\\begin{": "\\end{"}
_FORMULA = re.compile(r"\$\$|\\\\[(\[]|\\begin\{")
_INLINE_FORMULA = re.compile(r"(?<![\w$\\])\$(?=[^\s$])([^$\n]{1,300})(?<=[^\s\\])\$(?![\w$])")
_COMMAND = re.compile(
    r"\\(?:begin|end)\{[^{}]*+\}|\\(?:left|right|displaystyle|limits|quad|qquad)(?![a-zA-Z])|\\[,;!\\]"
)
_FORMULA_WORD = re.compile(r"\\([a-zA-Z]++)\*?+|\\([^a-zA-Z\s])")
_STYLE_COMMANDS = frozenset(
    {"text", "textnormal", "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "operatorname"}
)


def remove_hidden(text: str) -> str:
    """The text without comments, scripts and styles, including parts of one at the start or end of a fragment."""
    if "-->" in text:
        end = _COMMENT_END.search(text)
        if end and "<!--" not in text[: end.start()]:
            text = text[end.end() :]
    if "<!--" in text:
        text = remove_between(text, "<!--", "-->")
    if "%%" in text:
        text = remove_between(text, "%%", "%%", keep_unclosed=True)
    return _remove_elements(text) if "<" in text and _HIDDEN_ELEMENT.search(text) else text


def _remove_elements(text: str) -> str:
    parts: list[str] = []
    position = 0
    while match := _HIDDEN_ELEMENT.search(text, position):
        parts += text[position : match.start()], " "
        end = _HIDDEN_END[match[1].lower()].search(text, match.end())
        if not end:
            return "".join(parts)
        position = end.end()
    return "".join([*parts, text[position:]])


def replace_macros(text: str) -> str:
    """Replace every macro, shortcode and template tag by the words it displays."""
    if "}}" in text:
        text = _PARTIAL_SHORTCODE.sub("", text)
    if "{{" in text:
        text = _EMPTY_EMPHASIS.sub("", _replace_between(text, "{{", "}}", _render_macro))
    if "{%" in text:
        text = _replace_between(text, "{%", "%}", lambda _: "")
    if "{#" in text and "#}" in text:
        text = _replace_between(text, "{#", "#}", lambda _: "")
    return _LONE_BRACES.sub(" ", text) if "{" in text or "}" in text else text


def _replace_between(text: str, start: str, end: str, render: Callable[[str], str]) -> str:
    parts: list[str] = []
    position = 0
    while (begin := text.find(start, position)) >= 0:
        close = text.find(end, begin + 2, begin + _MAX_MACRO_CHARS)
        if close < 0:
            if len(text) - begin <= _MAX_PARTIAL_CHARS and "\n\n" not in text[begin:]:
                text = text[:begin]
            break
        # of nested macros, replace the innermost; the outer braces are removed as lone braces
        begin = text.rfind(start, begin, close)
        while begin > position and text[begin - 1] == "{":
            begin -= 1
        while text.startswith("}", close + 2):
            close += 1
        parts += text[position:begin], render(text[begin + 2 : close])
        position = close + 2
    return "".join([*parts, text[position:]])


def _render_macro(inside: str) -> str:
    if match := _TEXT_ARGUMENT.search(inside):
        return match[1] or match[2] or ""
    if match := _TERM_ARGUMENT.search(inside):
        return match[1].replace("-", " ")
    call = _MACRO_CALL.match(inside)
    if not call or not _LINK_MACRO.fullmatch(call[1]):
        return ""
    arguments = [first or second for first, second in _QUOTED_ARGUMENT.findall(call[2])]
    return next((argument for argument in (*arguments[1:2], *arguments[:1]) if argument), "")


def replace_formulas(text: str) -> str:
    """Replace formulas by plain letters, as far as one line allows."""
    if "$" not in text and "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while match := _FORMULA.search(text, position):
        end = _FORMULA_END[match[0]]
        close = text.find(end, match.end(), match.end() + _MAX_MACRO_CHARS)
        if close < 0:
            parts += text[position : match.start()], " "
            position = match.end()
            continue
        stop = text.find("}", close) + 1 if end == "\\end{" else close + len(end)
        stop = stop or len(text)
        inside = text[match.start() if end == "\\end{" else match.end() : stop if end == "\\end{" else close]
        parts += text[position : match.start()], _render_formula(inside)
        position = stop
    return _INLINE_FORMULA.sub(_render_inline_formula, "".join([*parts, text[position:]]))


def _render_inline_formula(match: re.Match[str]) -> str:
    return _render_formula(match[1]) if re.search(r"[\\^_{]", match[1]) else match[0]


def _render_formula(formula: str) -> str:
    text = _COMMAND.sub(" ", formula)
    text = _FORMULA_WORD.sub(
        lambda match: "" if match[1] in _STYLE_COMMANDS else f" {match[1]} " if match[1] else match[2], text
    )
    return " ".join(text.replace("{", "").replace("}", "").replace("&", " ").replace("$", "").split())


# Blocks and sentences. The text for the model is built separately (`model_text.to_plain_text`): there leftover markup
# does little harm, and any change would require re-embedding all wikis. Here no markup may be left.

_MIN_SENTENCE_CHARS = 20
"""A shorter sentence is joined with its neighbour: "e.g.", "Note:" and "}" mean nothing alone."""
_MIN_UNSPACED_SENTENCE_CHARS = 6
_MIN_CODE_CHARS = 60
"""Code lines are joined up to this length into one sentence: a line is often only a bracket."""

_FIRST_PRIVATE_CODE_POINT = 0xF0000
"""Code spans are replaced by characters of a private use plane while markup is removed."""
_MAX_CODE_SPANS = 0xFFFD
_UNSPACED_CHARACTER = re.compile(rf"[{CJK_RANGES}]")
_PRIVATE_CHARACTER = re.compile("[\U000f0000-\U000ffffd]")
_RULE = re.compile(r"(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}")
_SETEXT = re.compile(r"[ \t>]*+(?:=++|-++)[ \t]*+")
_LINE_START = re.compile(
    r"[ \t]*+(?P<quote>(?>(?:>[!|]?+[ \t]*+){0,999}))"
    r"(?P<item>(?>(?:(?:[-*+:]|\d{1,9}[.)])[ \t]++(?:\[[ xX/-]\][ \t]++)?){0,999}))"
    r"(?P<heading>(?:#{1,6}(?:[ \t]++|$))?)"
)
_CLOSING_HASHES = re.compile(r"(?<![ \t])[ \t]++#++[ \t]*+$")
_ALERT = re.compile(r"\[!\w++(?:\|[^\[\]]*+)?\][+-]?+[ \t]*+")
_CONTAINER = re.compile(r":{3,}+[ \t]*+(?:\{[^{}]*+\}|[\w-]++)?")
# link and abbreviation definitions, component imports, a table of contents, attributes, a lone fence
_SKIPPED = re.compile(
    r" {0,3}\*?\[(?!\^)[^\[\]\n]++\]:(?:[ \t]++\S.*+|[ \t]*+<?(?:\w++:|[/.#])\S*+.*+)"
    r"|import\s.*\bfrom\s++['\"].*+|import\s++['\"].*+|export\s++(?:const|default|let|function)\b.*+"
    r"|[ \t]*+\[toc\][ \t]*+|[ \t]*+\{:[^{}]*+\}[ \t]*+"
    r"|[ \t>]*+(?:`{3,}+|~{3,}+)[^`\n]*+",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"(?:(?:^|(?<![ \t])[ \t]++)\^[\w-]++|(?<![ \t])[ \t]*+\{[#.:](?!\w+\.)[^{}\n]*+\})[ \t]*+$")
_ROW = re.compile(r"[ \t]*+\||.*[^\\]\|[ \t]*+$|.* \| ")
_CELLS = re.compile(r"(?<!\\)\|")
SEPARATOR = "·"
"""Between cells, and between blocks, with a space on each side."""
_TEXT_BLOCK, _HEADING_BLOCK, _ROW_BLOCK, _CODE_BLOCK = "text", "heading", "row", "code"
"""Kinds of blocks."""
_CLOSING_MARKS = "\"')]}»”’›」』）】"
_END_MARKS = frozenset(".!?…:;,·。！？：；，、｡।॥؟؛،۔")
"""A block that ends with one of these, before closing marks, needs no further mark."""
_PICTURES = "png|jpe?g|gif|svg|webp|bmp|pdf|mp[34]|webm|mov|excalidraw"
_EMBED = re.compile(rf"!\[\[[^\[\]\n|]{{1,300}}\.(?:{_PICTURES})(?:[#|][^\[\]\n]*+)?\]\]", re.IGNORECASE)
_BLOCK_TAG = re.compile(
    r"</?(?:br|p|li|td|th|tr|div|ul|ol|h[1-6]|table|dt|dd|summary|details|hr|option|pre)\b[^<>]*+>", re.IGNORECASE
)
_PARTIAL_TAG = re.compile(
    r"\A(?=[^<>\n]{0,300}?=\")[^<>\n]{0,300}+>|<(?:/|[a-zA-Z][\w-]*\s[\w-]++=|!--)[^<>]*+\Z|<(?=[A-Z]\w*\s)"
)
_TARGET = r"(?>(?:[^()\s]++|\([^()\s]*+\)){0,9999})(?:\)|\Z)"
_PARTIAL_LINK = re.compile(
    rf"!?\[([^\[\]]*+)\]\({_TARGET}|!?\[([^\[\]]*+)\]\((?:\w++:|[./#])[^()\n]{{0,500}}+\)|\]\({_TARGET}|\[\[|\]\]"
)
_REFERENCE = re.compile(r"!?\[([^\[\]]++)\]\[[^\[\]]*+\]?|\A([^\[\]]*+)\]\[[^\[\]]*+\]")
_HIGHLIGHT = re.compile(r"(?<![=\w])==(?=[^\s=])([^=\n]++)==(?![=\w])")
_LONE_FENCE = re.compile(r"`{3,}+[\w-]*+|~{3,}+")


@dataclass(frozen=True, slots=True)
class DisplayText:
    """Text on one line, and the ranges of its sentences: sentences, list items, table rows, a few lines of code."""

    text: str
    sentences: tuple[Span, ...]


def to_display_text(markdown: str, dialect: Dialect = GFM) -> DisplayText:
    """Convert a passage. Headings are part of the text, but count as sentences only if there is nothing else.

    A heading ends with a colon if text follows. Rows of a table have semicolons between them, a table has full
    stops around it, cells, list items and other blocks have dots. A block that ends with a mark gets no second one.
    """
    parts: list[str] = []
    spans: list[Span] = []
    headings: list[Span] = []
    offset, last_kind = 0, _TEXT_BLOCK
    for kind, text in _iter_blocks(markdown, dialect):
        block = " ".join(text.split())
        if not block:
            continue
        block = block if block.isascii() else unicodedata.normalize("NFC", block)
        if parts and parts[-1].rstrip(_CLOSING_MARKS)[-1:] not in _END_MARKS:
            mark = _get_mark(last_kind, kind)
            parts[-1] += mark
            offset += len(mark)
        last_kind = kind
        target = headings if kind is _HEADING_BLOCK else spans
        for start, end in _split_sentences(block):
            # Between two sentences is one space.
            target.append(Span(offset + start, offset + (end if block[end - 1] != " " else end - 1)))
        parts.append(block)
        offset += len(block) + 1
    return DisplayText(" ".join(parts), tuple(spans or headings))


def _get_mark(last_kind: str, kind: str) -> str:
    """The mark between two blocks. Lines of code follow each other without one."""
    if last_kind is _HEADING_BLOCK:
        return ":"
    if _ROW_BLOCK in (last_kind, kind):
        return ";" if last_kind is kind else "."
    return "" if last_kind is kind is _CODE_BLOCK else f" {SEPARATOR}"


def _split_sentences(block: str) -> Iterator[tuple[int, int]]:
    """The sentences of a block. A short one is joined with the next; a short last one with the previous."""
    min_chars = _MIN_UNSPACED_SENTENCE_CHARS if _UNSPACED_CHARACTER.search(block) else _MIN_SENTENCE_CHARS
    if len(block) < 2 * min_chars:
        yield 0, len(block)
        return
    cuts = [0]
    for start in find_sentence_starts(block, 0, len(block)):
        if start - cuts[-1] >= min_chars:
            cuts.append(start)
    if len(cuts) > 1 and len(block) - cuts[-1] < min_chars:
        cuts.pop()
    yield from zip(cuts, [*cuts[1:], len(block)], strict=True)


def _iter_blocks(markdown: str, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """The kind and text of each paragraph, list item, table row, heading and few lines of code."""
    for is_code, text in iter_segments(markdown, use_all_fences=True):
        if is_code:
            yield from ((_CODE_BLOCK, block) for block in _iter_code_blocks(text))
        else:
            yield from _iter_prose_blocks(text, dialect)


def _iter_code_blocks(text: str) -> Iterator[str]:
    block = ""
    for line in text.split("\n"):
        if _LONE_FENCE.fullmatch(line.strip()):
            continue
        block = f"{block} {line.strip()}".strip()
        if len(block) >= _MIN_CODE_CHARS:
            yield block
            block = ""
    if block:
        yield block


def _iter_prose_blocks(text: str, dialect: Dialect) -> Iterator[tuple[str, str]]:
    code_spans: list[str] = []
    text = convert_prose(_replace_code_spans(remove_hidden(text), code_spans), dialect)
    text = replace_formulas(text)
    for kind, block in _iter_markdown_blocks(replace_macros(_replace_wiki_links(text))):
        stripped = _strip_block(block)
        yield (
            kind,
            _PRIVATE_CHARACTER.sub(lambda match: code_spans[ord(match[0]) - _FIRST_PRIVATE_CODE_POINT], stripped)
            if code_spans and not stripped.isascii()
            else stripped,
        )


def _replace_code_spans(text: str, code_spans: list[str]) -> str:
    """Replace each code span by one private use character and append it to `code_spans`."""
    text = text if text.isascii() else _PRIVATE_CHARACTER.sub(" ", text)
    if "`" not in text:
        return text
    parts: list[str] = []
    position = 0
    for start, end, fence in iter_code_spans(text):
        if len(code_spans) >= _MAX_CODE_SPANS or "\n\n" in text[start:end]:
            continue
        parts += text[position:start], chr(_FIRST_PRIVATE_CODE_POINT + len(code_spans))
        code_spans.append(text[start + fence : end - fence])
        position = end
    return "".join([*parts, text[position:]])


def _replace_wiki_links(text: str) -> str:
    """Replace wiki links by their text and remove embedded images."""
    if "[[" not in text:
        return text
    return WIKI_LINK_PATTERN.sub(lambda match: _get_wiki_link_text(match[1]), _EMBED.sub("", text))


def _get_wiki_link_text(inside: str) -> str:
    if inside.strip("_").lower() == "toc":
        return ""
    target, words = parse_wiki_link(inside)
    if words != target or "#" not in words:
        return words
    page, _, fragment = words.partition("#")
    return page or fragment.partition(":#")[0].lstrip("^*")


def _iter_markdown_blocks(text: str) -> Iterator[tuple[str, str]]:
    lines: list[str] = []
    in_quote = False
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or _RULE.fullmatch(line):
            yield _HEADING_BLOCK if len(lines) == 1 and _SETEXT.fullmatch(line) else _TEXT_BLOCK, " ".join(lines)
            lines, in_quote = [], False
            continue
        if _SKIPPED.fullmatch(line):
            continue
        start = _LINE_START.match(line)
        is_heading, is_item = bool(start and start["heading"]), bool(start and start["item"])
        words = _clean_line(line[start.end() :] if start else line.lstrip(" \t"))
        is_row = "|" in words and bool(_ROW.match(words))
        is_quote_start = not in_quote and bool(start and start["quote"])
        if is_heading or is_item or is_row or is_quote_start:
            yield _TEXT_BLOCK, " ".join(lines)
            lines = []
        in_quote = in_quote or is_quote_start
        if is_heading:
            yield _HEADING_BLOCK, _CLOSING_HASHES.sub("", words)
        elif is_row:
            yield _ROW_BLOCK, f" {SEPARATOR} ".join(filter(None, map(str.strip, _CELLS.split(words))))
        else:
            lines.append(words.strip())
    yield _TEXT_BLOCK, " ".join(lines)


def _clean_line(words: str) -> str:
    """The line without alert markers, containers, block ids and attributes."""
    if words.startswith(("[!", ":::")):
        words = _ALERT.sub("", _CONTAINER.sub("", words, 1), 1)
    return _LINE_END.sub("", words) if "^" in words or words.endswith("}") else words


def _strip_block(block: str) -> str:
    """The block without inline markup, including partial markup at the ends of a fragment."""
    if "<" in block or ">" in block:
        block = _BLOCK_TAG.sub(" ", block)
    text = strip_inline(block)
    if "<" in text or ">" in text:
        text = _PARTIAL_TAG.sub("", text) if "<" in block or '="' in text else text
    if "[" in text or "](" in text:
        text = _REFERENCE.sub(
            lambda match: match[1] or match[2] or "", _PARTIAL_LINK.sub(lambda match: match[1] or match[2] or "", text)
        )
    if "==" in text:
        text = _HIGHLIGHT.sub(r"\1", text)
    return _LONE_FENCE.sub("", text) if "```" in text or "~~~" in text else text
