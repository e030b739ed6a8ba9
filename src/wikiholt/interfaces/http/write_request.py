"""Bodies of requests: taken as bytes, and understood only once it is clear that who sent them may.

The framework would read JSON before anybody was asked for a key, and in the event loop, where everybody waits for it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Header
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from wikiholt.domain.git import Author
from wikiholt.errors import Forbidden, PageNotFound, RevisionMismatch
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.wikis.session import WikiSession

BodyT = TypeVar("BodyT", bound=BaseModel)


class StrictBody(BaseModel):
    """A body in which a field that is not known is an error, and a number is no text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LazyBody(Generic[BodyT]):
    """A body that has not been looked at yet."""

    def __init__(self, model: type[BodyT], data: bytes, content_type: str, *, optional: bool) -> None:
        self._model = model
        self._data = data
        self._content_type = content_type
        self._optional = optional

    def read(self) -> BodyT:
        """What the body says; raises RequestValidationError."""
        if self._optional and not self._data:
            return self._model()
        if self._content_type.partition(";")[0].strip().lower() != "application/json":
            raise _build_unreadable_error("it must be sent as Content-Type: application/json")
        try:
            return self._model.model_validate_json(self._data)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


def read_body(model: type[BodyT], *, optional: bool = False) -> Any:
    """A dependency that gives the body, of who has a key, as something to be read as this model."""

    async def take_body(request: Request, context: RequestContextDep) -> LazyBody[BodyT]:
        await run_in_threadpool(context.require_key)
        kind = request.headers.get("content-type", "")
        return LazyBody(model, await request.body(), kind, optional=optional)

    take_body.body = (model, optional)  # type: ignore[attr-defined]
    return Depends(take_body)


def describe_body(route: APIRoute, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """What a route takes as its body, for the OpenAPI document; the models it is made of go to `schemas`."""
    for dependency in route.dependant.dependencies:
        model, optional = getattr(dependency.call, "body", (None, False))
        if model is not None:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            return {"required": not optional, "content": {"application/json": {"schema": schema}}}
    return None


def _build_unreadable_error(message: str) -> RequestValidationError:
    return RequestValidationError([{"type": "unreadable", "loc": ("body",), "msg": message}])


# What a write says: the page's new form, who it is by, and which revision it is based on.


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
