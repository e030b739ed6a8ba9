"""Reads the text of documents. It runs only in the process that `wikiholt.documents.worker` limits."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from wikiholt.documents.markdown_writer import MarkdownWriter
from wikiholt.text.page_names import CODE_LANGUAGES, PICTURE_EXTENSIONS

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

MAX_PAGES = 5_000
"""Pages of a PDF that are read."""
_LINE_END_HYPHEN = re.compile(r"(?<=[^\W\d_])(?:-|\u00ad|\ufffe)\n(?=[^\W\d_A-Z])")
_FILE_NAME = re.compile(r"(?i)\.(?:docx?|odt|pptx?|tex|dvi|indd|qxd|rtf|pages|pdf)\s*\Z|\Auntitled|^Microsoft Word")


class DocumentFault(Exception):
    """Why a document has no text: a code and a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_document(extension: str, data: bytes, *, reads_pictures: bool = False) -> tuple[str, list[str]]:
    """The Markdown of a document and warnings. Raises DocumentFault, or anything for a damaged file.

    With `reads_pictures`, also the text of the pages of a PDF that are pictures.
    """
    writer = MarkdownWriter()
    if extension in CODE_LANGUAGES:
        from wikiholt.documents.code_reader import read_code  # noqa: PLC0415 - it needs an extra

        read_code(extension, data, writer)
    elif extension in PICTURE_EXTENSIONS:
        from wikiholt.documents.picture_reader import read_picture  # noqa: PLC0415 - it needs an extra

        read_picture(data, writer)
    elif extension == ".pdf":
        _read_pdf(data, writer, reads_pictures=reads_pictures)
    else:
        _READERS[extension](data, writer)
    if not writer.has_text and extension not in (*CODE_LANGUAGES, *PICTURE_EXTENSIONS):
        raise DocumentFault("no-text", "it contains no text")
    return writer.to_markdown(), writer.warnings


def _read_pdf(data: bytes, writer: MarkdownWriter, *, reads_pictures: bool) -> None:
    import pypdfium2  # noqa: PLC0415 - only for its format
    from pypdfium2 import PdfiumError  # noqa: PLC0415

    try:
        document = pypdfium2.PdfDocument(data)
    except PdfiumError as error:
        if "password" in str(error).lower():
            raise DocumentFault("encrypted", "it is encrypted with a password; save it without one") from error
        raise DocumentFault("damaged", f"this PDF cannot be opened: {error}") from error
    title = str(document.get_metadata_dict().get("Title", "")).strip()
    writer.title = "" if _FILE_NAME.search(title) else title
    count = min(len(document), MAX_PAGES)
    texts = _read_pages(document, count)
    failed = count - len(texts)
    empty = [index for index, text in texts.items() if not text.strip()]
    if reads_pictures and empty:
        empty = _recognize_pages(document, texts, empty, writer)
    for index, text in texts.items():
        if text.strip() and not writer.is_full:
            writer.add_heading(2, f"Page {index + 1}")
            for paragraph in re.split(r"\n\s*\n", text):
                writer.add_paragraph(paragraph)
    if not writer.has_text:
        if failed == count and count:
            raise DocumentFault("damaged", f"none of its {count} pages can be read")
        more = "" if reads_pictures else "; their text is recognized if the setting files names pictures"
        raise DocumentFault("scanned", f"none of its {count} pages has text: they are pictures, such as scans{more}")
    if empty:
        writer.warnings.append(f"{len(empty)} of {count} pages have no text: they are empty or pictures, such as scans")
    if failed:
        writer.warnings.append(f"{failed} of {count} pages cannot be read")
    if len(document) > count:
        writer.warnings.append(f"only the first {MAX_PAGES:,} of {len(document):,} pages are indexed")


def _read_pages(document: "PdfDocument", count: int) -> dict[int, str]:
    """The texts of the pages that can be read, by their numbers from 0."""
    from pypdfium2 import PdfiumError  # noqa: PLC0415

    texts = dict[int, str]()
    for index in range(count):
        with suppress(PdfiumError):
            text = document[index].get_textpage().get_text_bounded().replace("\r\n", "\n").replace("\r", "\n")
            texts[index] = _LINE_END_HYPHEN.sub("", text)
    return texts


def _recognize_pages(
    document: "PdfDocument", texts: dict[int, str], empty: list[int], writer: MarkdownWriter
) -> list[int]:
    """Add the text of pages that are pictures. Returns those that have none."""
    from wikiholt.documents.picture_reader import read_scans  # noqa: PLC0415 - it needs an extra

    found = dict(read_scans(document, empty))
    texts |= {index: _LINE_END_HYPHEN.sub("", text) for index, text in found.items()}
    if len(found) < len(empty):
        left = f"{len(empty) - len(found)} of {len(texts)} pages are not read"
        writer.warnings.append(f"{left}: recognizing the text of pictures takes too long")
    return [index for index, text in found.items() if not text.strip()]


def _read_html(data: bytes, writer: MarkdownWriter) -> None:
    from wikiholt.documents.html_reader import read_html  # noqa: PLC0415

    read_html(data, writer)


def _read_office(data: bytes, writer: MarkdownWriter) -> None:
    from wikiholt.documents.office_readers import read_office  # noqa: PLC0415

    read_office(data, writer)


_READERS: Mapping[str, Callable[[bytes, MarkdownWriter], None]] = {
    ".html": _read_html,
    ".htm": _read_html,
    ".docx": _read_office,
    ".pptx": _read_office,
    ".xlsx": _read_office,
    ".odt": _read_office,
    ".odp": _read_office,
    ".ods": _read_office,
    ".epub": _read_office,
}
