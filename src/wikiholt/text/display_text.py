"""What template languages leave in Markdown, as a reader would see it: macros, shortcodes, tags, comments, formulas.

Nothing here is run: a macro shows the words it was given to show, or nothing. Any input takes linear time.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wikiholt.domain.search import Span
from wikiholt.text.inline import iter_code_spans, parse_wiki_link, strip_inline
from wikiholt.text.model_text import iter_segments
from wikiholt.text.segmentation import CJK_RANGES, find_sentence_starts

_MAX_MACRO_CHARS = 1000
"""Characters of a macro; what is longer is text with braces in it."""

_MAX_PARTIAL_CHARS = 200
"""Characters of one that a fragment ends in before its end, at most."""

_PARTIAL_SHORTCODE = re.compile(r"\A(?:(?!\n\n|\{\{|\}\}).){0,200}[>%]\}\}", re.DOTALL)
_TEXT_ARGUMENT = re.compile(r"""\b(?:text|label|title)=(?:"([^"]*+)"|'([^']*+)')""")
_TERM_ARGUMENT = re.compile(r"""\bterm_id=["']?([\w-]++)""")
_MACRO_CALL = re.compile(r"\s*+([\w.-]++)\s*+\(([^()]*+(?>(?:\([^()]*+\)[^()]*+){0,9999}))\)")
_QUOTED_ARGUMENT = re.compile(r"\"([^\"]*+)\"|'([^']*+)'")
# macros that stand for a link with a text; all others draw boxes, badges, bars and samples
_LINK_MACRO = re.compile(
    r"\w*xref|glossary|\w+element|svgattr|http(?:header|status|method)|webextapiref|rfc", re.IGNORECASE
)
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
    """The text without comments, scripts and styles; also without the half of one that a fragment begins or ends in."""
    if "-->" in text:
        end = _COMMENT_END.search(text)
        if end and "<!--" not in text[: end.start()]:
            text = text[end.end() :]
    if "<!--" in text:
        text = _remove_between(text, "<!--", "-->")
    if "%%" in text:
        text = _remove_between(text, "%%", "%%", half=False)
    return _remove_elements(text) if "<" in text and _HIDDEN_ELEMENT.search(text) else text


def _remove_elements(text: str) -> str:
    parts: list[str] = []
    at = 0
    while found := _HIDDEN_ELEMENT.search(text, at):
        parts += text[at : found.start()], " "
        end = _HIDDEN_END[found[1].lower()].search(text, found.end())
        if not end:
            return "".join(parts)
        at = end.end()
    return "".join([*parts, text[at:]])


def _remove_between(text: str, start: str, end: str, *, half: bool = True) -> str:
    parts: list[str] = []
    at = 0
    while (begin := text.find(start, at)) >= 0:
        close = text.find(end, begin + len(start))
        if close < 0:
            return "".join([*parts, text[at:begin]]) if half else "".join([*parts, text[at:]])
        parts += text[at:begin], " "
        at = close + len(end)
    return "".join([*parts, text[at:]])


def replace_macros(text: str) -> str:
    """The text with every macro, shortcode and tag of a template replaced by the words it shows."""
    if "}}" in text:
        text = _PARTIAL_SHORTCODE.sub("", text)
    if "{{" in text:
        text = _replace_between(text, "{{", "}}", _render_macro)
    if "{%" in text:
        text = _replace_between(text, "{%", "%}", lambda _: "")
    if "{#" in text and "#}" in text:
        text = _replace_between(text, "{#", "#}", lambda _: "")
    return _LONE_BRACES.sub(" ", text) if "{" in text or "}" in text else text


def _replace_between(text: str, start: str, end: str, render: Callable[[str], str]) -> str:
    parts: list[str] = []
    at = 0
    while (begin := text.find(start, at)) >= 0:
        close = text.find(end, begin + 2, begin + _MAX_MACRO_CHARS)
        if close < 0:
            if len(text) - begin <= _MAX_PARTIAL_CHARS and "\n\n" not in text[begin:]:
                text = text[:begin]
            break
        # of nested ones, the innermost is one; what is around it is met again as lone braces
        begin = text.rfind(start, begin, close)
        while begin > at and text[begin - 1] == "{":
            begin -= 1
        while text.startswith("}", close + 2):
            close += 1
        parts += text[at:begin], render(text[begin + 2 : close])
        at = close + 2
    return "".join([*parts, text[at:]])


def _render_macro(inside: str) -> str:
    if found := _TEXT_ARGUMENT.search(inside):
        return found[1] or found[2] or ""
    if found := _TERM_ARGUMENT.search(inside):
        return found[1].replace("-", " ")
    call = _MACRO_CALL.match(inside)
    if not call or not _LINK_MACRO.fullmatch(call[1]):
        return ""
    given = [first or second for first, second in _QUOTED_ARGUMENT.findall(call[2])]
    return next((each for each in (*given[1:2], *given[:1]) if each), "")


def replace_formulas(text: str) -> str:
    """The text with its formulas in plain letters, as far as a line can hold them."""
    if "$" not in text and "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while found := _FORMULA.search(text, at):
        end = _FORMULA_END[found[0]]
        close = text.find(end, found.end(), found.end() + _MAX_MACRO_CHARS)
        if close < 0:
            parts += text[at : found.start()], " "
            at = found.end()
            continue
        stop = text.find("}", close) + 1 if end == "\\end{" else close + len(end)
        stop = stop or len(text)
        inside = text[found.start() if end == "\\end{" else found.end() : stop if end == "\\end{" else close]
        parts += text[at : found.start()], _render_formula(inside)
        at = stop
    return _INLINE_FORMULA.sub(_render_inline_formula, "".join([*parts, text[at:]]))


def _render_inline_formula(match: re.Match[str]) -> str:
    return _render_formula(match[1]) if re.search(r"[\\^_{]", match[1]) else match[0]


def _render_formula(formula: str) -> str:
    text = _COMMAND.sub(" ", formula)
    text = _FORMULA_WORD.sub(
        lambda found: "" if found[1] in _STYLE_COMMANDS else f" {found[1]} " if found[1] else found[2], text
    )
    return " ".join(text.replace("{", "").replace("}", "").replace("&", " ").replace("$", "").split())


# A passage as a reader sees it: running text without any markup, and where its sentences are. Fragments are welcome.
# What the model reads is made elsewhere (`plain_text`): there a mark more or less does no harm, and every change of
# it would mean that wikis have to be embedded anew. Here nothing may be left that a page would not show.


_MIN_SENTENCE_CHARS = 20
"""Characters below which a sentence is read with its neighbour: "e.g.", "Note:" and "}" say nothing alone."""
_MIN_UNSPACED_SENTENCE_CHARS = 6
_MIN_CODE_CHARS = 60
"""Characters of code that are read as one sentence, at least: a line is often a bracket."""

_FIRST_PRIVATE_CODE_POINT = 0xF0000
"""Code spans stand aside as characters of a private plane while markup is taken away."""
_MAX_HELD_SPANS = 0xFFFD
_UNSPACED_CHARACTER = re.compile(rf"[{CJK_RANGES}]")
_PRIVATE_CHARACTER = re.compile("[\U000f0000-\U000ffffd]")
_RULE = re.compile(r"(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}")
_SETEXT = re.compile(r"[ \t>]*+(?:=++|-++)[ \t]*+")
_LINE_START = re.compile(
    r"[ \t]*+(?P<quote>(?>(?:>[!|]?+[ \t]*+){0,999}))"
    r"(?P<item>(?>(?:(?:[-*+:]|\d{1,9}[.)])[ \t]++(?:\[[ xX/-]\][ \t]++)?){0,999}))"
    r"(?P<heading>(?:#{1,6}(?:[ \t]++|$))?)"
)
_CLOSING_HASHES = re.compile(r"[ \t]++#++[ \t]*+$")
_ALERT = re.compile(r"\[!\w++(?:\|[^\[\]]*+)?\][+-]?+[ \t]*+")
_CONTAINER = re.compile(r":{3,}+[ \t]*+(?:\{[^{}]*+\}|[\w-]++)?")
# definitions of links and abbreviations, imports of components, a table of contents, attributes, a fence left alone
_SKIPPED = re.compile(
    r" {0,3}\*?\[(?!\^)[^\[\]\n]++\]:(?:[ \t]++\S.*+|[ \t]*+<?(?:\w++:|[/.#])\S*+.*+)"
    r"|import\s.*\bfrom\s++['\"].*+|import\s++['\"].*+|export\s++(?:const|default|let|function)\b.*+"
    r"|[ \t]*+\[toc\][ \t]*+|[ \t]*+\{:[^{}]*+\}[ \t]*+"
    r"|[ \t>]*+(?:`{3,}+|~{3,}+)[^`\n]*+",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"(?:(?:^|[ \t]++)\^[\w-]++|[ \t]*+\{[#.:](?!\w+\.)[^{}\n]*+\})[ \t]*+$")
_ROW = re.compile(r"[ \t]*+\||.*[^\\]\|[ \t]*+$|.* \| ")
_CELLS = re.compile(r"(?<!\\)\|")
_PICTURES = "png|jpe?g|gif|svg|webp|bmp|pdf|mp[34]|webm|mov|excalidraw"
_EMBED = re.compile(rf"!\[\[[^\[\]\n|]{{1,300}}\.(?:{_PICTURES})(?:[#|][^\[\]\n]*+)?\]\]", re.IGNORECASE)
_WIKI_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")
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
    """Text on one line, and its sentences: whole ones, items of lists, rows of tables, a few lines of code."""

    text: str
    sentences: tuple[Span, ...]


def to_display_text(markdown: str) -> DisplayText:
    """The passage as a reader sees it; headings are in the text and are sentences only where there is nothing else."""
    parts: list[str] = []
    spans: list[Span] = []
    headings: list[Span] = []
    at = 0
    for heading, written in _iter_blocks(markdown):
        block = " ".join(written.split())
        if not block:
            continue
        block = block if block.isascii() else unicodedata.normalize("NFC", block)
        target = headings if heading else spans
        for start, end in _split_sentences(block):
            target.append(Span(at + start, at + start + len(block[start:end].rstrip())))
        parts.append(block)
        at += len(block) + 1
    return DisplayText(" ".join(parts), tuple(spans or headings))


def _split_sentences(block: str) -> Iterator[tuple[int, int]]:
    """Sentences of a block, the short ones with the next, or the last with the one before."""
    least = (
        _MIN_SENTENCE_CHARS
        if block.isascii() or not _UNSPACED_CHARACTER.search(block)
        else _MIN_UNSPACED_SENTENCE_CHARS
    )
    cuts = [0]
    for start in find_sentence_starts(block, 0, len(block), by_line=False):
        if start - cuts[-1] >= least:
            cuts.append(start)
    if len(cuts) > 1 and len(block) - cuts[-1] < least:
        cuts.pop()
    yield from zip(cuts, [*cuts[1:], len(block)], strict=True)


def _iter_blocks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Each paragraph, item, row, heading and few lines of code, and whether it is a heading."""
    for code, text in iter_segments(markdown, weighed=True):
        if code:
            yield from ((False, block) for block in _iter_code_blocks(text))
        else:
            yield from _iter_prose_blocks(text)


def _iter_code_blocks(text: str) -> Iterator[str]:
    gathered = ""
    for line in text.split("\n"):
        if _LONE_FENCE.fullmatch(line.strip()):
            continue
        gathered = f"{gathered} {line.strip()}".strip()
        if len(gathered) >= _MIN_CODE_CHARS:
            yield gathered
            gathered = ""
    if gathered:
        yield gathered


def _iter_prose_blocks(text: str) -> Iterator[tuple[bool, str]]:
    held: list[str] = []
    text = replace_formulas(_hold_code_spans(remove_hidden(text), held))
    for heading, block in _iter_markdown_blocks(replace_macros(_replace_wiki_links(text))):
        shown = _strip_block(block)
        yield (
            heading,
            _PRIVATE_CHARACTER.sub(lambda found: held[ord(found[0]) - _FIRST_PRIVATE_CODE_POINT], shown)
            if held
            else shown,
        )


def _hold_code_spans(text: str, held_spans: list[str]) -> str:
    """The text with each code span as one character that stands for it."""
    text = text if text.isascii() else _PRIVATE_CHARACTER.sub(" ", text)
    if "`" not in text:
        return text
    parts: list[str] = []
    at = 0
    for start, end, fence in iter_code_spans(text):
        if len(held_spans) >= _MAX_HELD_SPANS or "\n\n" in text[start:end]:
            continue
        parts += text[at:start], chr(_FIRST_PRIVATE_CODE_POINT + len(held_spans))
        held_spans.append(text[start + fence : end - fence])
        at = end
    return "".join([*parts, text[at:]])


def _replace_wiki_links(text: str) -> str:
    """The text with wiki links as their words, and without embedded pictures."""
    if "[[" not in text:
        return text
    return _WIKI_LINK.sub(lambda found: _get_wiki_link_text(found[1]), _EMBED.sub("", text))


def _get_wiki_link_text(inside: str) -> str:
    if inside.strip("_").lower() == "toc":
        return ""
    target, words = parse_wiki_link(inside)
    if words != target or "#" not in words:
        return words
    page, _, place = words.partition("#")
    return page or place.partition(":#")[0].lstrip("^*")


def _iter_markdown_blocks(text: str) -> Iterator[tuple[bool, str]]:
    gathered: list[str] = []
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or _RULE.fullmatch(line):
            yield bool(_SETEXT.fullmatch(line)) and len(gathered) == 1, " ".join(gathered)
            gathered = []
            continue
        if _SKIPPED.fullmatch(line):
            continue
        start = _LINE_START.match(line)
        heading, item = bool(start and start["heading"]), bool(start and start["item"])
        words = _clean_line(line[start.end() if start else 0 :])
        row = "|" in words and bool(_ROW.match(words))
        if heading or item or row:
            yield False, " ".join(gathered)
            gathered = []
        if heading or row:
            yield heading, _CLOSING_HASHES.sub("", words) if heading else " ".join(_CELLS.split(words))
        else:
            gathered.append(words.strip())
    yield False, " ".join(gathered)


def _clean_line(words: str) -> str:
    """What a line says, without what only sets it apart."""
    if words.startswith(("[!", ":::")):
        words = _ALERT.sub("", _CONTAINER.sub("", words, 1), 1)
    return _LINE_END.sub("", words) if "^" in words or words.endswith("}") else words


def _strip_block(block: str) -> str:
    """A block's words without inline markup, also without halves of it that a fragment is left with."""
    if "<" in block or ">" in block:
        block = _BLOCK_TAG.sub(" ", block)
    text = strip_inline(block)
    if "<" in text or ">" in text:
        text = _PARTIAL_TAG.sub("", text) if "<" in block or '="' in text else text
    if "[" in text or "](" in text:
        text = _REFERENCE.sub(
            lambda found: found[1] or found[2] or "", _PARTIAL_LINK.sub(lambda found: found[1] or found[2] or "", text)
        )
    if "==" in text:
        text = _HIGHLIGHT.sub(r"\1", text)
    return _LONE_FENCE.sub("", text) if "```" in text or "~~~" in text else text
