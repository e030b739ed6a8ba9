"""Parts of pages for readers with a limited budget: sections, ranges of lines, several pages, and differences."""

import difflib
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain
from typing import Annotated

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.operations.operation import OperationTable
from wikiholt.api.operations.parameters import Count, PagePath, PageRevision, Parameters, to_list
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.page import Heading, PageContent
from wikiholt.errors import InvalidPage, PageNotFound, WikiholtError
from wikiholt.text.comparison import BoundedMatcher, ComparisonTooLong
from wikiholt.wikis.session import WikiSession

MAX_PAGES_PER_READ = 20
_MAX_COMMITS = 1000
"""Commits of the page that are searched for the one before."""
_MAX_DIFF_LINES = 5000
"""Lines per side after the first difference: more take too long to compare."""
_LINES_IN_PATH = re.compile(r"(?s)(.+)#L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


class PartParameters(Parameters):
    """The pages to read, and the part of each."""

    paths: Annotated[list[PagePath], BeforeValidator(to_list)] = Field(
        min_length=1,
        max_length=MAX_PAGES_PER_READ,
        description="Paths as search returns them; PATH#L40-60 reads these lines, PATH#heading a section.",
    )
    section: str = Field("", max_length=500, description="Only the section under this heading (its text or anchor).")
    from_line: Count | None = Field(None, ge=1, description="The first line to read.")
    to_line: Count | None = Field(None, ge=1, description="The last line to read.")
    revision: PageRevision | None = Field(None, description="A commit, by 7 or more digits; the default is the newest.")


class PagePartDocument(TypedDict):
    """The requested lines of a page; a write requires `revision`. With `error` the page could not be read."""

    path: str
    title: str
    url: str
    content: str
    lines: list[int]
    total_lines: int
    outline: list[str]
    category: str | None
    tags: list[str]
    last_updated: str | None
    revision: str | None
    warnings: list[str]
    error: str | None


class PagePartsDocument(TypedDict):
    """The pages, in the order of the request."""

    pages: list[PagePartDocument]


PART_OPERATIONS = OperationTable("pages")


@PART_OPERATIONS.add("")
def read_parts(wiki: WikiSession, parameters: PartParameters) -> PagePartsDocument:
    """Read pages, or a section, a range of lines or an older revision of them."""
    paths = list(dict.fromkeys(parameters.paths))
    if len(paths) == 1:
        return {"pages": [_read_part(wiki, paths[0], parameters)]}
    return {"pages": [_read_or_explain(wiki, path, parameters) for path in paths]}


def _read_or_explain(wiki: WikiSession, path: str, parameters: PartParameters) -> PagePartDocument:
    """The part, or why it cannot be read: the other pages are still of use."""
    try:
        return _read_part(wiki, path, parameters)
    except WikiholtError as error:
        if error.status >= 500:
            raise
        message, hint = get_public_message(error)
        is_named = isinstance(error, PageNotFound) and error.current_path
        text = f"{error.code}: {message}; {hint}" if is_named else f"{error.code}: {message}"
    return {
        "path": path,
        "title": "",
        "url": "",
        "content": "",
        "lines": [],
        "total_lines": 0,
        "outline": [],
        "category": None,
        "tags": [],
        "last_updated": None,
        "revision": None,
        "warnings": [],
        "error": text,
    }


def _read_part(wiki: WikiSession, path: str, parameters: PartParameters) -> PagePartDocument:
    first, last, section = parameters.from_line, parameters.to_line, parameters.section
    if match := _LINES_IN_PATH.fullmatch(path):
        path, first, last = match[1], int(match[2]), int(match[3]) if match[3] else last
    try:
        page = wiki.handle.pages.read(wiki.path_style.to_git_path(path), parameters.revision)
    except PageNotFound:
        path, separator, heading = path.rpartition("#")
        if not separator or not path or section:
            raise
        page = wiki.handle.pages.read(wiki.path_style.to_git_path(path), parameters.revision)
        section = heading
    lines = split_lines(page.content)
    start, end = _resolve_lines(page, lines, section, first, last)
    return build_document(
        PagePartDocument,
        page,
        wiki.path_style,
        title=wiki.path_style.to_display_title(page.name, page.path),
        url=wiki.path_style.to_url(wiki.handle.build_link(page.path)),
        content="\n".join(lines[start - 1 : end]),
        lines=[start, end],
        total_lines=len(lines),
        outline=[f"{heading.line}: {'#' * heading.level} {heading.text}" for heading in page.headings],
        category=page.metadata.category,
        tags=page.metadata.tags,
        last_updated=page.metadata.last_updated,
        warnings=[*page.warnings, *page.notes],
        error=None,
    )


def split_lines(text: str) -> list[str]:
    """The lines of a page without their line breaks, except for one at its end, after which there is no line."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines[-2:] = [f"{lines[-2]}\n"]
    return lines


def _resolve_lines(
    page: PageContent, lines: Sequence[str], section: str, first: int | None, last: int | None
) -> tuple[int, int]:
    """The requested range of lines. Raises InvalidPage if the page does not have it."""
    start, end = find_section(page.headings, section, len(lines)) if section else (1, len(lines))
    start, end = max(start, first or 1), min(end, last or len(lines))
    if start > len(lines):
        raise InvalidPage(f"the page has no line {start}", hint=f"it has {len(lines)} lines")
    if start > end:
        raise InvalidPage(f"the range of lines {start} to {end} is empty", hint="to_line must be at least from_line")
    return start, end


def find_section(headings: Sequence[Heading], section: str, end: int) -> tuple[int, int]:
    """The lines of a section with its subsections: up to the next heading of the same or a higher level."""
    text = section.strip().lstrip("#").strip()
    same = (heading for heading in headings if text in (heading.text, heading.anchor))
    similar = (heading for heading in headings if text.casefold() == heading.text.casefold())
    heading = next(chain(same, similar), None)
    if heading is None:
        known = ", ".join(repr(heading.text) for heading in headings[:20])
        raise InvalidPage(
            f"the page has no section {section[:200]!r}",
            hint=f"its headings are: {known}" if known else "it has no headings; read it by lines",
        )
    ends = (other.line - 1 for other in headings if other.line > heading.line and other.level <= heading.level)
    return heading.line, next(ends, end)


# Differences


class DiffParameters(Parameters):
    """The page and the revisions to compare."""

    path: PagePath
    from_revision: PageRevision | None = Field(None, description="The older commit; default: the one before.")
    to_revision: PageRevision | None = Field(None, description="The newer commit; default: the newest.")


class DiffDocument(TypedDict):
    """A unified diff of a page, as `git apply` takes it."""

    path: str
    from_revision: str | None
    to_revision: str
    diff: str


@PART_OPERATIONS.add("")
def compare_revisions(wiki: WikiSession, parameters: DiffParameters) -> DiffDocument:
    """Show what changed on a page: by the last commit, or between two revisions."""
    path = wiki.path_style.to_git_path(parameters.path)
    new = wiki.handle.pages.read(path, parameters.to_revision)
    old = _read_older(wiki, path, new, parameters.from_revision)
    return {
        "path": wiki.path_style.to_display_path(new.path),
        "from_revision": old.revision if old else None,
        "to_revision": new.revision,
        "diff": "".join(f"{line}\n" for line in iter_diff_lines(old, new)),
    }


def _read_older(wiki: WikiSession, path: str, new: PageContent, revision: str | None) -> PageContent | None:
    """The page at the revision, or before the commit that made `new`; None if that commit created it."""
    if revision is None:
        revisions = [commit.revision for commit in wiki.handle.pages.read_history(path, _MAX_COMMITS)]
        position = revisions.index(new.revision) + 1 if new.revision in revisions else len(revisions)
        if position >= len(revisions):
            return None
        revision = revisions[position]
    try:
        return wiki.handle.pages.read(path, revision)
    except PageNotFound:
        raise InvalidPage(
            f"there is no page {path[:200]!r} at revision {revision[:12]}",
            hint="it did not exist yet or had another path; its history lists its commits",
        ) from None


def iter_diff_lines(old_page: PageContent | None, new_page: PageContent) -> Iterator[str]:
    """The lines of the unified diff. Raises InvalidPage."""
    # The lines with their line feeds; git knows no other end of a line.
    old, new = (list(StringIO(page.content if page else "", newline="\n")) for page in (old_page, new_page))
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if max(len(old), len(new)) - start > _MAX_DIFF_LINES:
        raise InvalidPage(
            f"more than {_MAX_DIFF_LINES:,} lines follow the first difference", hint="read both revisions instead"
        )
    try:
        BoundedMatcher(old, new, autojunk=True).get_opcodes()
    except ComparisonTooLong:
        raise InvalidPage("these revisions take too long to compare", hint="read both revisions instead") from None
    old_name = f"a/{new_page.file}" if old_page else "/dev/null"
    for line in difflib.unified_diff(old, new, old_name, f"b/{new_page.file}"):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
