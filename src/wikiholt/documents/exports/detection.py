"""Finds out which program made an export."""

import bz2
import gzip
import lzma
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from wikiholt.documents.exports.archive import ExportArchive
from wikiholt.documents.exports.confluence import ConfluenceSpace, is_confluence_export
from wikiholt.documents.exports.items import ExportReader
from wikiholt.documents.exports.mediawiki import MediaWikiDump
from wikiholt.documents.exports.notion import NotionExport, is_notion_export
from wikiholt.documents.exports.obsidian import ObsidianVault
from wikiholt.errors import InvalidImport
from wikiholt.text.page_names import MARKDOWN_EXTENSIONS, get_extension

_HEAD_BYTES = 4096
_COMPRESSED = (b"BZh", b"\x1f\x8b", b"\xfd7zXZ")
_FORMATS = "a MediaWiki dump, a zip of Markdown (from Obsidian or Notion), a Confluence space as HTML, or lines of JSON"


def open_export(path: Path, namespaces: Sequence[str] = ()) -> ExportReader | None:
    """The reader for the file; None if it is not an export but may be lines of JSON.

    `namespaces` are read from a MediaWiki dump besides the usual ones. Raises InvalidImport, and OSError.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(b"PK"):
        return _open_archive(ExportArchive(path), path.name)
    if head.startswith(b"7z\xbc\xaf"):
        raise InvalidImport(f"{path.name} is a 7z archive", hint="unpack it first, and import the .xml file")
    is_compressed = head.startswith(_COMPRESSED)
    if is_compressed:
        try:
            with open_stream(path) as stream:
                head = stream.read(_HEAD_BYTES)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise InvalidImport(f"{path.name} is damaged ({error})", hint="download it again") from error
    text = _decode_head(head).lstrip("\ufeff \r\n\t")
    if text.startswith("<"):
        if not re.search(r"<mediawiki\b", text):
            raise InvalidImport(f"{path.name} is XML or HTML, but no MediaWiki dump", hint=f"import {_FORMATS}")
        return MediaWikiDump(path, open_stream, namespaces)
    if is_compressed or "\0" in text:
        raise InvalidImport(f"the format of {path.name} is unknown", hint=f"import {_FORMATS}")
    return None


def _decode_head(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "replace")
    encoding = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}.get(head[:2], "utf-8")
    return head.decode(encoding, "replace")


def open_stream(path: Path) -> IO[bytes]:
    """The content of a file, unpacked if it is compressed."""
    with path.open("rb") as stream:
        head = stream.read(8)
    if head.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return lzma.open(path, "rb") if head.startswith(b"\xfd7zXZ") else path.open("rb")


def _open_archive(archive: ExportArchive, name: str) -> ExportReader:
    extensions = {get_extension(member) for member in archive.members}
    if extensions == {".zip"}:  # Notion exports large workspaces as an archive of archives
        return NotionExport([archive.open_nested(member) for member in archive.members.values()])
    if is_notion_export(tuple(archive.members)):
        return NotionExport([archive])
    if extensions & set(MARKDOWN_EXTENSIONS):
        return ObsidianVault(archive)
    if is_confluence_export(archive):
        return ConfluenceSpace(archive)
    if "entities.xml" in archive.members or ".html" in extensions:
        raise InvalidImport(
            f"{name} is an export in another format",
            hint="export a space of Confluence as HTML, and Notion as Markdown & CSV",
        )
    raise InvalidImport(f"{name} contains no pages that Wikiholt can import", hint=f"import {_FORMATS}")
