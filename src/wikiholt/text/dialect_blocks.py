"""Converts the blocks of a dialect or file format to Markdown, line by line, so that line numbers stay the same.

Comments are removed; admonitions become callouts; components of MDX are removed and their text is kept; headings of
reStructuredText and AsciiDoc become Markdown headings. Nothing is executed. Any input takes linear time.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import remove_markup, replace_in_prose
from wikiholt.text.fences import find_fence, split_fences
from wikiholt.text.inline import blank_code
from wikiholt.text.page_names import ASCIIDOC_EXTENSION, MARKDOWN_EXTENSIONS, RST_EXTENSION, get_extension
from wikiholt.text.site_markup import convert_containers, convert_templates


def convert_blocks(body: str, file: str, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    """The body of a page in Markdown, with as many lines, and warnings. Plain Markdown is returned as it is."""
    extension = get_extension(file)
    if extension == RST_EXTENSION:
        return _convert_rst(body), ()
    if extension == ASCIIDOC_EXTENSION:
        return _convert_asciidoc(body), ()
    if extension == ".mdx" or (dialect.has_components and extension in MARKDOWN_EXTENSIONS):
        body = _convert_mdx(body)
    if dialect.has_templates:
        body = convert_templates(body)
    if dialect.has_containers:
        body = convert_containers(body)
    if dialect.has_admonitions:
        return _convert_admonitions(body), ()
    return _remove_note_comments(body) if dialect.has_note_markup else (body, ())


# Comments of Obsidian, and properties and logs that Logseq keeps for itself.

_COMMENT = "%%"
_DRAWER_START, _DRAWER_END = ":LOGBOOK:", ":END:"
_INTERNAL_PROPERTY = re.compile(r"[ \t]*+(?:[-*][ \t]++)?(?:id|collapsed|logseq\.[\w.-]++):: .*")


def _remove_note_comments(body: str) -> tuple[str, tuple[str, ...]]:
    if _COMMENT not in body and ":: " not in body and _DRAWER_START not in body:
        return body, ()
    lines = body.split("\n")
    kept: list[str] = []
    fence, opened_at, in_drawer = "", -1, False
    for number, line in enumerate(lines):
        fence, was_in_code = find_fence(line, fence), bool(fence)
        if fence or was_in_code:  # a comment neither begins nor ends in code
            kept.append("" if opened_at >= 0 else line)
            continue
        if in_drawer or line.strip() == _DRAWER_START:
            in_drawer = line.strip() != _DRAWER_END
            kept.append("")
            continue
        text, is_open = _remove_line_comments(line, opened_at >= 0)
        opened_at = (number if opened_at < 0 else opened_at) if is_open else -1
        kept.append("" if ":: " in text and _INTERNAL_PROPERTY.fullmatch(text) else text)
    if opened_at < 0:
        return "\n".join(kept), ()
    # Hiding the rest of a page because of a percent sign would be worse than showing a comment.
    warning = "a %% comment is not closed; the text after it is indexed"
    first = lines[opened_at]
    rest = [kept[opened_at] + first[first.rfind(_COMMENT) :], *lines[opened_at + 1 :]]
    return "\n".join([*kept[:opened_at], *rest]), (warning,)


def _remove_line_comments(line: str, is_open: bool) -> tuple[str, bool]:
    """The line without comments, and whether a comment is open at its end."""
    if _COMMENT not in line:
        return ("" if is_open else line), is_open
    masked = line if is_open else blank_code(line)
    parts: list[str] = []
    position = 0
    while (found := masked.find(_COMMENT, position)) >= 0:
        if not is_open:
            parts.append(line[position:found])
        is_open, position = not is_open, found + len(_COMMENT)
    return "".join(parts if is_open else (*parts, line[position:])), is_open


# Admonitions and content tabs of MkDocs.

_ADMONITION = re.compile(r'(?:!!!|\?\?\?\+?)[ \t]++([A-Za-z][\w-]*+)[^"\n]*+(?:"(.*)")?[ \t]*+')
_TAB = re.compile(r'===[!+]{0,2}[ \t]++"(.*)"[ \t]*+')
_ATTRIBUTE_LINE = re.compile(r"[ \t]*+\{:[^{}]*+\}[ \t]*+")
_REFERENCE_LINE = re.compile(r":::[ \t]++[\w.]++[ \t]*+")
_DEFINITION = ":   "
_HAS_BOXES = re.compile(r"!!!|\?\?\?|===|\{:|^:   |^:::", re.MULTILINE)
_CONTENT_INDENT = 4
_QUOTE = "> "
_MAX_DEPTH = 20


class _Box(NamedTuple):
    """An open admonition or tab: the indentation of its content, and what replaces it."""

    indent: int
    prefix: str


def _convert_admonitions(body: str) -> str:
    if not _HAS_BOXES.search(body):
        return body
    boxes: list[_Box] = []
    fence = ""
    lines: list[str] = []
    for line in body.split("\n"):
        if not line.strip():
            lines.append(boxes[-1].prefix.rstrip() if boxes and not fence else "")
            continue
        text = line.expandtabs(_CONTENT_INDENT) if boxes and "\t" in line else line
        indent = _count_indent(text)
        while boxes and indent < boxes[-1].indent:
            boxes.pop()
            fence = ""
        if not fence:
            text = _open_boxes(text, boxes)
        outer = boxes[-1] if boxes else _Box(0, "")
        text = text[outer.indent :]
        fence, was_in_code = find_fence(text, fence), bool(fence)
        if fence or was_in_code:
            lines.append(outer.prefix.replace(_QUOTE, "") + text)  # code is not quoted, so that it has no marks
        else:
            is_hidden = bool(_ATTRIBUTE_LINE.fullmatch(text) or _REFERENCE_LINE.fullmatch(text))
            lines.append((outer.prefix + ("" if is_hidden else text)) if boxes or not is_hidden else "")
    return "\n".join(lines)


def _count_indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _open_boxes(text: str, boxes: list[_Box]) -> str:
    """Open the boxes that begin on this line. Returns the line with what is left of it at their indentation."""
    while len(boxes) < _MAX_DEPTH:
        outer = boxes[-1] if boxes else _Box(0, "")
        indent = _count_indent(text)
        box = _start_box(text[indent:])
        if box is None:
            break
        title, quote = box
        inner = " " * (indent - outer.indent)
        boxes.append(_Box(indent + _CONTENT_INDENT, f"{outer.prefix}{inner}{quote}"))
        text = " " * (indent + _CONTENT_INDENT) + title
    return text


def _start_box(text: str) -> tuple[str, str] | None:
    """The line and the prefix that replace the start of an admonition, tab or definition; None if this is none."""
    stripped = text.strip()
    if stripped.startswith(_DEFINITION):
        return stripped[len(_DEFINITION) :], ""
    if stripped.startswith(("!!!", "???")) and (match := _ADMONITION.fullmatch(stripped)):
        title = match[2]
        return ("" if title == "" else f"[!{match[1].lower()}] {title or ''}"), _QUOTE
    if stripped.startswith("===") and (match := _TAB.fullmatch(stripped)):
        return f"**{match[1]}**", ""
    return None


# Markup that a Markdown renderer does not know.

_FOOTNOTE_TEXT = re.compile(r"^([ \t>]*+\[\^[^\[\]\s]{1,50}\]):", re.MULTILINE)
_CALLOUT = re.compile(r"^([ \t]*+>[ \t>]*+)\[!([\w-]++)(?:\|[^\[\]\n]*+)?\][+-]?+[ \t]*+(\S[^\n]*+)?$", re.MULTILINE)


def format_callout_title(kind: str, title: str) -> str:  # noqa: ARG001 - other formats show the kind too
    """The title of a callout in bold; two spaces at the end break the line."""
    return f"**{title}**  "


def convert_to_markdown(
    body: str, dialect: Dialect, format_callout: Callable[[str, str], str] = format_callout_title
) -> str:
    """The body of a page with its callouts as quotes, and without markup of the dialect that displays nothing.

    `format_callout` formats the kind and the title of a callout, the first line of its quote.
    """
    if "[!" not in body and "[^" not in body and dialect is GFM:
        return body
    return "".join(
        text if is_code else replace_in_prose(text, lambda prose: _convert_callouts(prose, dialect, format_callout))
        for is_code, text in split_fences(body)
    )


def _convert_callouts(text: str, dialect: Dialect, format_callout: Callable[[str, str], str]) -> str:
    if "[^" in text:  # a short footnote would be a link definition, which displays nothing
        text = _FOOTNOTE_TEXT.sub(r"\1 ", text)
    if "[!" in text:

        def convert(match: re.Match[str]) -> str:
            return match[1] + format_callout(match[2].lower(), (match[3] or match[2].capitalize()).strip())

        text = _CALLOUT.sub(convert, text)
    return remove_markup(text, dialect)


# MDX: Markdown with imports, exports, components and expressions.

_BRACES = r"\{(?>(?:[^{}]++|\{(?>(?:[^{}]++|\{[^{}]*+\}){0,999})\}){0,999})\}"
_COMPONENT = re.compile(
    rf"<(?P<close>/?)(?P<name>[A-Za-z][\w.:-]*+)?(?P<attributes>(?>(?:[^<>\"'{{}}]++|\"[^\"]*+\"|'[^']*+'|{_BRACES}){{0,999}}))>"
)
_EXPRESSION = re.compile(_BRACES)
_STRING = re.compile(r"\{\s*+(?:\"([^\"{}]*+)\"|'([^'{}]*+)'|`([^`{}$]*+)`)\s*+\}")
_LABEL = re.compile(r"""(?<![\w-])(?:label|title|summary)=(?:"([^"<>]*+)"|'([^'<>]*+)')""")
_MODULE_LINE = re.compile(r"(?:import|export)(?:[ \t]|$)")
_MAX_MODULE_LINES = 200
_UNWRAPPED_INFO = "mdx-code-block"


def _convert_mdx(body: str) -> str:
    parts: list[str] = []
    body = _unwrap_code_blocks(body) if _UNWRAPPED_INFO in body else body
    for is_code, text in split_fences(_remove_module_lines(body)):
        if is_code or ("<" not in text and "{" not in text):
            parts.append(text)
        else:
            parts.append(replace_in_prose(text, _convert_components))
    return "".join(parts)


def _unwrap_code_blocks(body: str) -> str:
    """The body without the fences around components that Docusaurus displays."""
    lines = body.split("\n")
    fence, is_unwrapped = "", False
    for number, line in enumerate(lines):
        after = find_fence(line, fence)
        if after != fence:
            is_unwrapped = line.rstrip().endswith(_UNWRAPPED_INFO) if after else is_unwrapped
            lines[number] = "" if is_unwrapped else line
        fence = after
    return "\n".join(lines)


def _remove_module_lines(body: str) -> str:
    """The body without imports and exports: each ends before a blank line, or where its brackets are closed."""
    lines = body.split("\n")
    fence, depth, length = "", 0, 0
    in_module = False
    for number, line in enumerate(lines):
        if not in_module:
            fence = find_fence(line, fence)
            in_module, depth, length = not fence and bool(_MODULE_LINE.match(line)), 0, 0
        elif (not line.strip() and depth <= 0) or length > _MAX_MODULE_LINES:
            in_module = False
        if in_module:
            depth += sum(map(line.count, "({[")) - sum(map(line.count, ")}]"))
            length += 1
            lines[number] = ""
    return "\n".join(lines)


def _convert_components(text: str) -> str:
    return _EXPRESSION.sub(_render_expression, _COMPONENT.sub(_render_component, text))


def _render_component(match: re.Match[str]) -> str:
    name, attributes = match["name"] or "", match["attributes"]
    if name[:1].islower() and "{" not in attributes:
        return match[0]
    label = _LABEL.search(attributes)
    newlines = "\n" * match[0].count("\n")
    return (f"**{label[1] or label[2]}** " if label and (label[1] or label[2]) else "") + newlines


def _render_expression(match: re.Match[str]) -> str:
    if match[0].startswith("{#"):
        return match[0]
    string = _STRING.fullmatch(match[0])
    text = next((group for group in string.groups() if group), "") if string else ""
    return text + "\n" * (match[0].count("\n") - text.count("\n"))


# reStructuredText and AsciiDoc: only headings, literal blocks and lines that display nothing.

_RST_RULE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*+")
_RST_LABEL = re.compile(r"\.\. _[^:\n]++:[ \t]*+")


def _convert_rst(body: str) -> str:
    lines = body.split("\n")
    levels: dict[tuple[str, bool], int] = {}
    number = 0
    while number < len(lines):
        heading = _find_rst_heading(lines, number)
        if heading is None:
            lines[number] = "" if _RST_LABEL.fullmatch(lines[number]) else lines[number]
            number += 1
            continue
        mark, is_overlined = heading
        level = min(levels.setdefault((mark, is_overlined), len(levels) + 1), 6)
        title = number + is_overlined
        text = lines[title].strip()
        lines[number] = lines[title + 1] = ""
        lines[title] = f"{'#' * level} {text}"
        number = title + 2
    return "\n".join(lines)


def _find_rst_heading(lines: list[str], number: int) -> tuple[str, bool] | None:
    """The character that marks the heading that begins on this line, and whether it is also above the title."""
    rule = _RST_RULE.fullmatch(lines[number])
    title = number + bool(rule)
    if title + 1 >= len(lines) or not lines[title].strip() or (not rule and lines[title][0].isspace()):
        return None
    below = _RST_RULE.fullmatch(lines[title + 1])
    if below is None or len(lines[title + 1].rstrip()) < len(lines[title].strip()):
        return None
    if rule:
        return (rule[1], True) if lines[number].rstrip() == lines[title + 1].rstrip() else None
    return below[1], False


_ADOC_HEADING = re.compile(r"(={1,6})[ \t]++(\S.*)")
_ADOC_DELIMITER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|\+{4,}|--|\|===)[ \t]*+")
_ADOC_CODE = re.compile(r"(-{4,}|\.{4,})[ \t]*+")
_ADOC_HIDDEN = re.compile(r"//(?!/).*|:!?[\w-]++!?:(?:[ \t].*)?|\[\[?[^\[\]\n]*+\]\]?[ \t]*+|toc::.*")


def _convert_asciidoc(body: str) -> str:
    lines = body.split("\n")
    code = ""
    is_comment = False
    for number, line in enumerate(lines):
        if is_comment or line.startswith("////"):
            is_comment ^= line.startswith("////")
            lines[number] = ""
        elif (match := _ADOC_CODE.fullmatch(line)) and (not code or code == line.strip()):
            code = "" if code else line.strip()
            lines[number] = "```"
        elif code:
            continue
        elif match := _ADOC_HEADING.fullmatch(line):
            lines[number] = f"{'#' * len(match[1])} {match[2]}"
        elif _ADOC_DELIMITER.fullmatch(line) or _ADOC_HIDDEN.fullmatch(line):
            lines[number] = ""
    return "\n".join(lines)
