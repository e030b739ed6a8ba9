"""Writing pages: each write is a commit based on the revision that the writer has read, and schedules a sync."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.page_documents import (
    PageDeleteDocument,
    PageRenameDocument,
    PageWriteDocument,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.pages import PathInUrl
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, BodyParameters
from wikiholt.domain.git import Author
from wikiholt.domain.page import MovedFile, PageWriteResult
from wikiholt.domain.wiki import Key, Scope, make_author
from wikiholt.errors import Forbidden, PageExists, RevisionMismatch
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.session import PathStyle, WikiSession

EMAIL_PATTERN = r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+"
AUTHOR_NAME_PATTERN = r"[^\x00-\x1f\x7f<>]*[^\s\x00-\x1f\x7f<>][^\x00-\x1f\x7f<>]*"
Text = Annotated[str, Field(pattern=NO_NUL_PATTERN)]


class CommitAuthor(BaseModel):
    """The author of a commit."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=200, pattern=rf"^{AUTHOR_NAME_PATTERN}$")
    email: str = Field(max_length=254, pattern=rf"^{EMAIL_PATTERN}$")


class CommitParameters(BodyParameters):
    """The page and the commit of every write."""

    path: PathInUrl
    commit_message: Annotated[Text, Field(max_length=10_000)] | None = Field(
        None, description="The reason, in one line."
    )
    author: CommitAuthor | None = None

    @property
    def message(self) -> str:
        return self.commit_message or ""


class WriteParameters(CommitParameters):
    """The fields of every write of a page; `revision` is the revision that the writer has read (empty: none)."""

    revision: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="The revision that you have read: the write is refused if the page was changed since."
    )

    @property
    def expected(self) -> str | None:
        return self.revision or None


class WritePage(WriteParameters):
    """The complete content of a page. With `create_only`, a page that exists is not changed."""

    content: Text
    create_only: bool = False


class DeletePage(WriteParameters):
    """The fields of every write; `revision` is the revision that the writer has read (empty: none)."""

    is_optional: ClassVar[bool] = True


class RenamePage(WriteParameters):
    """The new path of a page.

    Links to it are updated unless `update_links` is false, and its sub-pages and attachments move with it unless
    `move_subpages` is false.
    """

    new_path: Annotated[Text, Field(min_length=1, max_length=1000)]
    update_links: bool = True
    move_subpages: bool = True


WRITE_OPERATIONS = OperationTable("pages", scope=Scope.WRITE, caching=Caching.CONTENT, errors=(404, 409, 412, 413))


@WRITE_OPERATIONS.add(
    "PUT /pages/{path}",
    "put_page",
    other_results={201: (PageWriteDocument, "The page was created.")},
    choose_status=lambda document: 201 if document["created"] else 200,
)
def write_page(wiki: WikiSession, parameters: WritePage) -> PageWriteDocument:
    """Write a page. For an existing page, send the revision that you have read, in the body or as If-Match."""
    path = wiki.path_style.to_git_path(parameters.path)
    expected = None if parameters.create_only else parameters.expected
    author, message = get_author(wiki, parameters.author), parameters.message
    try:
        written = wiki.handle.pages.write(
            path, parameters.content, author, message, expected=expected, create_only=expected is None
        )
    except PageExists:
        raise RevisionMismatch(
            "Revision required: the page exists already.",
            current=wiki.handle.pages.read(path).revision,
            hint="Read it, then send its revision with the change, or send If-Match: * to overwrite it.",
        ) from None
    return report_saved(wiki, written, author, message)


def report_saved(wiki: WikiSession, written: PageWriteResult, author: Author, message: str) -> PageWriteDocument:
    wiki.report_write(written, author, message)
    return build_document(PageWriteDocument, written, wiki.path_style)


@WRITE_OPERATIONS.add("DELETE /pages/{path}", caching=Caching.REVALIDATE)
def delete_page(wiki: WikiSession, parameters: DeletePage) -> PageDeleteDocument:
    """Delete a page; its content stays in the git history."""
    path, author = wiki.path_style.to_git_path(parameters.path), get_author(wiki, parameters.author)
    deleted = wiki.handle.pages.delete(path, author, parameters.message, expected=parameters.expected)
    wiki.report_write(deleted, author, parameters.message)
    return build_document(PageDeleteDocument, deleted, wiki.path_style, deleted=True)


@WRITE_OPERATIONS.add("POST /pages/{path}/rename")
def rename_page(wiki: WikiSession, parameters: RenamePage) -> PageRenameDocument:
    """Rename a page; its sub-pages and attachments move with it, and links are updated in the same commit."""
    author, to_git_path = get_author(wiki, parameters.author), wiki.path_style.to_git_path
    renamed = wiki.handle.pages.rename(
        to_git_path(parameters.path),
        to_git_path(parameters.new_path),
        author,
        parameters.message,
        expected=parameters.expected,
        update_links=parameters.update_links,
        move_subpages=parameters.move_subpages,
        to_link_path=wiki.path_style.to_link_path,
    )
    wiki.report_write(renamed, author, parameters.message)
    path_style = wiki.path_style
    return {
        "name": path_style.to_display_title(renamed.name, renamed.path),
        "old_path": path_style.to_display_path(renamed.old_path),
        "new_path": path_style.to_display_path(renamed.path),
        "revision": renamed.revision,
        "updated_pages": [path_style.to_display_path(path) for path in renamed.updated],
        "moved": [
            {
                "old_path": _to_display_file(moved.old, moved, path_style),
                "new_path": _to_display_file(moved.new, moved, path_style),
            }
            for moved in renamed.moved
        ],
    }


def _to_display_file(file: str, moved: MovedFile, path_style: PathStyle) -> str:
    """The path of a page, or the file of an attachment, in the caller's form."""
    if moved.is_page:
        return path_style.to_display_path(get_page_path(file))
    folder, _, name = file.rpartition("/")
    return f"{path_style.to_display_path(folder)}/{name}"


def get_author(wiki: WikiSession, named: CommitAuthor | None = None) -> Author:
    """The author that the caller names, that of the host, or the label of the key, in this order.

    Raises Forbidden if a signed-in user of the host names another author.
    """
    if named is not None:
        if wiki.author is not None and wiki.grant.key is None:
            raise Forbidden("You cannot commit as another author.", hint="Leave out the author, or use a key.")
        return Author(named.name, named.email)
    return wiki.author if wiki.author is not None else make_key_author(wiki.grant.key)


def make_key_author(key: Key | None) -> Author:
    """The author of commits with this key: its label, if git accepts it as a name."""
    label, key_id = (key.label, key.id) if key else ("", "nobody")
    return make_author(label, "", key_id, default_name="Wikiholt")
