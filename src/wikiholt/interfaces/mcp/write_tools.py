"""The tools that write pages and their attachments. Each write is a commit and triggers a sync."""

import re
from base64 import b64decode
from binascii import Error as NotBase64

from wikiholt.domain.git import Author
from wikiholt.domain.page import PageContent, PageWriteResult
from wikiholt.errors import InvalidPage, PageExists, PageNotFound, RevisionMismatch
from wikiholt.interfaces.http.write_request import WriteBody, get_author
from wikiholt.interfaces.mcp.read_tools import find_section
from wikiholt.interfaces.mcp.result_schemas import RenamePageResult
from wikiholt.interfaces.mcp.text_output import (
    estimate_json_tokens,
    fit_to_budget,
    format_rename_result,
    take_fitting,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    AppendToPageArguments,
    DeleteAttachmentArguments,
    EditPageArguments,
    RenamePageArguments,
    UploadAttachmentArguments,
    WriteArguments,
    WritePageArguments,
)
from wikiholt.interfaces.schemas.common import build_document
from wikiholt.interfaces.schemas.page_schemas import (
    AttachmentAddDocument,
    AttachmentRemoveDocument,
    PageDeleteDocument,
    PageWriteDocument,
    build_attachment_add_document,
    build_attachment_remove_document,
    build_delete_document,
    build_rename_document,
)
from wikiholt.wikis.session import WikiSession


def write_page(wiki: WikiSession, params: WritePageArguments, _: int) -> PageWriteDocument:
    path, author = _resolve_page_and_author(wiki, params)
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


def edit_page(wiki: WikiSession, params: EditPageArguments, _: int) -> PageWriteDocument:
    path, author = _resolve_page_and_author(wiki, params)
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


def append_to_page(wiki: WikiSession, params: AppendToPageArguments, _: int) -> PageWriteDocument:
    path, author = _resolve_page_and_author(wiki, params)
    written = wiki.handle.pages.append(
        path, params.text, author, params.commit_message, expected=_get_expected_revision(params)
    )
    return _report_saved(wiki, written, author, params.commit_message)


def rename_page(wiki: WikiSession, params: RenamePageArguments, budget: int) -> RenamePageResult:
    path, author = _resolve_page_and_author(wiki, params)
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
        moved = take_fitting(document["moved"], estimate_json_tokens, share // 2, at_least=0)
        updated = take_fitting(document["updated_pages"], estimate_json_tokens, share // 2, at_least=0)
        left_out = len(document["moved"]) - len(moved), len(document["updated_pages"]) - len(updated)
        return {**document, "moved": moved, "updated_pages": updated, "left_out": sum(left_out)}

    return fit_to_budget(build, format_rename_result, budget)


def delete_page(wiki: WikiSession, params: WriteArguments, _: int) -> PageDeleteDocument:
    path, author = _resolve_page_and_author(wiki, params)
    try:
        deleted = wiki.handle.pages.delete(path, author, params.commit_message, expected=_get_expected_revision(params))
    except RevisionMismatch as error:
        if error.current is not None:
            raise
        raise PageNotFound(f"there is no page {params.path[:200]!r}") from None
    wiki.report_write(deleted, author, params.commit_message)
    return build_delete_document(deleted, wiki.path_style)


def upload_attachment(wiki: WikiSession, params: UploadAttachmentArguments, _: int) -> AttachmentAddDocument:
    try:
        data = b64decode("".join(params.content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64.", hint="Encode the content of the file in base64.") from None
    path, author = _resolve_page_and_author(wiki, params)
    added = wiki.handle.pages.add_attachment(path, params.filename, data, author, params.commit_message)
    wiki.report_write(added, author, params.commit_message)
    return build_attachment_add_document(added, wiki.path_style)


def delete_attachment(wiki: WikiSession, params: DeleteAttachmentArguments, _: int) -> AttachmentRemoveDocument:
    path, author = _resolve_page_and_author(wiki, params)
    removed = wiki.handle.pages.remove_attachment(path, params.filename, author, params.commit_message)
    wiki.report_write(removed, author, params.commit_message)
    return build_attachment_remove_document(removed, wiki.path_style)


def _resolve_page_and_author(
    wiki: WikiSession, params: WriteArguments | DeleteAttachmentArguments
) -> tuple[str, Author]:
    """The path in git, and the author of the commit: that of the key, the token or the command line."""
    return wiki.path_style.to_git_path(params.path), get_author(wiki, WriteBody(), None)


def _get_expected_revision(params: WriteArguments) -> str | None:
    return params.revision.lower() if params.revision else None


def _report_saved(wiki: WikiSession, result: PageWriteResult, author: Author, message: str) -> PageWriteDocument:
    wiki.report_write(result, author, message)
    return build_document(PageWriteDocument, result, wiki.path_style)
