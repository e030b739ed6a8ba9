"""Edits of a part of a page: a text, a section, lines, or its end. Each is a commit, as other writes."""

import re
from typing import Annotated

from pydantic import Field

from wikiholt.api.documents.page_documents import PageWriteDocument
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.page_parts import find_section
from wikiholt.api.operations.page_writes import Text, WriteParameters, get_author, report_saved
from wikiholt.domain.page import PageContent
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidPage, RevisionMismatch
from wikiholt.wikis.session import WikiSession


class EditPart(WriteParameters):
    """What to replace, and the replacement."""

    new_string: Text = Field(description="The replacement.")
    old_string: Text = Field(
        "", description="The text to replace. It must occur exactly once, unless replace_all is set."
    )
    replace_all: bool = Field(False, description="Replace old_string everywhere.")
    section: str = Field(
        "", max_length=500, description="Instead of old_string: replace this section, its heading and subsections."
    )
    from_line: int | None = Field(
        None, ge=1, description="Instead of old_string: replace from this line; needs revision."
    )
    to_line: int | None = Field(None, ge=1, description="The last line to replace; default: from_line.")


class AppendToPage(WriteParameters):
    """The text to add."""

    text: Annotated[Text, Field(min_length=1)] = Field(description="The text to add, on a new line.")


EDIT_OPERATIONS = OperationTable("pages", scope=Scope.WRITE, caching=Caching.CONTENT, errors=(404, 409, 412, 413))


@EDIT_OPERATIONS.add("PATCH /pages/{path}", "patch_page")
def edit_page(wiki: WikiSession, parameters: EditPart) -> PageWriteDocument:
    """Replace a text, a section or lines of a page. Send the revision that you have read."""
    if not parameters.revision:
        raise InvalidPage(
            "The revision is missing: at least 7 characters.",
            hint="Read the page, then send its revision with the change.",
        )
    return edit_part(wiki, parameters)


@EDIT_OPERATIONS.add("")
def edit_part(wiki: WikiSession, parameters: EditPart) -> PageWriteDocument:
    """Replace a text, a section or lines of a page, as one commit."""
    old, new = parameters.old_string, parameters.new_string
    parts = sum((bool(old), bool(parameters.section), parameters.from_line is not None))
    if parts != 1:
        raise InvalidPage(
            "old_string, section and from_line exclude each other." if parts else "old_string is empty.",
            hint="Send one of old_string, section and from_line.",
        )
    if old and old == new:
        raise InvalidPage("old_string and new_string are identical.", hint="Send a new_string that differs.")
    path, message = wiki.path_style.to_git_path(parameters.path), parameters.message
    author = get_author(wiki, parameters.author)
    pages, expected = wiki.handle.pages, parameters.expected
    if old:
        written = pages.replace_text(
            path, old, new, author, message, expected=expected, replace_all=parameters.replace_all
        )
    else:
        page = _read_expected(wiki, path, parameters)
        written = pages.write(path, _replace_part(page, parameters), author, message, expected=page.revision)
    return report_saved(wiki, written, author, message)


def _read_expected(wiki: WikiSession, path: str, parameters: EditPart) -> PageContent:
    """The page, at the revision that the caller has read."""
    if parameters.from_line is not None and not parameters.revision:
        raise InvalidPage("lines can be replaced only with a revision.", hint="Send the revision that you have read.")
    page = wiki.handle.pages.read(path)
    if parameters.revision and not page.revision.startswith(parameters.revision.lower()):
        raise RevisionMismatch("The page was changed since.", current=page.revision, hint="Read the page again.")
    return page


def _replace_part(page: PageContent, parameters: EditPart) -> str:
    """The content of the page with another text for the section or the lines."""
    lines = page.content.split("\n")
    # After a line break at the end there is no line to replace.
    count = len(lines) - 1 if lines[-1] == "" else len(lines)
    if parameters.section:
        first, last = find_section(page.headings, parameters.section, count)
    else:
        first = parameters.from_line or 1
        last = parameters.to_line or first
        if not first <= last <= count:
            raise InvalidPage(f"the page has no lines {first} to {last}", hint=f"it has {count} lines")
    line_end = "\r\n" if lines[0].endswith("\r") else "\n"
    text = re.sub(r"\r?\n", line_end, parameters.new_string)
    before, after = lines[: first - 1], lines[last:]
    if text and after and not text.endswith("\n"):
        text += line_end
    if text and parameters.section and after not in ([], [""]) and not text.endswith(line_end * 2):
        text += line_end
    return "".join(f"{line}\n" for line in before) + text + "\n".join(after)


@EDIT_OPERATIONS.add("")
def append_to_page(wiki: WikiSession, parameters: AppendToPage) -> PageWriteDocument:
    """Add text at the end of a page, as one commit."""
    path, message = wiki.path_style.to_git_path(parameters.path), parameters.message
    author = get_author(wiki, parameters.author)
    written = wiki.handle.pages.append(path, parameters.text, author, message, expected=parameters.expected)
    return report_saved(wiki, written, author, message)
