"""Request bodies of writes: lazy parsing, body models, author and preconditions.

A body is parsed only after the access check, and in a thread: FastAPI would parse it before, in the event loop.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Header
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Key, make_author
from wikiholt.errors import Forbidden, PageNotFound, RevisionMismatch
from wikiholt.interfaces.http.query_params import build_validation_error
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.sign_in import decode_header
from wikiholt.wikis.session import WikiSession

BodyT = TypeVar("BodyT", bound=BaseModel)


class StrictBody(BaseModel):
    """A body that refuses unknown fields and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class LazyBody(Generic[BodyT]):
    """A body that was received, but is not parsed yet."""

    model: type[BodyT]
    data: bytes
    content_type: str
    optional: bool

    def read(self) -> BodyT:
        """Parse the body as JSON. Raises RequestValidationError."""
        if self.optional and not self.data:
            return self.model()
        self.require_media_type("application/json")
        try:
            return self.model.model_validate_json(self.data)
        except ValidationError as error:
            raise build_validation_error(error, "body") from None

    def require_media_type(self, media_type: str, *others: str) -> None:
        """Raise RequestValidationError if the body has none of these types."""
        if self.content_type.partition(";")[0].strip().lower() not in (media_type, *others):
            message = f"it must have Content-Type: {media_type}"
            raise RequestValidationError([{"type": "unreadable", "loc": ("body",), "msg": message}])


def read_body(model: type[BodyT], *, optional: bool = False, media_type: str = "application/json") -> Any:
    """A dependency that checks for a key and then receives the body, to be parsed as this model."""

    async def receive_body(request: Request, context: RequestContextDep) -> LazyBody[BodyT]:
        await run_in_threadpool(context.require_key)
        return LazyBody(model, await request.body(), request.headers.get("content-type", ""), optional)

    receive_body.body = (model, optional, media_type)  # type: ignore[attr-defined]
    return Depends(receive_body)


def describe_body(route: APIRoute, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Describe the body of a route for the OpenAPI document; add the models that it uses to `schemas`."""
    for dependency in route.dependant.dependencies:
        model, optional, media_type = getattr(dependency.call, "body", (None, False, ""))
        if model is not None:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            return {"required": not optional, "content": {media_type: {"schema": schema}}}
    return None


# Bodies of writes, with the author and the expected revision


_STRONG_ETAG_PATTERN = re.compile(r'(?<!W/)"([^"]*)"')
_EMAIL_PATTERN = r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+"
_AUTHOR_NAME_PATTERN = r"[^\x00-\x1f\x7f<>]*[^\s\x00-\x1f\x7f<>][^\x00-\x1f\x7f<>]*"
_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]

IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag of the page that was read, or *.")]
AuthorHeader = Annotated[
    str | None,
    Header(
        alias="X-Author",
        max_length=500,
        pattern=rf"^{_AUTHOR_NAME_PATTERN} <{_EMAIL_PATTERN}>$",
        description="The commit author as `Name <address>`, if the body has none.",
    ),
]


class CommitAuthor(StrictBody):
    """The author of a commit."""

    name: str = Field(max_length=200, pattern=rf"^{_AUTHOR_NAME_PATTERN}$")
    email: str = Field(max_length=254, pattern=rf"^{_EMAIL_PATTERN}$")


class WriteBody(StrictBody):
    """The fields of every write; `revision` is the revision that the writer has read (empty: none)."""

    commit_message: Annotated[_Text, Field(max_length=10_000)] | None = None
    author: CommitAuthor | None = None
    revision: Annotated[str, Field(max_length=64)] | None = None


class PutPage(WriteBody):
    """The complete content of a page."""

    content: _Text


class DraftBody(StrictBody):
    """The text of a page that is not saved; `revision` is that of the text which was opened (empty: none)."""

    content: _Text
    revision: Annotated[str, Field(max_length=64)] | None = None


class PatchPage(WriteBody):
    """The text to replace, which must occur once, and its replacement."""

    old_string: _Text
    new_string: _Text


class RenamePage(WriteBody):
    """The new path of a page.

    Links to it are updated unless `update_links` is false, and its sub-pages and attachments move with it unless
    `move_subpages` is false.
    """

    new_path: Annotated[_Text, Field(min_length=1, max_length=1000)]
    update_links: bool = True
    move_subpages: bool = True


class PreconditionFailed(RevisionMismatch):
    """If-Match or If-None-Match does not hold."""

    code = "precondition-failed"

    status = 412


def get_author(wiki: WikiSession, body: WriteBody, header: str | None) -> Author:
    """The author from the body, the header, the host, or the label of the key, in this order.

    Raises Forbidden if a signed-in user of the host names another author.
    """
    if wiki.author is not None and wiki.grant.key is None:
        if body.author is not None or header is not None:
            raise Forbidden("You cannot commit as another author.", hint="Leave out the author, or use a key.")
        return wiki.author
    if body.author is not None:
        return Author(body.author.name, body.author.email)
    if header is not None:
        name, _, address = header.removesuffix(">").rpartition(" <")
        return Author(decode_header(name), decode_header(address))
    if wiki.author is not None:
        return wiki.author
    return make_key_author(wiki.grant.key)


def make_key_author(key: Key | None) -> Author:
    """The author of commits with this key: its label, if git accepts it as a name."""
    label, key_id = (key.label, key.id) if key else ("", "nobody")
    return make_author(label, "", key_id, default_name="Wikiholt")


def get_expected_revision(wiki: WikiSession, path: str, body: WriteBody, if_match: str | None) -> str | None:
    """The expected revision of the page from If-Match or the body, or None. Raises PreconditionFailed."""
    if if_match is None:
        return body.revision.lower() if body.revision else None
    revisions: list[str] = [tag.partition(".")[0].lower() for tag in _STRONG_ETAG_PATTERN.findall(if_match)]
    if len(revisions) == 1 and re.fullmatch(r"[0-9a-f]{7,64}", revisions[0]):
        return revisions[0]
    try:
        current = wiki.handle.pages.read(path).revision
    except PageNotFound:
        raise _build_precondition_error(None) from None
    if if_match.strip() == "*" or any(len(revision) >= 7 and current.startswith(revision) for revision in revisions):
        return current
    raise _build_precondition_error(current)


@contextmanager
def check_preconditions(*, by_header: bool) -> Iterator[None]:
    """Turn a revision mismatch into 412 for a header, 409 for the body, or 404 if there is no page."""
    try:
        yield
    except PreconditionFailed:
        raise
    except RevisionMismatch as error:
        if by_header:
            raise _build_precondition_error(error.current) from None
        if error.current is None:
            raise PageNotFound("The page does not exist.", hint="List the pages to see their paths.") from None
        raise


def build_page_exists_error(wiki: WikiSession, path: str, *, by_header: bool) -> RevisionMismatch:
    """Build the error for a write to an existing page without its revision."""
    current = wiki.handle.pages.read(path).revision
    if by_header:
        return PreconditionFailed("The page exists already.", current=current, hint="Send If-Match with its revision.")
    hint = "Read it, then send its revision with the change, or send If-Match: * to overwrite it."
    return RevisionMismatch("Revision required: the page exists already.", current=current, hint=hint)


def _build_precondition_error(current: str | None) -> PreconditionFailed:
    message = "The page has changed since it was read." if current else "The page does not exist."
    return PreconditionFailed(message, current=current, hint="Read it again and apply the change to the new content.")
