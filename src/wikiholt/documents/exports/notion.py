"""Reads an export of Notion as Markdown: the ids in the names are removed, and links follow their new names."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from wikiholt.documents.exports.archive import ExportArchive, Member, UnreadableMember
from wikiholt.documents.exports.items import (
    ExportedFile,
    ExportedPage,
    ExportItem,
    ExportProblem,
    FileNames,
    add_frontmatter,
    format_table,
    make_link_target,
    protect_parts,
)
from wikiholt.documents.markdown_writer import escape
from wikiholt.text.charset import decode_bytes
from wikiholt.text.page_names import get_extension

_ID = re.compile(r"[ _-]([0-9a-f]{32})(?:_all)?(?=\.[A-Za-z0-9]{1,8}\Z|\Z)")
_EXPORT_FOLDER = re.compile(r"\AExport-[0-9a-f-]{36}/|\APrivate & Shared/")
_CODE = re.compile(r"```[^`]{0,100000}```|`[^`\n]{1,1000}`")
_LINK = re.compile(r"(?<=\]\()([^()\s<>]{1,2000}(?:\([^()\s<>]{0,500}\)[^()\s<>]{0,500}){0,3})(?=\))")
_ONLINE = re.compile(r"https://(?:www\.)?notion\.so/(?:[^\s?#/]{1,200}/)?[^\s?#/]{0,500}?([0-9a-f]{32})(?:\?|\Z)")
_TITLE = re.compile(r"\A\s{0,20}# (.{1,500})\n")
_PROPERTY = re.compile(r"([^\s:\[\]#*`>|-][^:\n]{0,60}): (.{0,2000})\Z")
_RELATION = re.compile(r" \((\S{1,1500}?[0-9a-f]{32}\.(?:md|csv))\)")
"""What follows the name of a page in a column that relates rows."""
_UPDATED = ("last edited time", "last edited", "updated", "created time", "date created", "created", "date")
_DATE_FORMATS = ("%B %d, %Y %I:%M %p", "%B %d, %Y %H:%M", "%B %d, %Y", "%Y/%m/%d %H:%M", "%Y/%m/%d")
_MAX_ROWS = 20_000


class NotionExport:
    """Pages, their files, and databases as tables that link to the pages of their rows."""

    format = "Notion export"

    def __init__(self, archives: Sequence[ExportArchive]) -> None:
        self.settings: Mapping[str, str] = {}
        self._problems = [problem for archive in archives for problem in archive.problems]
        self._members: dict[str, tuple[ExportArchive, Member]] = {}
        for archive in archives:  # the parts of a large export
            for name, member in archive.members.items():
                path = _EXPORT_FOLDER.sub("", _EXPORT_FOLDER.sub("", name))
                if path.rpartition("/")[2] != "index.html":  # a list of the pages
                    self._members.setdefault(path, (archive, member))
        self._files = self._assign_files()
        self._databases = {
            file.removesuffix(".md") for path, file in self._files.items() if get_extension(path) == ".csv"
        }
        """The folders of the pages of rows."""
        self._paths_by_id = {match[1]: path for path in self._files if (match := _ID.search(path.rpartition("/")[2]))}

    def get_notes(self) -> Sequence[str]:
        return ()

    def iter_items(self) -> Iterator[ExportItem]:
        yield from self._problems
        for path, file in self._files.items():
            archive, member = self._members[path]
            try:
                data = archive.read(member)
            except UnreadableMember as error:
                yield ExportProblem(member.name, str(error))
                continue
            if not file.endswith(".md"):
                yield ExportedFile(file, data)
            elif (decoded := decode_bytes(data)) is None:
                yield ExportProblem(member.name, "it is not text")
            elif get_extension(path) == ".csv":
                yield ExportedPage(file, self._convert_database(path, decoded.text))
            else:
                yield ExportedPage(file, self._convert_page(path, decoded.text.replace("\r\n", "\n")))

    def _assign_files(self) -> dict[str, str]:
        """The file of each member in the wiki. Of a database, the table with all columns and rows is taken."""
        names, files = FileNames(), {}
        for path in sorted(self._members):  # by id, so that pages with one title keep their numbers
            extension = get_extension(path)
            stem = path.removesuffix(path[len(path) - len(extension) :]) if extension else path
            if extension == ".csv" and f"{stem}_all{extension}" in self._members:
                continue
            parts = [_ID.sub("", part) for part in stem.split("/")]
            if extension == ".csv":
                parts[-1] = parts[-1].removesuffix("_all")
            is_page = extension in (".md", ".csv")
            files[path] = names.assign(parts, ".md" if is_page else extension)
        return files

    def _find_file(self, target: str, path: str) -> str:
        """The file that a link on this page leads to; empty if it is not in the export."""
        if online := _ONLINE.match(target):
            return self._files.get(self._paths_by_id.get(online[1], ""), "")
        if re.match(r"[a-z]+:", target):
            return ""
        found = _EXPORT_FOLDER.sub("", normpath(join(dirname(path), target)))
        if found in self._files:
            return self._files[found]
        # A database is written as a table, but some links to it name a page.
        named = _ID.search(found.rpartition("/")[2])
        return self._files.get(self._paths_by_id.get(named[1], ""), "") if named else ""

    def _convert_page(self, path: str, text: str) -> str:
        title = _TITLE.match(text)
        body = text[title.end() :] if title else text
        properties, body = _split_properties(body) if dirname(self._files[path]) in self._databases else ({}, body)

        def replace_link(match: re.Match[str]) -> str:
            target, hash_sign, heading = unquote(match[1]).partition("#")
            file = self._find_file(target, path)
            return make_link_target(file, self._files[path]) + hash_sign + heading if file else match[1]

        def rewrite(part: str) -> str:
            return _LINK.sub(replace_link, part)

        fields: dict[str, str | Sequence[str]] = {
            "title": title[1].strip() if title else "",
            "updated": _find_date(properties),
            **{
                key: _RELATION.sub("", value)
                for key, value in properties.items()
                if key.lower() not in ("title", "updated")
            },
        }
        return add_frontmatter(protect_parts(body, _CODE, rewrite), fields)

    def _convert_cell(self, cell: str, path: str) -> str:
        """The cell as Markdown, with links to the pages that it relates to."""
        parts: list[str] = []
        end = 0
        for match in _RELATION.finditer(cell):
            name, end = escape(cell[end : match.start()].removeprefix(", ")), match.end()
            file = self._find_file(unquote(match[1]), path)
            parts.append(f"[{name}]({make_link_target(file, self._files[path])})" if file else name)
        return ", ".join([*parts, *filter(None, [escape(cell[end:].removeprefix(", "))])])

    def _convert_database(self, path: str, text: str) -> str:
        file, title = self._files[path], _strip_name(path)
        folder = file.removesuffix(".md")
        rows_by_title = {_strip_name(member): name for member, name in self._files.items() if dirname(name) == folder}
        rows: list[list[str]] = []
        try:
            for row in csv.reader(StringIO(text.removeprefix("\ufeff"), newline="")):
                cells = [self._convert_cell(cell, path) for cell in row]
                if row and row[0] in rows_by_title:
                    cells[0] = f"[{cells[0]}]({make_link_target(rows_by_title[row[0]], file)})"
                rows.append(cells)
                if len(rows) > _MAX_ROWS:
                    break
        except csv.Error as error:
            rows.append([f"The next row is damaged: {error}"])
        return add_frontmatter("\n".join(format_table(rows)), {"title": title})


def _strip_name(path: str) -> str:
    """The name of a page or database without its folder, id and extension."""
    name = _ID.sub("", path.rpartition("/")[2])
    return name.removesuffix(get_extension(name)) if get_extension(name) else name


def _split_properties(text: str) -> tuple[dict[str, str], str]:
    """The columns at the beginning of the page of a row, and the text after them."""
    head, _, rest = text.lstrip("\n").partition("\n\n")
    matches = [_PROPERTY.match(line) for line in head.split("\n") if line.strip()]
    if not matches or not all(matches):
        return {}, text
    return {match[1].strip(): match[2].strip() for match in matches if match}, rest


def _find_date(properties: Mapping[str, str]) -> str:
    values = {name.lower(): value for name, value in properties.items()}
    for name in _UPDATED:
        for date_format in _DATE_FORMATS if name in values else ():
            try:
                return datetime.strptime(values[name], date_format).replace(tzinfo=UTC).isoformat()
            except ValueError:
                continue
    return ""


def is_notion_export(names: Sequence[str]) -> bool:
    """Whether these are the files of an export: most pages have an id in their names."""
    pages = [name for name in names if get_extension(name) in (".md", ".csv")]
    return bool(pages) and sum(bool(_ID.search(name)) for name in pages) * 2 > len(pages)
