"""Reads a space that Confluence exported as HTML: pages in the folders of their parents, with their attachments."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
    make_link_target,
)
from wikiholt.documents.html_reader import read_linked_html
from wikiholt.text.page_names import HTML_EXTENSIONS, get_extension

_MAX_PAGE_CHARS = 8_000_000
_PAGE_ID = re.compile(r"(?:\A|[_/])(\d{1,20})\.html\Z")
_ONLINE = re.compile(
    r"https?://[^/\s]{1,200}/(?:\S{0,200}/)?pages/(?:viewpage\.action\?pageId=)?(\d{1,20})(?:[/?#&]|\Z)"
)
_TITLE = re.compile(r"""<span id=["']title-text["']>([^<]{1,1000})</span>|<title>([^<]{1,1000})</title>""")
_BREADCRUMBS = re.compile(r"""<ol id=["']breadcrumbs["']>""")
_CRUMB = re.compile(r"""<a href=["']([^"'<>]{1,1000})["']>([^<]{0,1000})</a>""")
_METADATA = re.compile(r"""<div class=["']page-metadata["']>""")
_PERSON = re.compile(r"""<span class=["'](?:author|editor)["']>([^<]{1,300})</span>""")
_DATE = re.compile(r"\b([A-Z][a-z]{2} \d{1,2}, \d{4}|\d{4}-\d{2}-\d{2})\b")
_CONTENT = re.compile(r"""<div id=["']main-content["'][^<>]{0,500}>""")
_CONTENT_END = re.compile(r"""<div class=["']pageSection group["']>|<div id=["']footer["']""")
_ATTACHMENT = re.compile(r"""<a href=["'](attachments/[^"'<>?]{1,1000})["'][^<>]{0,500}>([^<]{1,500})</a>""")
_TAG = re.compile(r"<[^<>]{0,500}>")
_MAX_PART_CHARS = 20_000
_HEADING = re.compile(r"""<h[1-6] id=["']([^"'<>]{1,500})["'][^<>]{0,500}>""")


@dataclass(slots=True)
class _SpacePage:
    title: str
    parents: Sequence[str]
    """The files of the pages above it in the archive, from the root."""
    fields: Mapping[str, str]
    attachments: Mapping[str, str]
    """Their names, by file in the archive."""
    anchors: Mapping[str, str] = field(default_factory=dict)
    """The text of each heading, by its id."""
    file: str = ""


class ConfluenceSpace:
    """The pages of a space. Comments are left out."""

    format = "Confluence space"

    def __init__(self, archive: ExportArchive) -> None:
        self.settings: Mapping[str, str] = {}
        self._archive = archive
        self._pages: dict[str, _SpacePage] = {}
        self._problems = list(archive.problems)
        self._files: dict[str, str] = {}

    def get_notes(self) -> Sequence[str]:
        return ()

    def iter_items(self) -> Iterator[ExportItem]:
        self._read_pages()
        yield from self._problems
        for name, page in self._pages.items():
            try:
                yield ExportedPage(page.file, self._convert(name, page, self._read_text(self._archive.members[name])))
            except UnreadableMember as error:
                yield ExportProblem(name, str(error))
        for name, file in self._files.items():
            try:
                yield ExportedFile(file, self._archive.read(self._archive.members[name]))
            except UnreadableMember as error:
                yield ExportProblem(name, str(error))

    def _read_pages(self) -> None:
        """Read what links need: titles, parents, headings and the names of attachments."""
        for name, member in self._archive.members.items():
            if get_extension(name) not in HTML_EXTENSIONS or name.rpartition("/")[2] == "index.html":
                continue
            try:
                self._pages[name] = _parse_page(name, self._read_text(member))
            except UnreadableMember as error:
                self._problems.append(ExportProblem(name, str(error)))
        self._ids = {match[1]: name for name in self._pages if (match := _PAGE_ID.search(name))}
        names = FileNames()
        for page in self._pages.values():
            parents = [self._pages[parent].title for parent in page.parents if parent in self._pages]
            page.file = names.assign([*parents, page.title])
        listed = {file: (page, name) for page in self._pages.values() for file, name in page.attachments.items()}
        for name in self._archive.members:
            match = re.search(r"(?:\A|/)attachments/(\d{1,20})/[^/]+\Z", name)
            owner = self._pages.get(self._ids.get(match[1], "")) if match else None
            page_and_name = listed.get(name) or ((owner, name.rpartition("/")[2]) if owner else None)
            if page_and_name is not None and (match or name in listed):
                page, written = page_and_name
                extension = get_extension(written)
                stem = written[: len(written) - len(extension)]
                folder = page.file.removesuffix(".md").split("/")
                # A Markdown file cannot be attached: it would be a page.
                self._files[name] = names.assign(
                    [*folder, stem], f"{extension}.txt" if extension in (".md", ".mdx", ".markdown") else extension
                )

    def _read_text(self, member: Member) -> str:
        text = self._archive.read(member).decode("utf-8", "replace")
        if len(text) > _MAX_PAGE_CHARS:
            raise UnreadableMember(f"it has more than {_MAX_PAGE_CHARS:,} characters")
        return text

    def _convert(self, name: str, page: _SpacePage, text: str) -> str:
        start = _CONTENT.search(text)
        end = _CONTENT_END.search(text, start.end()) if start else None
        content = text[start.end() : end.start() if end else len(text)] if start else text

        def find_target(url: str) -> str:
            return self._find_target(url, name, page)

        return add_frontmatter(read_linked_html(content, find_target), {"title": page.title, **page.fields})

    def _find_target(self, url: str, name: str, page: _SpacePage) -> str:
        """The target of the Markdown link for a URL on this page; empty for a file that is not in the export."""
        if online := _ONLINE.match(url):
            found, anchor = self._ids.get(online[1], ""), ""
            return make_link_target(self._pages[found].file, page.file) if found else url
        if re.match(r"(?:https?|ftp|mailto):", url):
            return url
        path, _, anchor = unquote(url).partition("#")
        found = normpath(join(dirname(name), path.partition("?")[0])) if path else name
        if found in self._files:
            return make_link_target(self._files[found], page.file)
        target = self._pages.get(found)
        if target is None:
            return ""
        return make_link_target(target.file if path else "", page.file, target.anchors.get(anchor, ""))


def _parse_page(name: str, text: str) -> _SpacePage:
    folder = dirname(name)
    crumbs: list[tuple[str, str]] = []
    if start := _BREADCRUMBS.search(text):
        crumbs = _CRUMB.findall(_cut(text, start.end(), "</ol>"))
    match = _TITLE.search(text)
    title = _to_plain(match[1] or match[2]) if match else name.rpartition("/")[2]
    if crumbs and crumbs[0][1].strip():
        title = title.removeprefix(f"{_to_plain(crumbs[0][1])} : ") or title
    fields: dict[str, str] = {}
    if start := _METADATA.search(text):
        metadata = _cut(text, start.end(), "</div>")
        if dates := _DATE.findall(_to_plain(_TAG.sub(" ", metadata))):
            fields["updated"] = _parse_date(dates[-1])
        if people := _PERSON.findall(metadata):
            fields["author"] = _to_plain(people[-1])
    anchors = {
        html.unescape(heading[1]): _to_plain(_TAG.sub("", _cut(text, heading.end(), "</h")))
        for heading in _HEADING.finditer(text)
    }
    parents = [normpath(join(folder, unquote(html.unescape(href)))) for href, _ in crumbs]
    section = text[max(text.find('id="attachments"'), 0) :] if 'id="attachments"' in text else ""
    attachments = {
        normpath(join(folder, unquote(html.unescape(href)))): _to_plain(written)
        for href, written in _ATTACHMENT.findall(section)
    }
    return _SpacePage(title, parents, fields, attachments, anchors)


def _cut(text: str, start: int, end: str) -> str:
    """The text from a position to this mark; empty if the mark is not near."""
    return text[start : max(text.find(end, start, start + _MAX_PART_CHARS), start)]


def _to_plain(text: str) -> str:
    return " ".join(html.unescape(text).split())


def _parse_date(text: str) -> str:
    for date_format in ("%b %d, %Y", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, date_format).replace(tzinfo=UTC).date().isoformat()
        except ValueError:
            continue
    return ""


def is_confluence_export(archive: ExportArchive) -> bool:
    """Whether the archive has an index of pages as Confluence writes it."""
    index = next((member for name, member in archive.members.items() if name.rpartition("/")[2] == "index.html"), None)
    try:
        return index is not None and b"confluence" in archive.read(index).lower()
    except UnreadableMember:
        return False
