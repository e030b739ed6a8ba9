"""Reading pages: the list, one page, its history, what changed lately."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from wikiholt.errors import PageNotFound
from wikiholt.model import PageContent, Scope
from wikiholt.surfaces.documents.commits import (
    ChangelogDocument,
    HistoryDocument,
    build_changelog_document,
    build_commit_document,
)
from wikiholt.surfaces.documents.pages import PageDocument, PageListDocument, build_page_list_document, build_page_document
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.etags import IfNoneMatch, matches_etag, make_not_modified_response, make_weak_etag
from wikiholt.surfaces.http.parameters import Count, NoParams, PageListParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import WikiSession, RequestContextDep

router = APIRouter(prefix="/api/v1", tags=["pages"])

PagePath = Annotated[str, Path(max_length=1100, description="The page's path; slashes may stand as they are.")]


class CommitListParams(NoParams):
    """The newest of a list of commits."""

    limit: Count = Field(50, ge=1, le=1000, description="How many at most.")


class ChangelogParams(CommitListParams):
    """The newest commits, or those before them."""

    offset: Count = Field(0, ge=0, le=1_000_000, description="How many to leave out at the beginning.")


class PageRevisionParams(NoParams):
    """A page at some time."""

    revision: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{7,64}$", description="A commit, by 7 digits or more; the newest if left out."
    )


@router.get("/pages", response_model=PageListDocument, responses=describe_error_responses(304))
def list_pages(context: RequestContextDep, params: Annotated[PageListParams, parse_query(PageListParams)], if_none_match: IfNoneMatch = None) -> Response:
    """List the pages, or those that pass the filters, by path."""
    wiki = context.open_wiki(Scope.READ)
    tag = make_weak_etag("pages", wiki.handle.get_version_token(), params)
    if if_none_match and matches_etag(if_none_match, tag):
        return make_not_modified_response(tag)
    found = wiki.handle.pages.list(wiki.to_git_filter(params.to_filter()), params.limit, params.offset)
    return make_json_response(build_page_list_document(found, wiki.path_style), etag=tag)


@router.get("/changelog", response_model=ChangelogDocument, responses=describe_error_responses())
def changelog(context: RequestContextDep, params: Annotated[ChangelogParams, parse_query(ChangelogParams)]) -> Response:
    """List the commits that touched a page, newest first."""
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(build_changelog_document(wiki.handle.pages.read_changelog(params.limit, params.offset), wiki.path_style))


@router.get("/pages/{path:path}/history", response_model=HistoryDocument | PageDocument, responses=describe_error_responses(404))
def history(context: RequestContextDep, path: PagePath, params: Annotated[CommitListParams, parse_query(CommitListParams)]) -> Response:
    """List the commits that changed a page, newest first."""
    wiki = context.open_wiki(Scope.READ)
    try:
        commits = wiki.handle.pages.read_history(wiki.path_style.to_git_path(path), params.limit)
    except PageNotFound:
        # The address may also be that of a page which is itself called history.
        with suppress(PageNotFound):
            return make_page_response(wiki, f"{path}/history")
        raise
    shown = wiki.path_style.to_display_path(wiki.path_style.to_git_path(path))
    return make_json_response({"path": shown, "history": [build_commit_document(commit) for commit in commits]})


@router.get("/pages/{path:path}", response_model=PageDocument, responses=describe_error_responses(304, 404))
def read_page(context: RequestContextDep, path: PagePath, params: Annotated[PageRevisionParams, parse_query(PageRevisionParams)], if_none_match: IfNoneMatch = None) -> Response:
    """Read a page as it is at HEAD, or at a revision; its tag is what If-Match of a write takes."""
    return make_page_response(context.open_wiki(Scope.READ), path, params.revision, if_none_match)


def make_page_response(wiki: WikiSession, path: str, revision: str | None = None, if_none_match: str | None = None) -> Response:
    """The page of this path; raises PageNotFound."""
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path), revision)
    tag = make_page_etag(page)
    if if_none_match and matches_etag(if_none_match, tag):
        return make_not_modified_response(tag)
    return make_json_response(build_page_document(page, wiki.path_style), etag=tag)


def make_page_etag(page: PageContent) -> str:
    """The page's revision, and after a dot what else the answer depends on: a write looks at the first part alone."""
    rest = make_weak_etag(page.links_to, page.linked_from, page.missing, page.blob, page.notes)
    return f'"{page.revision}.{rest[3:-1]}"'
