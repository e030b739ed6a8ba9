"""Reads the text of Office files and books, which are archives of XML: by Microsoft, OpenDocument, and EPUB."""

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from posixpath import dirname, join, normpath
from xml.etree.ElementTree import Element, ParseError, XMLParser

from wikiholt.documents.formats import DocumentFault
from wikiholt.documents.html_reader import read_html
from wikiholt.documents.markdown_writer import MarkdownWriter

_MAX_MEMBER_BYTES = 64 * 1024**2
_MAX_TOTAL_BYTES = 256 * 1024**2
"""Unpacked bytes; an archive of a few kilobytes can expand to gigabytes."""
_MAX_ROWS = 20_000
_OLE_START = b"\xd0\xcf\x11\xe0"
_NUMBER = re.compile(r"(\d+)\.xml\Z")
_HEADING_NAME = re.compile(r"heading (\d)", re.IGNORECASE)


class _Archive:
    """The members of a document, within limits."""

    def __init__(self, data: bytes) -> None:
        if data.startswith(_OLE_START):
            raise DocumentFault("encrypted", "it is encrypted with a password, or has the format of Office before 2007")
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except zipfile.BadZipFile as error:
            raise DocumentFault("damaged", f"it is not an archive of this format: {error}") from error
        self.names = frozenset(self._zip.namelist())
        self._remaining = _MAX_TOTAL_BYTES

    def read(self, name: str) -> bytes:
        """The member, or nothing if there is none."""
        if name not in self.names:
            return b""
        limit = min(_MAX_MEMBER_BYTES, self._remaining)
        try:
            with self._zip.open(name) as member:
                data = member.read(limit + 1)
        except RuntimeError as error:
            raise DocumentFault("encrypted", "it is encrypted with a password; save it without one") from error
        if len(data) > limit:
            raise DocumentFault("too-costly", f"it expands to more than {_MAX_TOTAL_BYTES // 1024**2} MB")
        self._remaining -= len(data)
        return data

    def parse(self, name: str) -> Element:
        """The member as XML without a document type, which could define entities that expand without end."""
        data = self.read(name)
        if not data:
            return Element("none")
        text = data.decode("utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode("utf-8", "replace")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise DocumentFault("damaged", f"{name} has a document type definition, which is not allowed")
        parser = XMLParser()  # noqa: S314 - without a document type there is nothing to expand
        try:
            parser.feed(re.sub(r"\A\ufeff?<\?xml.*?\?>", "", text, count=1, flags=re.DOTALL))
            return parser.close()
        except ParseError as error:
            raise DocumentFault("damaged", f"{name} is not valid XML: {error}") from error

    def list_numbered(self, start: str) -> list[str]:
        """The members whose names are this and a number, by number."""
        found = [
            (int(match[1]), name) for name in self.names if name.startswith(start) and (match := _NUMBER.search(name))
        ]
        return [name for _, name in sorted(found)]


def read_office(data: bytes, writer: MarkdownWriter) -> None:
    """Read a document by what its archive contains."""
    archive = _Archive(data)
    writer.title = _find_text(archive.parse("docProps/core.xml"), "title") or _find_text(
        archive.parse("meta.xml"), "title"
    )
    if "word/document.xml" in archive.names:
        _read_word(archive, writer)
    elif "ppt/presentation.xml" in archive.names:
        _read_slides(archive, writer)
    elif "xl/workbook.xml" in archive.names:
        _read_workbook(archive, writer)
    elif "META-INF/container.xml" in archive.names:
        _read_book(archive, writer)
    elif "content.xml" in archive.names:
        if any(get_name(element) == "encryption-data" for element in archive.parse("META-INF/manifest.xml").iter()):
            raise DocumentFault("encrypted", "it is encrypted with a password; save it without one")
        _read_open_document(archive.parse("content.xml"), writer)
    else:
        raise DocumentFault("damaged", "the archive contains no document of a known format")


def get_name(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _get_attribute(element: Element | None, name: str) -> str:
    attributes = element.attrib.items() if element is not None else ()
    return next((value for key, value in attributes if key.rpartition("}")[2] == name), "")


def _find(element: Element, name: str) -> Element | None:
    return next((found for found in element.iter() if get_name(found) == name), None)


def _find_text(element: Element, name: str) -> str:
    found = _find(element, name)
    return " ".join((found.text or "").split()) if found is not None else ""


def _iter_blocks(element: Element, names: frozenset[str]) -> Iterator[Element]:
    """The outermost elements with these names."""
    for child in element:
        if get_name(child) in names:
            yield child
        else:
            yield from _iter_blocks(child, names)


def _get_runs(element: Element, text: str, breaks: frozenset[str]) -> str:
    """The text of runs; a tab is a space."""
    parts = []
    for found in element.iter():
        name = get_name(found)
        if name == text:
            parts.append(found.text or "")
        elif name in breaks:
            parts.append("\n")
        elif name == "tab":
            parts.append(" ")
    return "".join(parts)


# Word, PowerPoint and Excel.

_BREAKS = frozenset({"br", "cr"})


def _read_word(archive: _Archive, writer: MarkdownWriter) -> None:
    levels: dict[str, int] = {}
    title_id = None
    for style in archive.parse("word/styles.xml"):
        name = _get_attribute(_find(style, "name"), "val")
        if match := _HEADING_NAME.match(name):
            levels[_get_attribute(style, "styleId")] = int(match[1])
        elif name.lower() == "title":
            title_id = _get_attribute(style, "styleId")
            levels[title_id] = 1
    body = archive.parse("word/document.xml")
    for block in _iter_blocks(body, frozenset({"p", "tbl"})):
        if get_name(block) == "tbl":
            rows = [row for row in block.iter() if get_name(row) == "tr"][:_MAX_ROWS]
            cells = [[_get_word_text(cell) for cell in row if get_name(cell) == "tc"] for row in rows]
            writer.add_rows(cells)
            continue
        text = _get_runs(block, "t", _BREAKS)
        style_id = _get_attribute(_find(block, "pStyle"), "val")
        if style_id and style_id == title_id and not writer.title:
            writer.title = " ".join(text.split())
            continue
        outline = _get_attribute(_find(block, "outlineLvl"), "val")
        level = levels.get(style_id) or (int(outline) + 1 if outline.isdecimal() and int(outline) < 6 else 0)
        if level:
            writer.add_heading(level, text)
        else:
            writer.add_paragraph(text, "- " if _find(block, "numPr") is not None else "")
    for name in ("word/footnotes.xml", "word/endnotes.xml"):
        for note in _iter_blocks(archive.parse(name), frozenset({"footnote", "endnote"})):
            writer.add_paragraph(_get_word_text(note))


def _get_word_text(element: Element) -> str:
    return " ".join(_get_runs(part, "t", _BREAKS) for part in element.iter() if get_name(part) == "p")


def _read_slides(archive: _Archive, writer: MarkdownWriter) -> None:
    for number, name in enumerate(archive.list_numbered("ppt/slides/slide"), 1):
        slide = archive.parse(name)
        title, texts = "", []
        for shape in _iter_blocks(slide, frozenset({"sp", "graphicFrame"})):
            if get_name(shape) == "graphicFrame":
                rows = [row for row in shape.iter() if get_name(row) == "tr"]
                texts += [" | ".join(_get_runs(cell, "t", _BREAKS) for cell in row) for row in rows]
                continue
            paragraphs = [_get_runs(part, "t", _BREAKS) for part in shape.iter() if get_name(part) == "p"]
            if _get_attribute(_find(shape, "ph"), "type") in ("title", "ctrTitle") and not title:
                title = " ".join(paragraphs)
            else:
                texts += paragraphs
        notes = _find_related(archive, name, "notesSlide")
        texts += [
            _get_runs(part, "t", _BREAKS)
            for note in notes
            for part in archive.parse(note).iter()
            if get_name(part) == "p"
        ]
        if title.strip() or any(text.strip() for text in texts):
            writer.add_heading(2, f"Slide {number}: {title}" if title.strip() else f"Slide {number}")
            for text in texts:
                writer.add_paragraph(text)


def _find_related(archive: _Archive, name: str, kind: str) -> list[str]:
    """The members of a kind that a member refers to."""
    folder, _, last = name.rpartition("/")
    relations = archive.parse(f"{folder}/_rels/{last}.rels")
    return [
        normpath(join(folder, _get_attribute(relation, "Target")))
        for relation in relations
        if _get_attribute(relation, "Type").endswith(f"/{kind}")
    ]


def _read_workbook(archive: _Archive, writer: MarkdownWriter) -> None:
    strings = [
        "".join(part.text or "" for part in item.iter() if get_name(part) == "t")
        for item in archive.parse("xl/sharedStrings.xml")
    ]
    relations = {
        _get_attribute(relation, "Id"): _get_attribute(relation, "Target")
        for relation in archive.parse("xl/_rels/workbook.xml.rels")
    }
    for sheet in archive.parse("xl/workbook.xml").iter():
        if get_name(sheet) != "sheet":
            continue
        target = relations.get(_get_attribute(sheet, "id"), "")
        member = target.lstrip("/") if target.startswith("/") else normpath(join("xl", target))
        writer.add_heading(2, _get_attribute(sheet, "name"))
        rows = [row for row in archive.parse(member).iter() if get_name(row) == "row"]
        if len(rows) > _MAX_ROWS:
            writer.warnings.append(f"only the first {_MAX_ROWS:,} rows of a sheet are indexed")
        writer.add_rows([[_get_cell_text(cell, strings) for cell in row] for row in rows[:_MAX_ROWS]])


def _get_cell_text(cell: Element, strings: list[str]) -> str:
    kind, value = _get_attribute(cell, "t"), _find(cell, "v")
    text = (value.text or "") if value is not None else ""
    if kind == "s":
        return strings[int(text)] if text.isdecimal() and int(text) < len(strings) else ""
    return _get_runs(cell, "t", _BREAKS) if kind == "inlineStr" else text


# OpenDocument and EPUB.


def _read_open_document(content: Element, writer: MarkdownWriter) -> None:
    for block in _iter_blocks(content, frozenset({"h", "p", "list", "table", "page"})):
        _read_open_block(block, writer)


def _read_open_block(block: Element, writer: MarkdownWriter) -> None:
    name = get_name(block)
    if name == "h":
        level = _get_attribute(block, "outline-level")
        writer.add_heading(int(level) if level.isdecimal() else 1, _get_open_text(block))
    elif name == "p":
        writer.add_paragraph(_get_open_text(block))
    elif name == "list":
        for item in block.iter():
            if get_name(item) in ("p", "h"):
                writer.add_paragraph(_get_open_text(item), "- ")
    elif name == "page":  # a slide
        writer.add_heading(2, _get_attribute(block, "name"))
        _read_open_document(block, writer)
    else:
        if title := _get_attribute(block, "name"):
            writer.add_heading(2, title)
        rows = [row for row in block.iter() if get_name(row) == "table-row"][:_MAX_ROWS]
        cells = frozenset({"table-cell"})
        writer.add_rows([[_get_open_text(cell) for cell in _iter_blocks(row, cells)] for row in rows])


def _get_open_text(element: Element) -> str:
    parts = [element.text or ""]
    for child in element:
        name = get_name(child)
        if name in ("s", "tab"):
            parts.append(" ")
        elif name == "line-break":
            parts.append("\n")
        elif name not in ("annotation", "tracked-changes"):
            parts.append(_get_open_text(child) + (" " if name == "p" else ""))
        parts.append(child.tail or "")
    return "".join(parts)


def _read_book(archive: _Archive, writer: MarkdownWriter) -> None:
    package = _get_attribute(_find(archive.parse("META-INF/container.xml"), "rootfile"), "full-path")
    if "META-INF/encryption.xml" in archive.names and "META-INF/rights.xml" in archive.names:
        raise DocumentFault("encrypted", "it has digital rights management")
    book = archive.parse(package)
    if not package:
        raise DocumentFault("damaged", "the book names no package")
    title = _find_text(book, "title")
    items = {
        _get_attribute(item, "id"): _get_attribute(item, "href") for item in book.iter() if get_name(item) == "item"
    }
    writer.title = title or "book"  # chapters have titles of their own
    for reference in book.iter():
        if get_name(reference) == "itemref" and (href := items.get(_get_attribute(reference, "idref"))):
            read_html(archive.read(normpath(join(dirname(package), href))), writer)
    writer.title = title
