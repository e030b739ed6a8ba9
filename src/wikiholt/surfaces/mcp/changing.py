"""Writes: each is a commit with an author and a message, and wakes the index."""

from wikiholt.contents.locating import new_file
from wikiholt.errors import InvalidPage, PageExists, PageNotFound, RevisionMismatch
from wikiholt.model import Author, Written
from wikiholt.surfaces.documents.pages import (
    DeletedDocument,
    RenamedDocument,
    WrittenDocument,
    deleted_document,
    renamed_document,
    written_document,
)
from wikiholt.surfaces.http.admission import Deed, Wrote
from wikiholt.surfaces.http.edits import Edit, author_of
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp.arguments import AppendToPage, DeletePage, EditPage, RenamePage, Write, WritePage


def write_page(wiki: OpenWiki, asked: WritePage, _: int) -> WrittenDocument:
    path, author = _named(wiki, asked)
    try:
        written = wiki.handle.contents.put(
            path,
            asked.content,
            author,
            asked.commit_message,
            expected=_expected(asked),
            create_only=asked.revision is None,
        )
    except PageExists:
        current = wiki.handle.contents.read(path).revision
        raise RevisionMismatch(
            "There is a page of this path already, and nothing says that you have read it.",
            current=current,
            hint="Call read_page, then write_page with its revision; or change a part of it with edit_page.",
        ) from None
    return _saved(wiki, written, author, asked.commit_message)


def edit_page(wiki: OpenWiki, asked: EditPage, _: int) -> WrittenDocument:
    path, author = _named(wiki, asked)
    if asked.old_string == asked.new_string:
        raise InvalidPage("old_string and new_string are the same.", hint="Say what shall change.")
    written = wiki.handle.contents.patch(
        path, asked.old_string, asked.new_string, author, asked.commit_message, expected=_expected(asked)
    )
    return _saved(wiki, written, author, asked.commit_message)


def append_to_page(wiki: OpenWiki, asked: AppendToPage, _: int) -> WrittenDocument:
    path, author = _named(wiki, asked)
    written = wiki.handle.contents.append(path, asked.text, author, asked.commit_message, expected=_expected(asked))
    return _saved(wiki, written, author, asked.commit_message)


def rename_page(wiki: OpenWiki, asked: RenamePage, _: int) -> RenamedDocument:
    path, author = _named(wiki, asked)
    new_path = wiki.names.meant(asked.new_path)
    renamed = wiki.handle.contents.rename(
        path,
        new_path,
        author,
        asked.commit_message,
        expected=_expected(asked),
        update_links=asked.update_links,
        spelled=wiki.names.spelled(new_path),
    )
    files = (renamed.file, *map(new_file, renamed.updated))
    wiki.wrote(Wrote(Deed.RENAMED, renamed.old_path, files, author, asked.commit_message, renamed.path))
    return renamed_document(renamed, wiki.names)


def delete_page(wiki: OpenWiki, asked: DeletePage, _: int) -> DeletedDocument:
    path, author = _named(wiki, asked)
    try:
        deleted = wiki.handle.contents.delete(path, author, asked.commit_message, expected=_expected(asked))
    except RevisionMismatch as error:
        if error.current is not None:
            raise
        raise PageNotFound(f"there is no page {asked.path[:200]!r}") from None
    wiki.wrote(Wrote(Deed.DELETED, deleted.path, (deleted.file,), author, asked.commit_message))
    return deleted_document(deleted, wiki.names)


def _named(wiki: OpenWiki, asked: Write) -> tuple[str, Author]:
    """The page as git names it, and who the commit is by: whom the key, the token or the command line names."""
    return wiki.names.meant(asked.path), author_of(wiki, Edit(), None)


def _expected(asked: Write) -> str | None:
    return asked.revision.lower() if asked.revision else None


def _saved(wiki: OpenWiki, written: Written, author: Author, message: str) -> WrittenDocument:
    if written.changed:
        wiki.wrote(Wrote(Deed.SAVED, written.path, (written.file,), author, message))
    return written_document(written, wiki.names)
