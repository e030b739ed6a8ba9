"""Reads an archive of an Obsidian vault, or of any folder of Markdown: notes stay as they are, with their dates."""

import re
from collections.abc import Iterator, Mapping, Sequence

from wikiholt.documents.exports.archive import ExportArchive, UnreadableMember
from wikiholt.documents.exports.items import ExportedFile, ExportedPage, ExportItem, ExportProblem
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.page_names import MARKDOWN_EXTENSIONS, get_extension

_OPENING = re.compile(r"\A---[ \t]*\n")


class ObsidianVault:
    """Notes and attachments of a vault. Hidden folders, such as `.obsidian` and `.trash`, are left out."""

    def __init__(self, archive: ExportArchive) -> None:
        self._archive = archive
        self._root = archive.find_root()
        is_vault = any(".obsidian" in name.split("/") for name in archive.members)
        self.format = "Obsidian vault" if is_vault else "archive of Markdown"
        self.settings: Mapping[str, str] = {"dialect": "obsidian"} if is_vault else {}

    def get_notes(self) -> Sequence[str]:
        return ()

    def iter_items(self) -> Iterator[ExportItem]:
        yield from self._archive.problems
        for member in self._archive.members.values():
            file = member.name.removeprefix(self._root)
            if any(part.startswith(".") for part in file.split("/")):
                continue
            try:
                data = self._archive.read(member)
            except UnreadableMember as error:
                yield ExportProblem(member.name, str(error))
                continue
            if get_extension(file) not in (*MARKDOWN_EXTENSIONS, ".txt"):
                yield ExportedFile(file, data)
            elif (decoded := decode_bytes(data)) is None:
                yield ExportProblem(member.name, "it is not text")
            else:
                yield ExportedPage(file, _add_date(decoded.text, member.date))


def _add_date(text: str, date: str) -> str:
    """The note with the date of its file as `updated`, unless it has a date or its frontmatter is not YAML."""
    text = text.replace("\r\n", "\n")
    front = split_frontmatter(text)
    if not date or front.metadata.last_updated is not None or text.startswith("+++"):
        return text
    if front.fields:
        return _OPENING.sub(lambda match: f"{match[0]}updated: {date}\n", text, count=1)
    return f"---\nupdated: {date}\n---\n{text}" if front.body == text else text
