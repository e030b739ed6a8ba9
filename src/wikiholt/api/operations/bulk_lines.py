"""Pages as NDJSON: one JSON object per line to write, and one per line as the result."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from wikiholt.api.documents.admin_documents import ErrorDocument
from wikiholt.errors import InvalidPage, WikiholtError
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult, BulkOutcome, iter_batches
from wikiholt.wikis.session import STORED_PATHS, PathStyle

ErrorDescriber = Callable[[WikiholtError], tuple[str, str]]
"""Returns the message and the hint that the caller may see."""
BatchWriter = Callable[[Sequence[BulkLine]], Sequence[BulkLineResult]]


class BulkPage(BaseModel):
    """A page to write, or (`delete`) to delete."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
    content: Annotated[str, Field(pattern=r"^[^\x00]*$")] | None = None
    delete: bool = False


class BulkErrorDocument(ErrorDocument):
    """Why a line was not written."""


class BulkResultDocument(TypedDict):
    """The result of a line: the page is committed when this is sent, unless the result is `failed`."""

    line: int
    path: str | None
    result: BulkOutcome
    revision: str | None
    error: BulkErrorDocument | None


def write_lines(
    raw_lines: Iterable[bytes],
    write: BatchWriter,
    path_style: PathStyle = STORED_PATHS,
    describe_error: ErrorDescriber = lambda error: (error.message, error.hint),
) -> Iterator[BulkResultDocument]:
    """Write the lines as `write_batches` does; skips empty lines."""
    numbered = ((number, raw) for number, raw in enumerate(raw_lines, 1) if raw.strip())
    batches = (
        [_parse_line(number, raw, path_style) for number, raw in batch]
        for batch in iter_batches(numbered, lambda line: len(line[1]))
    )
    yield from write_batches(batches, write, path_style, describe_error)


def write_batches(
    batches: Iterable[Sequence[BulkLine | BulkLineResult]],
    write: BatchWriter,
    path_style: PathStyle = STORED_PATHS,
    describe_error: ErrorDescriber = lambda error: (error.message, error.hint),
) -> Iterator[BulkResultDocument]:
    """Write the lines of each batch, and yield the results, also those that are known, after it is committed.

    Raises what the first batch raises. If a later batch raises, all further lines fail with that error.
    """
    error: WikiholtError | None = None
    is_first = True
    for batch in batches:
        lines = [line for line in batch if isinstance(line, BulkLine)]
        results = [line for line in batch if isinstance(line, BulkLineResult)]
        if error is None:
            try:
                results += write(lines)
            except WikiholtError as caught:
                if is_first:
                    raise
                error = caught
        if error is not None:
            results += [make_failure(line.number, line.path, error) for line in lines]
        is_first = False
        for result in sorted(results, key=lambda result: result.number):
            yield _build_document(result, path_style, describe_error)


def _build_document(
    result: BulkLineResult, path_style: PathStyle, describe_error: ErrorDescriber
) -> BulkResultDocument:
    error = result.error
    message, hint = describe_error(error) if error else ("", "")
    return {
        "line": result.number,
        "path": path_style.to_display_path(result.path) if result.path else None,
        "result": result.outcome,
        "revision": result.revision or None,
        "error": {"code": error.code, "message": message, "hint": hint} if error else None,
    }


def _parse_line(number: int, raw: bytes, path_style: PathStyle) -> BulkLine | BulkLineResult:
    try:
        page = BulkPage.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, fault["loc"]))
        message = f"{name}: {fault['msg']}" if name else fault["msg"]
        return make_failure(number, "", InvalidPage(message, hint=_LINE_HINT))
    if page.delete == (page.content is not None):
        return make_failure(number, page.path, InvalidPage("send either content or delete", hint=_LINE_HINT))
    return BulkLine(number, path_style.to_git_path(page.path), page.content)


_LINE_HINT = 'Write {"path": "guides/Setup", "content": "…"} or {"path": "guides/Setup", "delete": true} on one line.'


def make_failure(number: int, path: str, error: WikiholtError) -> BulkLineResult:
    return BulkLineResult(number, path, BulkOutcome.FAILED, error=error)
