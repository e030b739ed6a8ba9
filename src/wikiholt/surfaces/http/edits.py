"""What a write says: the page's new form, who it is by, and which revision it is based on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Header
from pydantic import Field

from wikiholt.errors import Forbidden, PageNotFound, RevisionMismatch
from wikiholt.model import Author
from wikiholt.surfaces.http.sending import StrictBody
from wikiholt.surfaces.http.visits import WikiSession

_STRONG_ETAG_PATTERN = re.compile(r'(?<!W/)"([^"]*)"')
_EMAIL_PATTERN = r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+"
_AUTHOR_NAME_PATTERN = r"[^\x00-\x1f\x7f<>]*[^\s\x00-\x1f\x7f<>][^\x00-\x1f\x7f<>]*"
_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]

IfMatch = Annotated[str | None, Header(alias="If-Match", description="The tag of the page as it was read, or *.")]
AuthorHeader = Annotated[
    str | None,
    Header(
        alias="X-Author",
        max_length=500,
        pattern=rf"^{_AUTHOR_NAME_PATTERN} <{_EMAIL_PATTERN}>$",
        description="Who the commit is by, as `Name <address>`, where the body does not say.",
    ),
]


class CommitAuthor(StrictBody):
    """Who a commit is by."""

    name: str = Field(max_length=200, pattern=rf"^{_AUTHOR_NAME_PATTERN}$")
    email: str = Field(max_length=254, pattern=rf"^{_EMAIL_PATTERN}$")


class WriteBody(StrictBody):
    """What every write may say; `revision` is the one the writer has read (empty: none)."""

    commit_message: Annotated[_Text, Field(max_length=10_000)] | None = None
    author: CommitAuthor | None = None
    revision: Annotated[str, Field(pattern=r"^(?:[0-9a-fA-F]{7,64})?$")] | None = None


class PutPage(WriteBody):
    """The page's whole content."""

    content: _Text


class PatchPage(WriteBody):
    """The one place to replace, as it stands on the page, and what shall stand there."""

    old_string: Annotated[_Text, Field(min_length=1)]
    new_string: _Text


class RenamePage(WriteBody):
    """The page's other path; links of other pages follow unless told not to."""

    new_path: Annotated[_Text, Field(min_length=1, max_length=1000)]
    update_links: bool = True


class PreconditionFailed(RevisionMismatch):
    """If-Match or If-None-Match does not hold."""

    code = "precondition-failed"

    status = 412


def get_author(wiki: WikiSession, body: WriteBody, header: str | None) -> Author:
    """Who the body says, else the header, else the host or the key's label; who has signed in writes as nobody else."""
    if wiki.author is not None and wiki.grant.key is None:
        if body.author is not None or header is not None:
            raise Forbidden("Your commits are by yourself.", hint="Leave out the author, or use a key.")
        return wiki.author
    if body.author is not None:
        return Author(body.author.name, body.author.email)
    if header is not None:
        name, _, address = header.removesuffix(">").rpartition(" <")
        return Author(_decode_header(name), _decode_header(address))
    if wiki.author is not None:
        return wiki.author
    key = wiki.grant.key
    label = re.sub("[<>]", "", key.label).strip() if key else ""
    named = any(map(str.isalnum, label))  # git strips marks from the ends of a name, and takes none that is empty then
    return Author(label if named else "Wikiholt", f"{key.id if key else 'nobody'}@wikiholt.invalid")


def get_expected_revision(wiki: WikiSession, path: str, body: WriteBody, if_match: str | None) -> str | None:
    """The revision the page must be at, or None where nothing is said; the header goes before the body."""
    if if_match is None:
        return body.revision.lower() if body.revision else None
    named: list[str] = [tag.partition(".")[0].lower() for tag in _STRONG_ETAG_PATTERN.findall(if_match)]
    if len(named) == 1 and re.fullmatch(r"[0-9a-f]{7,64}", named[0]):
        return named[0]
    try:
        current = wiki.handle.pages.read(path).revision
    except PageNotFound:
        raise _build_precondition_error(None) from None
    if if_match.strip() == "*" or any(len(tag) >= 7 and current.startswith(tag) for tag in named):
        return current
    raise _build_precondition_error(current)


@contextmanager
def check_preconditions(*, by_header: bool) -> Iterator[None]:
    """Say 412 where a header's condition does not hold, 409 where the body's does not, 404 where there is no page."""
    try:
        yield
    except RevisionMismatch as error:
        if by_header:
            raise _build_precondition_error(error.current) from None
        if error.current is None:
            raise PageNotFound("There is no such page.", hint="List the pages to see their paths.") from None
        raise


def build_page_exists_error(wiki: WikiSession, path: str, *, by_header: bool) -> RevisionMismatch:
    """What to say to who would write over a page unread."""
    current = wiki.handle.pages.read(path).revision
    if by_header:
        return _build_precondition_error(current)
    hint = "Read it, then send its revision with the change; or If-Match: * to write over it."
    return RevisionMismatch("There is a page of this path already.", current=current, hint=hint)


def _build_precondition_error(current: str | None) -> PreconditionFailed:
    told = "The page was changed since it was read." if current else "There is no such page."
    return PreconditionFailed(told, current=current, hint="Read it again and make the change on what it says now.")


def _decode_header(header: str) -> str:
    """Headers travel as Latin-1; who sent UTF-8 meant UTF-8."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return header
