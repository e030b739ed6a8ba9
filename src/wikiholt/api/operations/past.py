"""Searches of the wiki as it was, and the indexes that they need."""

from dataclasses import replace

from pydantic import Field

from wikiholt.api.documents.past_documents import (
    PastResultDocument,
    PastViewsDocument,
    build_past_document,
    build_view_document,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import Parameters
from wikiholt.api.operations.search import SearchParameters
from wikiholt.domain.wiki import Scope
from wikiholt.git.past import MAX_NAME_CHARS
from wikiholt.wikis.session import WikiSession


class PastSearchParameters(SearchParameters):
    """Parameters of a search in the past."""

    at: str = Field(
        min_length=1,
        max_length=MAX_NAME_CHARS,
        pattern=r"^[^\x00]+$",
        description="A tag, a branch, a commit, or a date such as 2025-06-01: the wiki at the end of that day, in UTC.",
    )


PAST_OPERATIONS = OperationTable("past", scope=Scope.PAST, caching=Caching.NEVER)


@PAST_OPERATIONS.add("GET /past/search", errors=(404,))
def search_past(wiki: WikiSession, parameters: PastSearchParameters) -> PastResultDocument:
    """Search the wiki as it was. Each hit says what became of its page. The first search at a commit indexes it."""
    request = parameters.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    with wiki.use_handle():
        return build_past_document(wiki.search_past(parameters.at, request), wiki.path_style)


@PAST_OPERATIONS.add("GET /past")
def list_past(wiki: WikiSession, _: Parameters) -> PastViewsDocument:
    """List the past commits that have an index, the last used first."""
    views = [build_view_document(view) for view in wiki.handle.past.list_views()]
    return {"views": views, "total": len(views)}
