"""Reads the text of HTML: headings, paragraphs, list items, tables and code. Links keep their text."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import unquote

from wikiholt.documents.markdown_writer import MarkdownWriter, escape
from wikiholt.text.charset import decode_bytes

_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}charset=["']?([\w-]{2,20})|<\?xml[^>]{0,100}encoding=["']([\w-]{2,20})""", re.I
)
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "head", "nav", "iframe", "object", "select"})
_BLOCKS = frozenset(
    "p div section article main blockquote dd dt figcaption address caption body header footer aside ul ol dl"  # noqa: SIM905
    " details summary form hr figure".split()
)
_MAX_ROWS = 50_000


class _TextReader(HTMLParser):
    def __init__(self, writer: MarkdownWriter) -> None:
        super().__init__(convert_charrefs=True)
        self._writer = writer
        self._text: list[str] = []
        self._hidden = ""
        self._depth = 0
        self._title: list[str] | None = None
        self._heading = 0
        self._prefix = ""
        self._pre = False
        self._rows: list[list[str]] | None = None
        self._tables = 0
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag == "title" and not self._hidden:
            self._title = []
        elif self._hidden:
            self._depth += tag == self._hidden
        elif tag in _HIDDEN and tag != "head":
            self._flush()
            self._hidden, self._depth = tag, 1
        elif tag == "br":
            self._text.append("\n")
        elif re.fullmatch(r"h[1-6]", tag):
            self._flush()
            self._heading = int(tag[1])
        elif tag == "pre":
            self._flush()
            self._pre = True
        elif tag == "li":
            self._flush()
            self._prefix = "- "
        elif tag == "table":
            self._flush()
            self._tables += 1
            self._rows = self._rows if self._tables > 1 else []
        elif tag == "tr" and self._rows is not None and self._tables == 1:
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            if self._tables == 1:
                self._end_cell()
                self._in_cell = True
        elif tag in _BLOCKS:
            self._flush()

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._title is not None:
            self._writer.title = self._writer.title or " ".join("".join(self._title).split())
            self._title = None
        elif self._hidden:
            self._depth -= tag == self._hidden
            self._hidden = self._hidden if self._depth > 0 else ""
        elif tag in ("td", "th") and self._rows is not None and self._tables == 1:
            self._end_cell()
        elif tag == "table" and self._tables:
            self._tables -= 1
            if not self._tables and self._rows is not None:
                self._end_cell()
                rows, self._rows = self._rows, None
                self._writer.add_rows(rows)
        elif tag in _BLOCKS or tag in ("li", "pre") or re.fullmatch(r"h[1-6]", tag):
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._title is not None:
            self._title.append(data)
        elif not self._hidden:
            self._text.append(data if self._pre else re.sub(r"\s+", " ", data))

    def close(self) -> None:
        super().close()
        self._tables = 0
        self._end_cell()
        if self._rows:
            self._writer.add_rows(self._rows)
            self._rows = None
        self._flush()

    def _end_cell(self) -> None:
        """Add the open cell, whose end tag may be missing, to its row."""
        if self._rows is None:
            return
        if self._in_cell and self._rows and len(self._rows) <= _MAX_ROWS:
            self._rows[-1].append(" ".join("".join(self._text).split()))
        self._text = []
        self._in_cell = False

    def _flush(self) -> None:
        if self._rows is not None:
            self._text.append(" ")  # a block in a cell
            return
        text, self._text = "".join(self._text), []
        heading, self._heading = self._heading, 0
        is_code, self._pre = self._pre, False
        if not text.strip():
            return
        prefix, self._prefix = self._prefix, ""
        if heading:
            self._writer.add_heading(heading, text)
        elif is_code:
            self._writer.add_code(text)
        else:
            self._writer.add_paragraph(text, prefix)


def read_html(data: bytes, writer: MarkdownWriter) -> None:
    """Read the text of a page."""
    declared = _CHARSET.search(data[:4096])
    name = (declared[1] or declared[2]).decode("ascii") if declared else "utf-8"
    try:
        text = data.decode(name)
    except (LookupError, UnicodeDecodeError):
        decoded = decode_bytes(data)
        text = decoded.text if decoded else data.decode("utf-8", "replace")
    reader = _TextReader(writer)
    reader.feed(text)
    reader.close()


# HTML of which the links are kept.

_PLACEHOLDER = re.compile("\ue000(\\d{1,9})\ue001")


class _LinkedReader(_TextReader):
    """Also keeps links and pictures: the text has placeholders for them, which the writer does not escape."""

    def __init__(self, writer: MarkdownWriter, find_target: Callable[[str], str]) -> None:
        super().__init__(writer)
        self._find_target = find_target
        self._link: tuple[str, list[str], int] | None = None
        """The target of the open link, and the text that it is in from this part on."""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        values = dict(attrs)
        if self._hidden or self._pre:
            return
        if tag == "a" and (target := self._find_target(values.get("href") or "")):
            self._link = (target, self._text, len(self._text))
        elif tag == "img" and (target := self._find_target(values.get("src") or "")):
            label = values.get("alt") or values.get("data-linked-resource-default-alias") or ""
            self._text.append(self._keep(label, target, "!"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            target, text, start = self._link
            self._link = None
            label = "".join(text[start:]).strip() or unquote(target.rpartition("/")[2])
            if text is self._text:  # no block begins in the link
                text[start:] = [self._keep(label, target, "")]
        super().handle_endtag(tag)

    def _keep(self, label: str, target: str, mark: str) -> str:
        plain = escape(" ".join(label.split())).replace("[", "\\[").replace("]", "\\]")
        shown = f"<{target}>" if re.search(r"[\s()]", target) else target
        self.links.append(f"{mark}[{plain}]({shown})")
        return f"\ue000{len(self.links) - 1}\ue001"


def read_linked_html(text: str, find_target: Callable[[str], str]) -> str:
    """The Markdown of HTML; `find_target` returns the target for the URL of a link, empty if it is not a link."""
    writer = MarkdownWriter()
    reader = _LinkedReader(writer, find_target)
    reader.feed(re.sub("[\ue000\ue001]", "", text))
    reader.close()
    markdown = writer.to_markdown()
    while "\ue000" in markdown:  # a picture may be in a link
        markdown = _PLACEHOLDER.sub(lambda match: reader.links[int(match[1])], markdown)
    return markdown
