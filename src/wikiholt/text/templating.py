"""What template languages leave in Markdown, as a reader would see it: macros, shortcodes, tags, comments, formulas.

Nothing here is run: a macro shows the words it was given to show, or nothing. Any input takes linear time.
"""

import re
from collections.abc import Callable

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
_STYLE_COMMANDS = frozenset({"text", "textnormal", "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "operatorname"})


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
    text = _FORMULA_WORD.sub(lambda found: "" if found[1] in _STYLE_COMMANDS else f" {found[1]} " if found[1] else found[2], text)
    return " ".join(text.replace("{", "").replace("}", "").replace("&", " ").replace("$", "").split())
