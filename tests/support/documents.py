"""Writes small PDF and Office files."""

import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def make_pdf(pages: Sequence[str], title: str = "", *, encrypted: bool = False) -> bytes:
    """A PDF with one text per page, line by line. An empty text makes a page without text."""
    count = len(pages)
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
    ]
    font = 3 + 2 * count
    for number, text in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {4 + 2 * number} 0 R"
            f" /Resources << /Font << /F1 {font} 0 R >> >> >>"
        )
        shown = " ".join(f"({_escape(line)}) Tj 0 -16 Td" for line in text.split("\n")) if text else ""
        content = f"BT /F1 12 Tf 72 770 Td {shown} ET" if shown else ""
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    objects.append(f"<< /Title ({_escape(title)}) >>")
    trailer = f"/Info {len(objects)} 0 R"
    if encrypted:
        key = "00" * 32
        objects.append(f"<< /Filter /Standard /V 1 /R 2 /O <{key}> /U <{key}> /P -4 >>")
        trailer += f" /Encrypt {len(objects)} 0 R /ID [<{key[:32]}> <{key[:32]}>]"
    out = BytesIO()
    out.write(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode())
    out.write(f"trailer << /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def make_picture(text: str = "", kind: str = "PNG", size: tuple[int, int] = (60, 30)) -> bytes:
    """A picture of a text in black on white, or a PDF with this picture. Without a text it is a gray area."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", size, "white" if text else "gray")
    ImageDraw.Draw(picture).text((12, 20), text, fill="black", font=ImageFont.load_default(28))
    out = BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def make_archive(members: Mapping[str, str | bytes]) -> bytes:
    """A zip archive with these members."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # without the time of now
    return out.getvalue()


def make_docx(paragraphs: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]] = (), title: str = "") -> bytes:
    """A Word file of paragraphs with the ids of their styles, and a table."""
    texts = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    cells = "".join(
        "<w:tr>" + "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )
    styles = "".join(
        f'<w:style w:styleId="{style}"><w:name w:val="{name}"/></w:style>'
        for style, name in (("Titel", "Title"), ("berschrift1", "heading 1"), ("berschrift2", "heading 2"))
    )
    return make_archive(
        {
            "word/document.xml": f'<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="{_WORD}"><w:body>{texts}'
            f"<w:tbl>{cells}</w:tbl></w:body></w:document>",
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
            "docProps/core.xml": f'<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></c>',
        }
    )


def make_pptx(slides: Sequence[tuple[str, str]]) -> bytes:
    """A PowerPoint file of slides with a title and a text."""
    members = {"ppt/presentation.xml": f'<p:presentation xmlns:p="{_SLIDE}"/>'}
    for number, (title, text) in enumerate(slides, 1):
        shape = (
            '<p:sp><p:nvSpPr><p:nvPr><p:ph type="{0}"/></p:nvPr></p:nvSpPr><p:txBody>'
            "<a:p><a:r><a:t>{1}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
        members[f"ppt/slides/slide{number}.xml"] = (
            f'<p:sld xmlns:p="{_SLIDE}" xmlns:a="{_DRAWING}">{shape.format("title", title)}'
            f"{shape.format('body', text)}</p:sld>"
        )
    return make_archive(members)


def make_xlsx(sheet: str, rows: Sequence[Sequence[str]]) -> bytes:
    """An Excel file of one sheet with shared strings."""
    strings = list(dict.fromkeys(cell for row in rows for cell in row))
    cells = "".join(
        "<row>" + "".join(f'<c t="s"><v>{strings.index(cell)}</v></c>' for cell in row) + "</row>" for row in rows
    )
    shared = "".join(f"<si><t>{text}</t></si>" for text in strings)
    return make_archive(
        {
            "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>'
            f'<sheet name="{sheet}" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="rId1" Target="worksheets/sheet1.xml"/>'
            "</Relationships>",
            "xl/sharedStrings.xml": f'<sst xmlns="{_SHEET}">{shared}</sst>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEET}"><sheetData>{cells}</sheetData></worksheet>',
        }
    )


def make_odt(heading: str, text: str) -> bytes:
    """An OpenDocument text with a heading and a paragraph."""
    name = "urn:oasis:names:tc:opendocument:xmlns"
    namespaces = f'xmlns:o="{name}:office:1.0" xmlns:text="{name}:text:1.0"'
    return make_archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<o:document-content {namespaces}><o:body><o:text>"
            f'<text:h text:outline-level="2">{heading}</text:h>'
            f"<text:p>{text}<text:s/>end</text:p></o:text></o:body></o:document-content>",
        }
    )


def make_epub(title: str, chapters: Sequence[str]) -> bytes:
    """A book of chapters in HTML."""
    items = "".join(f'<item id="c{number}" href="text/c{number}.xhtml"/>' for number in range(len(chapters)))
    order = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    page = "<!DOCTYPE html><html><head><title>x</title></head><body>{}</body></html>"
    return make_archive(
        {
            "META-INF/container.xml": '<container><rootfile full-path="OPS/book.opf"/></container>',
            "OPS/book.opf": f"<package><metadata><title>{title}</title></metadata><manifest>{items}</manifest>"
            f"<spine>{order}</spine></package>",
            **{f"OPS/text/c{number}.xhtml": page.format(text) for number, text in enumerate(chapters)},
        }
    )
