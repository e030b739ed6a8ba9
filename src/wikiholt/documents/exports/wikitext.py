"""Converts MediaWiki's markup to Markdown, in time proportional to its length."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from wikiholt.documents.exports.items import format_table

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RAW_TAG = re.compile(
    r"<!--|<(nowiki|pre|syntaxhighlight|source|code|math|ref|gallery|includeonly|templatestyles)\b([^<>]{0,500})>",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,15})(?:[ \t\n/][^<>]{0,1000})?>")
_DROPPED_TAGS = frozenset(
    "a abbr big blockquote br caption center cite col dd del dfn div dl dt font ins kbd li mark noinclude ol"  # noqa: SIM905
    " onlyinclude p poem q references s samp section small span strike sub sup table tbody td th thead tr tt u ul var"
    " b strong i em hr nowiki includeonly translate tvar h1 h2 h3 h4 h5 h6".split()
)
_TAG_TEXTS = {
    "br": "\x04", "p": "\n\n", "li": "\n* ", "tr": "\n", "td": " ", "th": " ", "b": "'''", "strong": "'''", "i": "''",
    "em": "''", "sup": "^", "hr": "\n----\n", "blockquote": "\n\n",
}  # fmt: skip
_CLOSED_TAGS = frozenset({"p", "b", "strong", "i", "em", "blockquote"})
"""Tags whose end has the same text as their beginning."""
_MAGIC_WORD = re.compile(r"__[A-Z]{3,30}__")
_TEMPLATE_TOKEN = re.compile(r"\{\{|\}\}|\[\[|\]\]|\|")
_MAX_TEMPLATE_DEPTH = 40
_PARAMETER = re.compile(r"\s{0,100}([^\s=<>\[\]{}\x02\x03][^=<>\[\]{}\x02\x03\n]{0,60})=")
_LAYOUT_PARAMETERS = re.compile(
    r"(?i)(?:style|class|width|height|align|colou?r|background|image|bild|logo|file|size|group|ref|state|collapsed)\w{0,20}\Z"
)
_TITLE_WORDS = frozenset({"PAGENAME", "FULLPAGENAME", "SUBPAGENAME", "BASEPAGENAME"})
_LINK = re.compile(r"\[\[([^\[\]|\n]{1,400})(?:\|([^\[\]]{0,4000}))?\]\]([^\W\d_]{0,30})")
_URL_LINK = re.compile(r"\[((?:https?://|ftp://|mailto:|//)[^\s\[\]<>]{1,2000})(?:[ \t]{1,10}([^\[\]\n]{0,2000}))?\]")
_FILE_OPTION = re.compile(
    r"(?i)\s{0,9}(?:thumb|thumbnail|mini|miniatur|frame|framed|frameless|border|left|right|center|none|links|rechts|upright.{0,9}"
    r"|baseline|middle|top|bottom|sub|super|text-top|text-bottom|\d{0,5}(?:x\d{1,5})?px|(?:alt|link|lang|page|class)=.{0,999})\s{0,9}"
)
_QUOTES = re.compile(r"'{2,}")
_STAR = re.compile(r"(?<=\S)\*|\*(?=\S)")
_CELL_ATTRIBUTES = re.compile(r"[^|\[\]{}\x02\x03]{0,500}=[^|\[\]{}\x02\x03]{0,500}\|(?!\|)")
_CELL_ITEM = re.compile(r"\n[*#:;]{1,20}")
_PLACEHOLDER = re.compile(r"\x02(\d{1,9})\x03")
_REF_NAME = re.compile(r"""name\s{0,5}=\s{0,5}["']?([^"'/>]{1,100})""", re.IGNORECASE)
_LANGUAGE = re.compile(r"""lang\s{0,5}=\s{0,5}["']?([\w+#-]{1,20})""", re.IGNORECASE)
_MAX_LINK_DEPTH = 4


class WikitextLinks(Protocol):
    """Says what the links of one page lead to."""

    def find_kind(self, target: str) -> tuple[str, str]:
        """`file`, `category` or `page`, and the name without its namespace."""

    def find_target(self, target: str) -> str:
        """The target of the Markdown link to a page; empty if it is not imported."""


@dataclass(frozen=True, slots=True)
class ConvertedWikitext:
    """A page as Markdown, its categories, and how many templates and links to files it has."""

    text: str
    categories: Sequence[str]
    templates: int
    files: int


def convert_wikitext(text: str, title: str, links: WikitextLinks) -> ConvertedWikitext:
    """Convert one page. Of templates, the text of their parameters is kept."""
    converter = _Converter(title, links)
    body = converter.convert(text)
    return ConvertedWikitext(body, list(converter.categories), converter.templates, converter.files)


class _Converter:
    def __init__(self, title: str, links: WikitextLinks) -> None:
        self._title = title
        self._links = links
        self._kept: list[str] = []
        """Finished Markdown, for which the text has placeholders."""
        self._notes: list[str] = []
        self._note_names: dict[str, int] = {}
        self.categories: dict[str, None] = {}
        self.templates = 0
        self.files = 0

    def convert(self, text: str) -> str:
        blocks = "\n".join(self._convert_lines(self._prepare(_CONTROL.sub("", text))))
        notes = "".join(f"\n\n[^{number}]: {note}" for number, note in enumerate(self._notes, 1))
        body = self._restore(blocks + notes).replace("\x04", "\n")
        return re.sub(r"\n{3,}", "\n\n", body).strip("\n") + "\n"

    def _keep(self, markdown: str) -> str:
        self._kept.append(markdown)
        return f"\x02{len(self._kept) - 1}\x03"

    def _restore(self, text: str) -> str:
        """The text with all placeholders replaced; a kept part has only placeholders of earlier parts."""
        while "\x02" in text:
            text = _PLACEHOLDER.sub(lambda match: self._kept[int(match[1])], text)
        return text

    def _prepare(self, text: str) -> str:
        """The text without code, comments, templates and tags; what is left cannot be mistaken for Markdown."""
        text = self._protect(text)
        text = _MAGIC_WORD.sub("", text.replace("\\", "\\\\").replace("`", "\\`"))
        return self._convert_tags(self._render_templates(text))

    def _convert_inline_text(self, text: str) -> str:
        return self._convert_inline(" ".join(self._prepare(text).replace("\x04", " ").split()))

    # Parts that are not markup.

    def _protect(self, text: str) -> str:
        parts: list[str] = []
        unclosed: set[str] = set()
        position = 0
        while match := _RAW_TAG.search(text, position):
            name, attributes = (match[1] or "").lower(), match[2] or ""
            parts.append(text[position : match.start()])
            if attributes.endswith("/"):
                parts.append(self._add_note("", attributes) if name == "ref" else "")
                position = match.end()
                continue
            closing = re.compile(rf"</{name}\s{{0,9}}>" if name else "-->", re.IGNORECASE)
            end = None if name in unclosed else closing.search(text, match.end())
            if end is None:
                unclosed.add(name)
                position = match.end()
                continue
            parts.append(self._convert_raw(name, attributes, text[match.end() : end.start()]))
            position = end.end()
        parts.append(text[position:])
        return "".join(parts)

    def _convert_raw(self, name: str, attributes: str, content: str) -> str:
        if name == "nowiki":
            return self._keep(re.sub(r"([\\`*_<\[\]#])", r"\\\1", content))
        if name == "ref":
            return self._add_note(content, attributes)
        if name == "gallery":
            captions = (line.partition("|")[2] for line in content.split("\n"))
            return "\n" + "\n".join(f"* {caption}" for caption in captions if caption.strip()) + "\n"
        if name in ("code", "math") and "\n" not in content.strip():
            return self._keep_code_span(content.strip())
        if name in ("pre", "syntaxhighlight", "source", "code", "math"):
            language = _LANGUAGE.search(attributes)
            content = re.sub(r"</?nowiki>", "", content) if name == "pre" else content
            return f"\n\n{self._keep(_fence(content, language[1] if language else ''))}\n\n"
        return ""

    def _keep_code_span(self, code: str) -> str:
        ticks = "`" * (max((len(run) for run in re.findall("`+", code)), default=0) + 1)
        space = " " if code.startswith("`") or code.endswith("`") else ""
        return self._keep(f"{ticks}{space}{code}{space}{ticks}") if code else ""

    def _add_note(self, content: str, attributes: str) -> str:
        match = _REF_NAME.search(attributes)
        name = match[1].strip() if match else ""
        number = self._note_names.get(name, 0) if name else 0
        if not number:
            self._notes.append("")
            number = len(self._notes)
            if name:
                self._note_names[name] = number
        if content.strip():
            self._notes[number - 1] = self._convert_inline_text(content)
        return self._keep(f"[^{number}]")

    # Templates.

    def _render_templates(self, text: str) -> str:
        frames: list[list[list[str]]] = [[[]]]
        """The parts of each parameter of the open templates; the first frame is the page."""
        depths = [0]
        position = 0
        for match in _TEMPLATE_TOKEN.finditer(text):
            frames[-1][-1].append(text[position : match.start()])
            position, mark = match.end(), match[0]
            if mark == "{{" and len(frames) <= _MAX_TEMPLATE_DEPTH:
                frames.append([[]])
                depths.append(0)
            elif mark == "}}" and len(frames) > 1:
                depths.pop()
                rendered = self._render_template(["".join(parts) for parts in frames.pop()])
                frames[-1][-1].append(rendered)
            elif mark == "|" and len(frames) > 1 and not depths[-1]:
                frames[-1].append([])
            else:
                depths[-1] = max(0, depths[-1] + (mark == "[[") - (mark == "]]"))
                frames[-1][-1].append(mark)
        frames[-1][-1].append(text[position:])
        return "{{".join("|".join("".join(parts) for parts in frame) for frame in frames)

    def _render_template(self, parameters: Sequence[str]) -> str:
        name = parameters[0].strip()
        if name in _TITLE_WORDS:
            return self._title
        if name in ("!", "="):
            return {"!": "|"}.get(name, name)
        if name.startswith(("DEFAULTSORT", "DISPLAYTITLE", "SORTIERUNG")) or name.lower() == "reflist":
            return ""
        self.templates += 1
        named: dict[str, str] = {}
        plain: list[str] = []
        for parameter in parameters[1:]:
            match = _PARAMETER.match(parameter)
            value = parameter[match.end() :].strip() if match else parameter.strip()
            if value and match and not match[1].strip().isdecimal():
                named[match[1].strip()] = value
            elif value:
                plain.append(value)
        if any("\n" in parameter for parameter in parameters) and not name.lower().startswith(("cite", "citation")):
            shown = {key: value for key, value in named.items() if not _LAYOUT_PARAMETERS.match(key)}
            lines = [f"* {key.replace('_', ' ')}: {' '.join(value.split())}" for key, value in shown.items()]
            return "\n\n" + "\n".join(lines) + "".join(f"\n\n{value}" for value in plain) + "\n\n"
        if title := named.get("title", ""):
            url = named.get("url", "")
            plain.append(f"[{url} {title}]" if url.startswith("http") else title)
        plain += [named[key] for key in ("text", "quote", "content", "author", "last") if key in named]
        return " ".join(plain)

    def _convert_tags(self, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match[1].lower()
            if name not in _DROPPED_TAGS:
                return f"\\{match[0]}"
            is_end = match[0].startswith("</")
            return "" if is_end and name not in _CLOSED_TAGS else _TAG_TEXTS.get(name, "")

        return _TAG.sub(replace, text)

    # Blocks.

    def _convert_lines(self, text: str) -> Iterator[str]:
        """The lines of the Markdown, with an empty one between two kinds of blocks."""
        for kind, group in groupby(_mark_tables(text.split("\n")), key=lambda item: item[0]):
            lines = [line for _, line in group]
            yield ""
            if kind == "table":
                yield from self._convert_tables(lines)
            elif kind == "list":
                yield from map(self._convert_item, lines)
            elif kind == "heading":
                for line in lines:
                    yield from (self._convert_heading(line), "")
            elif kind == "code":
                plain = (_LINK.sub(lambda match: match[2] or match[1], line[1:]) for line in lines)
                yield _fence(_QUOTES.sub("", "\n".join(plain)).replace("\\\\", "\\").replace("\\`", "`"), "")
            else:
                yield from (_escape_start(self._convert_inline(line.strip())) for line in lines)

    def _convert_heading(self, line: str) -> str:
        line = line.strip()
        level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")), 6, (len(line) - 1) // 2)
        content = self._convert_inline(line[level : len(line) - level].strip()).replace("\x04", " ")
        return f"{'#' * level} {content}"

    def _convert_item(self, line: str) -> str:
        content = line.lstrip("*#;:")
        marks = line[: len(line) - len(content)]
        content = self._convert_inline(content.strip()).replace("\x04", " ")
        indent = "".join({"*": "  ", "#": "   "}.get(mark, "") for mark in marks[:-1])
        if not content:
            return ""
        if marks[-1] == "*":
            return f"{indent}- {content}"
        if marks[-1] == "#":
            return f"{indent}1. {content}"
        if marks[-1] == ";":
            term, colon, definition = content.partition(" : ")
            return f"\n{indent}**{term}**" + (f": {definition}" if colon else "")
        return f"\n{indent}{content}\n"

    def _convert_tables(self, lines: Sequence[str]) -> Iterator[str]:
        rows: list[list[str]] = []
        depth = 0
        for raw in lines:
            line = raw.strip()
            if line.startswith("{|"):
                depth += 1
            elif line.startswith("|}"):
                depth = max(0, depth - 1)
                if not depth:
                    yield from self._format_rows(rows)
                    rows = []
            elif line.startswith("|+"):
                caption = self._convert_inline(_CELL_ATTRIBUTES.sub("", line[2:], count=1).strip())
                yield from (f"**{caption}**", "") if caption else ()
            elif line.startswith("|-"):
                rows.append([])
            elif line.startswith(("|", "!")):
                rows = rows or [[]]
                cells = re.split(r"\|\||!!", line[1:]) if line[0] == "!" else line[1:].split("||")
                rows[-1] += [_CELL_ATTRIBUTES.sub("", cell, count=1).strip() for cell in cells]
            elif rows and rows[-1]:
                rows[-1][-1] += f"\n{line}"
        yield from self._format_rows(rows)

    def _format_rows(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        if max(map(len, rows), default=0) == 1:  # it is only there for the layout
            yield from self._convert_lines("\n\n".join(cell for row in rows for cell in row))
        else:
            yield from ("", *format_table([[self._format_cell(cell) for cell in row] for row in rows]), "")

    def _format_cell(self, cell: str) -> str:
        text = _CELL_ITEM.sub(", ", cell.lstrip("*#:; \n"))
        return self._restore(self._convert_inline(text.replace("\n", " "))).replace("\x04", " ")

    # Text.

    def _convert_inline(self, text: str) -> str:
        for _ in range(_MAX_LINK_DEPTH):
            if "[[" not in text:
                break
            text = _LINK.sub(self._convert_link, text)
        text = _URL_LINK.sub(self._convert_url, text)
        text = text.replace("[[", "\\[[").replace("](", "]\\(").replace("__", "\\_\\_")
        return _convert_quotes(_STAR.sub(r"\\*", text))

    def _convert_link(self, match: re.Match[str]) -> str:
        written, label, end = match[1].strip(), match[2], match[3]
        if written.startswith(":"):
            written = written[1:].strip()
        else:
            kind, name = self._links.find_kind(written)
            if kind == "category":
                self.categories[name] = None
                return end
            if kind == "file":
                self.files += 1
                shown = [part for part in (label or "").split("|") if part and not _FILE_OPTION.fullmatch(part)]
                return (shown[-1] if shown else "") + end
        target = self._links.find_target(written)
        content = (label if label and label.strip() else written.lstrip("/")).strip() + end
        if not target and label is None and re.match(r"[a-z]{2,3}(?:-[a-z]{2,8})?:", written):
            return end  # the same page in another language
        if not target:
            return content
        content = _convert_quotes(_STAR.sub(r"\\*", content.replace("[", "\\[").replace("]", "\\]")))
        return self._keep(f"[{content}]({target})")

    def _convert_url(self, match: re.Match[str]) -> str:
        url = match[1].replace("\\\\", "\\")
        url = f"https:{url}" if url.startswith("//") else url
        label = (match[2] or "").strip()
        if not label:
            return self._keep(f"<{url}>")
        target = f"<{url}>" if "(" in url or ")" in url else url
        return self._keep(f"[{_convert_quotes(label)}]({target})")


def _mark_tables(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each line with its kind: of a table, a list, a heading, code or text."""
    depth = 0
    for line in lines:
        start = line.lstrip(" \t:*#")
        if start.startswith("{|"):
            depth += 1
            yield "table", start
        elif depth:
            depth -= start.startswith("|}")
            yield "table", line
        elif line.startswith(("*", "#", ";", ":")):
            yield "list", line
        elif line.startswith("=") and line.rstrip().endswith("=") and len(line.strip()) > 2 and line.strip("= \t"):
            yield "heading", line
        elif line.startswith("----"):
            yield "text", "\n---\n"
        elif line.startswith(" ") and line.strip() and not line.lstrip().startswith("\x02"):
            yield "code", line
        else:
            yield "text", line


def _fence(code: str, language: str) -> str:
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", code)), default=0) + 1)
    return "{0}{1}\n{2}\n{0}".format(fence, language, code.strip("\n"))


def _escape_start(line: str) -> str:
    """The line such that its beginning is text in Markdown."""
    return f"\\{line}" if line.startswith((">", "+ ", "~~~")) or (line and not line.strip("=")) else line


def _convert_quotes(text: str) -> str:
    """Bold and italic text; what is still open at the end of the line is closed there."""
    parts: list[str] = []
    open_marks: list[str] = []
    position = 0
    matches = list(_QUOTES.finditer(text))
    for number, match in enumerate(matches):
        parts.append(text[position : match.start()])
        position, count = match.end(), len(match[0])
        if count not in (2, 3, 5):
            parts.append("'" * (1 if count == 4 else count - 5))
            count = 3 if count == 4 else 5
        is_bold_inside = number + 1 < len(matches) and len(matches[number + 1][0]) == 3
        marks = {2: ["*"], 3: ["**"], 5: ["*", "**"] if is_bold_inside else ["**", "*"]}[count]
        if count == 5 and open_marks:
            marks = open_marks[::-1] if len(open_marks) == 2 else [open_marks[0], {"*": "**"}.get(open_marks[0], "*")]
        for mark in marks:
            if mark in open_marks:
                # Markdown needs the marks to be nested: an inner one is closed and opened again.
                inner = open_marks[open_marks.index(mark) + 1 :]
                parts += (*inner[::-1], mark, *inner)
                open_marks.remove(mark)
            else:
                parts.append(mark)
                open_marks.append(mark)
    parts += (text[position:], *open_marks[::-1])
    return "".join(parts)
