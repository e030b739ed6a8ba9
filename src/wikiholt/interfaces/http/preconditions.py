"""The request headers of writes: If-Match, If-None-Match and X-Author, in place of fields of the body."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers

from wikiholt.api.operations.page_writes import (
    AUTHOR_NAME_PATTERN,
    EMAIL_PATTERN,
    CommitAuthor,
    CommitParameters,
)
from wikiholt.api.operations.parameters import Parameters
from wikiholt.errors import PageExists, PageNotFound, RevisionMismatch
from wikiholt.interfaces.http.sign_in import decode_header
from wikiholt.wikis.session import WikiSession

_STRONG_ETAG_PATTERN = re.compile(r'(?<!W/)"([^"]*)"')
_AUTHOR_PATTERN = rf"^{AUTHOR_NAME_PATTERN} <{EMAIL_PATTERN}>$"
_MAX_AUTHOR_CHARS = 500
_AUTHOR_TEXT = "The commit author as `Name <address>`, if the body has none."


class PreconditionFailed(RevisionMismatch):
    """If-Match or If-None-Match does not hold."""

    code = "precondition-failed"

    status = 412


def describe_headers(model: type[Parameters]) -> Iterator[dict[str, Any]]:
    """Describe the headers of a write for the OpenAPI document."""
    if "revision" in model.model_fields and issubclass(model, CommitParameters):
        yield describe_header("If-Match", "The ETag of the page that was read, or *.")
    if "create_only" in model.model_fields:
        yield describe_header("If-None-Match", "`*`: only create.", const="*")
    if issubclass(model, CommitParameters):
        yield describe_author_header()


def describe_author_header() -> dict[str, Any]:
    """Describe the header with the author of a commit."""
    return describe_header("X-Author", _AUTHOR_TEXT, maxLength=_MAX_AUTHOR_CHARS, pattern=_AUTHOR_PATTERN)


def describe_header(name: str, text: str, **schema: Any) -> dict[str, Any]:
    """Describe a header for the OpenAPI document."""
    schema = {"type": "string", **schema, "description": text}
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


@contextmanager
def apply_headers(headers: Headers, wiki: WikiSession, parameters: CommitParameters) -> Iterator[CommitParameters]:
    """The parameters with what the headers say, and their errors as those of a precondition.

    Raises RequestValidationError or PreconditionFailed.
    """
    fields, changes = type(parameters).model_fields, dict[str, object]()
    if (author := parse_author(headers)) is not None:
        changes["author"] = parameters.author or author
    if_match = headers.get("if-match") if "revision" in fields else None
    if if_match is not None:
        changes["revision"] = _find_expected_revision(wiki, wiki.path_style.to_git_path(parameters.path), if_match)
    if_none_match = headers.get("if-none-match") if "create_only" in fields else None
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise RequestValidationError(
                [{"type": "literal_error", "loc": ("header", "If-None-Match"), "msg": "Input should be '*'"}]
            )
        changes |= {"create_only": True}
    try:
        yield parameters.model_copy(update=changes)
    except PageExists as error:
        if if_none_match is None:
            raise
        raise PreconditionFailed(error.message, current=None, hint=error.hint) from None
    except RevisionMismatch as error:
        if if_none_match is not None:
            hint = "Send If-Match with its revision."
            raise PreconditionFailed("The page exists already.", current=error.current, hint=hint) from None
        if if_match is not None:
            raise _build_precondition_error(error.current) from None
        if error.current is None:
            raise PageNotFound("The page does not exist.", hint="List the pages to see their paths.") from None
        raise


def parse_author(headers: Headers) -> CommitAuthor | None:
    """The author in X-Author, if there is one. Raises RequestValidationError."""
    header = headers.get("x-author")
    if header is None:
        return None
    if len(header) > _MAX_AUTHOR_CHARS or not re.fullmatch(_AUTHOR_PATTERN, header):
        message = f"String should match pattern '{_AUTHOR_PATTERN}'"
        raise RequestValidationError([{"type": "pattern", "loc": ("header", "X-Author"), "msg": message}])
    name, _, address = header.removesuffix(">").rpartition(" <")
    return CommitAuthor.model_construct(name=decode_header(name), email=decode_header(address))


def _find_expected_revision(wiki: WikiSession, path: str, if_match: str) -> str:
    """The expected revision of the page. Raises PreconditionFailed."""
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


def _build_precondition_error(current: str | None) -> PreconditionFailed:
    message = "The page has changed since it was read." if current else "The page does not exist."
    return PreconditionFailed(message, current=current, hint="Read it again and apply the change to the new content.")
