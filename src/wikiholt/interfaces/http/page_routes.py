"""Routes for pages: list, read, history, write, rename, delete, many at once, and links between pages."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.api.documents.page_documents import (
    ChangelogDocument,
    CommitDocument,
    GraphDocument,
    HistoryDocument,
    LinksDocument,
    OrphansDocument,
    PageDeleteDocument,
    PageDocument,
    PageListDocument,
    PageRenameDocument,
    PageWriteDocument,
    build_changelog_document,
    build_delete_document,
    build_graph_document,
    build_links_document,
    build_orphans_document,
    build_page_document,
    build_page_list_document,
    build_rename_document,
)
from wikiholt.api.operations.bulk_lines import BulkPage, BulkResultDocument, write_lines
from wikiholt.api.operations.parameters import Count, Flag, ListParameters, Parameters
from wikiholt.api.operations.similar_paths import suggest_paths
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.page import PageWriteResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexMissing, InputTooLarge, InvalidPage, PageExists, PageNotFound
from wikiholt.interfaces.http.problem_details import Responses, describe_route
from wikiholt.interfaces.http.query_params import NoQuery, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import (
    PRIVATE_CACHE_CONTROL,
    IfNoneMatch,
    encode_json,
    make_cached_response,
    make_json_response,
    make_weak_etag,
)
from wikiholt.interfaces.http.write_request import (
    AuthorHeader,
    IfMatch,
    LazyBody,
    PatchPage,
    PutPage,
    RenamePage,
    WriteBody,
    build_page_exists_error,
    check_preconditions,
    get_author,
    get_expected_revision,
    read_body,
)
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult
from wikiholt.wikis.session import WikiSession

router = APIRouter(prefix="/api/v1", tags=["pages"])

PagePath = Annotated[str, Path(max_length=1100, description="The path of the page; slashes need no encoding.")]


class PageListParams(ListParameters):
    """Filters and paging of the page list, which is sorted by path."""

    limit: Count = Field(10_000, ge=1, le=10_000, description="Maximum number of entries.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class CommitListParams(Parameters):
    """Parameters of a list of commits, newest first."""

    limit: Count = Field(50, ge=1, le=1000, description="Maximum number of entries.")


class ChangelogParams(CommitListParams):
    """Parameters of the changelog, newest commit first."""

    offset: Count = Field(0, ge=0, le=1_000_000, description="Number of entries to skip.")
    all: Flag = Field(False, description="Also list commits that changed no page, such as those of attachments.")


class PageRevisionParams(Parameters):
    """The revision of a page to read."""

    revision: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{7,64}$", description="A commit id of at least 7 digits; default: HEAD."
    )


@router.get("/pages", **describe_route(PageListDocument, 304))
def list_pages(
    context: RequestContextDep,
    params: Annotated[PageListParams, parse_query(PageListParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the pages that match the filters, sorted by path."""
    wiki = context.open_wiki(Scope.READ)
    where = wiki.to_git_filter(params.to_filter())
    with suppress(IndexMissing), wiki.handle.open_snapshot() as snapshot:
        snapshot.pages.require_complete()
        return make_cached_response(
            make_weak_etag("pages", wiki.wiki, snapshot.version, params),
            if_none_match,
            lambda: build_page_list_document(snapshot.pages.list(where, params.limit, params.offset), wiki.path_style),
        )
    # From git: until the first sync has ended, the index has only a part of the pages.
    listed = wiki.handle.pages.list(where, params.limit, params.offset)
    return make_json_response(build_page_list_document(listed, wiki.path_style))


@router.get("/changelog", operation_id="changelog_api_v1_changelog_get", **describe_route(ChangelogDocument))
def list_changes(
    context: RequestContextDep, params: Annotated[ChangelogParams, parse_query(ChangelogParams)]
) -> Response:
    """List the commits that changed pages, newest first."""
    wiki = context.open_wiki(Scope.READ)
    entries = wiki.handle.pages.read_changelog(params.limit + 1, params.offset, all_commits=params.all)
    more = len(entries) > params.limit
    return make_json_response(build_changelog_document(entries[: params.limit], wiki.path_style, more=more))


@router.get(
    "/pages/{path:path}/history",
    operation_id="history_api_v1_pages__path__history_get",
    **describe_route(HistoryDocument | PageDocument, 404),
)
def list_page_history(
    context: RequestContextDep, path: PagePath, params: Annotated[CommitListParams, parse_query(CommitListParams)]
) -> Response:
    """List the commits that changed a page, newest first."""
    wiki = context.open_wiki(Scope.READ)
    try:
        with suggest_paths(wiki, path):
            commits = wiki.handle.pages.read_history(wiki.path_style.to_git_path(path), params.limit)
    except PageNotFound:
        # The URL may also name a page whose own name is "history".
        with suppress(PageNotFound):
            return make_page_response(wiki, f"{path}/history")
        raise
    shown = wiki.path_style.to_display_path(wiki.path_style.to_git_path(path))
    return make_json_response({"path": shown, "history": build_documents(CommitDocument, commits)})


@router.get("/pages/{path:path}", **describe_route(PageDocument, 304, 404))
def read_page(
    context: RequestContextDep,
    path: PagePath,
    params: Annotated[PageRevisionParams, parse_query(PageRevisionParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a page at HEAD or at a revision. Its ETag is valid for If-Match of a write."""
    return make_page_response(context.open_wiki(Scope.READ), path, params.revision, if_none_match)


def make_page_response(
    wiki: WikiSession, path: str, revision: str | None = None, if_none_match: str | None = None
) -> Response:
    """Read the page at this path and make the response. Raises PageNotFound."""
    with suggest_paths(wiki, path):
        page = wiki.handle.pages.read(wiki.path_style.to_git_path(path), revision)
    # The revision, which writes compare, a dot, and a hash of all else in the response.
    rest = make_weak_etag(page.links_to, page.linked_from, page.missing, page.blob, page.notes)
    tag = f'"{page.revision}.{rest[3:-1]}"'
    return make_cached_response(tag, if_none_match, lambda: build_page_document(page, wiki.path_style))


# Writes: each is a commit based on the revision that the writer has read, and schedules a sync


_CREATED_RESPONSE: Responses = {201: {"model": PageWriteDocument, "description": "The page was created."}}
IfNoneMatchAny = Annotated[Literal["*"] | None, Header(alias="If-None-Match", description="`*`: only create.")]
RawPutPage = Annotated[LazyBody[PutPage], read_body(PutPage)]
RawPatchPage = Annotated[LazyBody[PatchPage], read_body(PatchPage)]
RawRenamePage = Annotated[LazyBody[RenamePage], read_body(RenamePage)]
RawWriteBody = Annotated[LazyBody[WriteBody], read_body(WriteBody, optional=True)]


@router.put("/pages/{path:path}", **describe_route(PageWriteDocument, 404, 409, 412, 413, others=_CREATED_RESPONSE))
def put_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawPutPage,
    _: NoQuery,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatchAny = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Write a page. For an existing page, send the revision that you have read, in the body or as If-Match."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path, by_header = wiki.path_style.to_git_path(path), if_match is not None or if_none_match is not None
    with check_preconditions(by_header=by_header):
        expected = None if if_none_match else get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        try:
            written = wiki.handle.pages.write(
                path, body.content, author, message, expected=expected, create_only=expected is None
            )
        except PageExists:
            raise build_page_exists_error(wiki, path, by_header=by_header) from None
    wiki.report_write(written, author, message)
    return _make_write_response(wiki, written, 201 if written.created else 200)


def _make_write_response(wiki: WikiSession, written: PageWriteResult, status: int) -> Response:
    document = build_document(PageWriteDocument, written, wiki.path_style)
    return make_json_response(document, status, etag=f'"{written.revision}"')


@router.patch("/pages/{path:path}", **describe_route(PageWriteDocument, 404, 409, 412, 413))
def patch_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawPatchPage,
    _: NoQuery,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Replace the only occurrence of `old_string` in a page. Send the revision that you have read."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path = wiki.path_style.to_git_path(path)
    if not body.revision and if_match is None:
        raise InvalidPage(
            "The revision is missing: at least 7 characters.",
            hint="Read the page, then send its revision with the change.",
        )
    if body.old_string == body.new_string:
        raise InvalidPage("old_string and new_string are identical.", hint="Send a different new_string.")
    with check_preconditions(by_header=if_match is not None):
        expected = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        written = wiki.handle.pages.replace_text(
            path, body.old_string, body.new_string, author, message, expected=expected
        )
    wiki.report_write(written, author, message)
    return _make_write_response(wiki, written, 200)


@router.delete("/pages/{path:path}", **describe_route(PageDeleteDocument, 404, 409, 412, 413))
def delete_page(
    context: RequestContextDep,
    path: PagePath,
    _: NoQuery,
    raw_body: RawWriteBody,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Delete a page; its content stays in the git history."""
    return delete_and_respond(context.open_wiki(Scope.WRITE), path, raw_body.read(), if_match, author_header)


def delete_and_respond(
    wiki: WikiSession, path: str, body: WriteBody, if_match: str | None, author_header: str | None
) -> Response:
    """Delete the page at this path and make the response. Raises PageNotFound."""
    path = wiki.path_style.to_git_path(path)
    with check_preconditions(by_header=if_match is not None):
        expected = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        deleted = wiki.handle.pages.delete(path, author, message, expected=expected)
    wiki.report_write(deleted, author, message)
    return make_json_response(build_delete_document(deleted, wiki.path_style))


@router.post("/pages/{path:path}/rename", **describe_route(PageRenameDocument, 404, 409, 412, 413))
def rename_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawRenamePage,
    _: NoQuery,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Rename a page; its sub-pages and attachments move with it, and links are updated in the same commit."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path, new_path = wiki.path_style.to_git_path(path), wiki.path_style.to_git_path(body.new_path)
    with check_preconditions(by_header=if_match is not None):
        expected = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        renamed = wiki.handle.pages.rename(
            path,
            new_path,
            author,
            message,
            expected=expected,
            update_links=body.update_links,
            move_subpages=body.move_subpages,
            to_link_path=wiki.path_style.to_link_path,
        )
    wiki.report_write(renamed, author, message)
    return make_json_response(build_rename_document(renamed, wiki.path_style), etag=f'"{renamed.revision}"')


# Many pages as NDJSON


bulk_router = APIRouter(prefix="/api/v1", tags=["pages"])

MAX_BULK_LINES = 10_000
_NDJSON_MEDIA_TYPE = "application/x-ndjson"
_OTHER_NDJSON_TYPES = ("application/ndjson", "application/jsonl", "application/x-jsonlines")
_BULK_RESPONSE: Responses = {
    200: {"content": {_NDJSON_MEDIA_TYPE: {}}, "description": "One result per line, sent once it is committed."}
}


class BulkParams(Parameters):
    """The message of the commits."""

    message: str = Field("", max_length=1000, pattern=r"^[^\x00]*$", description="The message of the commits.")


@bulk_router.post("/pages:bulk", **describe_route(BulkResultDocument, 404, 409, 413, others=_BULK_RESPONSE))
def write_pages(
    context: RequestContextDep,
    raw_body: Annotated[LazyBody[BulkPage], read_body(BulkPage, media_type=_NDJSON_MEDIA_TYPE)],
    params: Annotated[BulkParams, parse_query(BulkParams)],
    author_header: AuthorHeader = None,
) -> Response:
    """Write or delete many pages: a JSON object per line. Repeating a line changes nothing."""
    wiki = context.open_wiki(Scope.WRITE)
    raw_body.require_media_type(_NDJSON_MEDIA_TYPE, *_OTHER_NDJSON_TYPES)
    lines = raw_body.data.split(b"\n")
    if len(lines) > MAX_BULK_LINES + 1:
        raise InputTooLarge(
            f"The body has more than {MAX_BULK_LINES:,} lines; nothing was written.",
            hint="Send the lines in several requests.",
        )
    author = get_author(wiki, WriteBody(), author_header)

    def write(batch: Sequence[BulkLine]) -> Sequence[BulkLineResult]:
        results = wiki.handle.pages.write_many(batch, author, params.message)
        wiki.report_bulk_write(results, author, params.message)
        return results

    documents = write_lines(lines, write, wiki.path_style, get_public_message)
    first = list(islice(documents, 1))  # an error of the first batch becomes an error response
    encoded = (encode_json(document) + b"\n" for document in chain(first, documents))
    return StreamingResponse(encoded, 200, {"Cache-Control": PRIVATE_CACHE_CONTROL}, _NDJSON_MEDIA_TYPE)


# Links between pages


links_router = APIRouter(prefix="/api/v1", tags=["links"])


@links_router.get("/links", operation_id="graph_api_v1_links_get", **describe_route(GraphDocument, 304))
def get_link_graph(context: RequestContextDep, _: NoQuery, if_none_match: IfNoneMatch = None) -> Response:
    """List all pages and the links between them."""
    wiki = context.open_wiki(Scope.READ)
    with wiki.handle.open_snapshot() as snapshot:
        return make_cached_response(
            make_weak_etag("links", wiki.wiki, snapshot.version),
            if_none_match,
            lambda: build_graph_document(snapshot.pages.build_graph(), wiki.path_style),
        )


@links_router.get(
    "/links/{path:path}", operation_id="links_api_v1_links__path__get", **describe_route(LinksDocument, 404)
)
def get_page_links(context: RequestContextDep, path: PagePath, _: NoQuery) -> Response:
    """List the pages that a page links to and the pages that link to it."""
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(
        build_links_document(wiki.handle.pages.get_links(wiki.path_style.to_git_path(path)), wiki.path_style)
    )


@links_router.get("/orphans", operation_id="orphans_api_v1_orphans_get", **describe_route(OrphansDocument))
def find_orphans(context: RequestContextDep, _: NoQuery) -> Response:
    """List the pages that no other page links to."""
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(build_orphans_document(wiki.handle.pages.find_orphans(), wiki.path_style))
