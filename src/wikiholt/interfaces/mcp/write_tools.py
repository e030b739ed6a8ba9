"""The tools that write pages. Each write is a commit and triggers a sync."""

import re

from pydantic import Field

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.page_documents import (
    PageDeleteDocument,
    PageRenameDocument,
    PageWriteDocument,
    build_delete_document,
    build_rename_document,
)
from wikiholt.api.operations.page_writes import get_author
from wikiholt.domain.git import Author
from wikiholt.domain.page import PageContent, PageWriteResult
from wikiholt.errors import InvalidPage, PageExists, PageNotFound, RevisionMismatch
from wikiholt.interfaces.mcp.mcp_tool import write_tool
from wikiholt.interfaces.mcp.read_tools import find_section
from wikiholt.interfaces.mcp.text_output import fit_to_budget, take_fitting
from wikiholt.interfaces.mcp.tool_schemas import (
    TEXT_PATTERN,
    BudgetedArguments,
    MessageArgument,
    PagePathArgument,
    RevisionArgument,
    ToolArguments,
)
from wikiholt.wikis.session import WikiSession

_MAX_SHOWN_MOVES = 20


class WriteArguments(ToolArguments):
    """Arguments of all tools that write."""

    path: PagePathArgument
    commit_message: MessageArgument = Field(
        "", description="The reason, in one line; it is part of the wiki's history."
    )
    revision: RevisionArgument = Field(
        None, description="The revision from read_page: the write is rejected if the page was changed since."
    )


def resolve_page_and_author(wiki: WikiSession, path: str) -> tuple[str, Author]:
    """The path in git, and the author of the commit: that of the key, the token or the command line."""
    return wiki.path_style.to_git_path(path), get_author(wiki)


def _get_expected_revision(params: WriteArguments) -> str | None:
    return params.revision.lower() if params.revision else None


def _report_saved(wiki: WikiSession, result: PageWriteResult, author: Author, message: str) -> PageWriteDocument:
    wiki.report_write(result, author, message)
    return build_document(PageWriteDocument, result, wiki.path_style)


def _format_saved(result: PageWriteDocument) -> str:
    if not result["changed"]:
        return f"{result['path']} already has this content; revision {result['revision']}."
    action = "Created" if result["created"] else "Saved"
    warnings = [f"Warning: {warning}" for warning in result["warnings"]]
    return "\n".join([f"{action} {result['path']}; revision {result['revision']}.", *warnings])


class WritePageArguments(WriteArguments):
    content: str = Field(pattern=TEXT_PATTERN, description="The entire page, in Markdown; frontmatter first, if any.")


@write_tool(
    "Write a page",
    "Write an entire page, as one commit. An existing page requires the revision from read_page; "
    "to change a part of it, use edit_page.",
    _format_saved,
    destructive=True,
)
def write_page(wiki: WikiSession, params: WritePageArguments, _: int) -> PageWriteDocument:
    path, author = resolve_page_and_author(wiki, params.path)
    try:
        written = wiki.handle.pages.write(
            path,
            params.content,
            author,
            params.commit_message,
            expected=_get_expected_revision(params),
            create_only=params.revision is None,
        )
    except PageExists:
        current = wiki.handle.pages.read(path).revision
        raise RevisionMismatch(
            "A page with this path already exists, and no revision was sent.",
            current=current,
            hint="Call read_page, then write_page with its revision; or change part of it with edit_page.",
        ) from None
    return _report_saved(wiki, written, author, params.commit_message)


class EditPageArguments(WriteArguments):
    old_string: str = Field(
        "",
        pattern=TEXT_PATTERN,
        description="The text to replace. It must occur exactly once, unless replace_all is set.",
    )
    new_string: str = Field(pattern=TEXT_PATTERN, description="The replacement.")
    replace_all: bool = Field(False, description="Replace old_string everywhere.")
    section: str = Field(
        "", max_length=500, description="Instead of old_string: replace this section, its heading and subsections."
    )
    from_line: int | None = Field(
        None, ge=1, description="Instead of old_string: replace from this line; needs revision."
    )
    to_line: int | None = Field(None, ge=1, description="The last line to replace; default: from_line.")


@write_tool(
    "Edit a page",
    "Replace a text, a section or lines of a page, as one commit.",
    _format_saved,
    destructive=True,
    idempotent=False,
)
def edit_page(wiki: WikiSession, params: EditPageArguments, _: int) -> PageWriteDocument:
    path, author = resolve_page_and_author(wiki, params.path)
    if sum((bool(params.old_string), bool(params.section), params.from_line is not None)) != 1:
        raise InvalidPage("what to replace is not clear.", hint="Send one of old_string, section and from_line.")
    if not params.old_string:
        page = _read_expected(wiki, path, params)
        content = _replace_part(page, params)
        written = wiki.handle.pages.write(path, content, author, params.commit_message, expected=page.revision)
        return _report_saved(wiki, written, author, params.commit_message)
    if params.old_string == params.new_string:
        raise InvalidPage("old_string and new_string are the same.", hint="Send a new_string that differs.")
    written = wiki.handle.pages.replace_text(
        path,
        params.old_string,
        params.new_string,
        author,
        params.commit_message,
        expected=_get_expected_revision(params),
        replace_all=params.replace_all,
    )
    return _report_saved(wiki, written, author, params.commit_message)


def _read_expected(wiki: WikiSession, path: str, params: EditPageArguments) -> PageContent:
    """The page, at the revision that the caller has read."""
    if params.from_line is not None and params.revision is None:
        raise InvalidPage("lines can be replaced only with a revision.", hint="Send the revision from read_page.")
    page = wiki.handle.pages.read(path)
    if params.revision and not page.revision.startswith(params.revision.lower()):
        raise RevisionMismatch("The page was changed since.", current=page.revision, hint="Call read_page again.")
    return page


def _replace_part(page: PageContent, params: EditPageArguments) -> str:
    """The content of the page with another text for the section or the lines."""
    lines = page.content.split("\n")
    # After a line break at the end there is no line to replace.
    count = len(lines) - 1 if lines[-1] == "" else len(lines)
    if params.section:
        first, last = find_section(page.headings, params.section, count)
    else:
        first = params.from_line or 1
        last = params.to_line or first
        if not first <= last <= count:
            raise InvalidPage(f"the page has no lines {first} to {last}", hint=f"it has {count} lines")
    line_end = "\r\n" if lines[0].endswith("\r") else "\n"
    text = re.sub(r"\r?\n", line_end, params.new_string)
    before, after = lines[: first - 1], lines[last:]
    if text and after and not text.endswith("\n"):
        text += line_end
    if text and params.section and after not in ([], [""]) and not text.endswith(line_end * 2):
        text += line_end
    return "".join(f"{line}\n" for line in before) + text + "\n".join(after)


class AppendToPageArguments(WriteArguments):
    text: str = Field(min_length=1, pattern=TEXT_PATTERN, description="The text to add at the end, on a new line.")


@write_tool(
    "Append to a page",
    "Add text at the end of a page, as one commit.",
    _format_saved,
    idempotent=False,
)
def append_to_page(wiki: WikiSession, params: AppendToPageArguments, _: int) -> PageWriteDocument:
    path, author = resolve_page_and_author(wiki, params.path)
    written = wiki.handle.pages.append(
        path, params.text, author, params.commit_message, expected=_get_expected_revision(params)
    )
    return _report_saved(wiki, written, author, params.commit_message)


class RenamePageArguments(WriteArguments, BudgetedArguments):
    new_path: str = Field(min_length=1, max_length=1000, pattern=TEXT_PATTERN, description="The new path.")
    update_links: bool = Field(True, description="Whether links to the page are updated, in the same commit.")
    move_subpages: bool = Field(True, description="Whether its sub-pages and attachments move with it.")


class RenamePageResult(PageRenameDocument):
    """A renamed page; `left_out` counts pages that do not fit into the budget."""

    left_out: int


def _format_renamed(result: RenamePageResult) -> str:
    moved = [f"{file['old_path']} to {file['new_path']}" for file in result["moved"][:_MAX_SHOWN_MOVES]]
    more = f" and {left} more" if (left := len(result["moved"]) - len(moved)) else ""
    moves = f" Moved too: {', '.join(moved)}{more}." if moved else ""
    links = f" Links were changed on: {', '.join(result['updated_pages'])}." if result["updated_pages"] else ""
    rest = f" {result['left_out']} more pages moved or changed." if result["left_out"] else ""
    return f"{result['old_path']} is now {result['new_path']}; revision {result['revision']}.{moves}{links}{rest}"


@write_tool(
    "Rename a page",
    "Change the path of a page. Its sub-pages and attachments move with it, and links are updated, in one commit.",
    _format_renamed,
    destructive=True,
    idempotent=False,
)
def rename_page(wiki: WikiSession, params: RenamePageArguments, budget: int) -> RenamePageResult:
    path, author = resolve_page_and_author(wiki, params.path)
    new_path = wiki.path_style.to_git_path(params.new_path)
    renamed = wiki.handle.pages.rename(
        path,
        new_path,
        author,
        params.commit_message,
        expected=_get_expected_revision(params),
        update_links=params.update_links,
        move_subpages=params.move_subpages,
        to_link_path=wiki.path_style.to_link_path,
    )
    wiki.report_write(renamed, author, params.commit_message)
    document = build_rename_document(renamed, wiki.path_style)

    def build(share: int) -> RenamePageResult:
        moved = take_fitting(document["moved"], share // 2, at_least=0)
        updated = take_fitting(document["updated_pages"], share // 2, at_least=0)
        left_out = len(document["moved"]) - len(moved), len(document["updated_pages"]) - len(updated)
        return {**document, "moved": moved, "updated_pages": updated, "left_out": sum(left_out)}

    return fit_to_budget(build, _format_renamed, budget)


@write_tool(
    "Delete a page",
    "Delete a page; its content stays in the git history. Ask the user before you do this.",
    "Deleted {path}; commit {revision}. Its history is kept.".format_map,
    destructive=True,
    idempotent=False,
)
def delete_page(wiki: WikiSession, params: WriteArguments, _: int) -> PageDeleteDocument:
    path, author = resolve_page_and_author(wiki, params.path)
    try:
        deleted = wiki.handle.pages.delete(path, author, params.commit_message, expected=_get_expected_revision(params))
    except RevisionMismatch as error:
        if error.current is not None:
            raise
        raise PageNotFound(f"there is no page {params.path[:200]!r}") from None
    wiki.report_write(deleted, author, params.commit_message)
    return build_delete_document(deleted, wiki.path_style)
