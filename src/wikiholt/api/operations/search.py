"""Searches: by query, by page, filter values, and the query report."""

from dataclasses import replace

from pydantic import Field

from wikiholt.api.documents.search_documents import (
    DuplicatesDocument,
    FacetsDocument,
    QueryReportDocument,
    SearchResultDocument,
    build_duplicates_document,
    build_facets_document,
    build_query_report_document,
    build_result_document,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import (
    Count,
    FilterParameters,
    FilterValue,
    Flag,
    ListParameters,
    PagePath,
    Parameters,
    QueryText,
    SlugValue,
)
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.search import SearchInterface, SearchMode, SortOrder
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidQuery
from wikiholt.search.hits import count_hit_facets
from wikiholt.search.request import (
    MAX_CHUNKS_PER_PAGE,
    MAX_FACETS,
    MAX_HITS,
    MAX_OFFSET,
    MAX_QUERY_CHARS,
    SearchRequest,
)
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.multi_search import MAX_WIKIS_PER_SEARCH, OpenedWikis, search_wikis
from wikiholt.wikis.session import WikiSession

_COLLAPSE_TEXT = "Whether pages whose passages are nearly the same are one hit, which names the others in also_on."
_HITS_TEXT = "Maximum number of pages; of chunks if max_chunks_per_page is more than 1."


class FacetParameters(ListParameters):
    """Filters, and the properties to count."""

    facets: list[FilterValue] = Field(
        [],
        max_length=MAX_FACETS,
        description="A frontmatter property whose values are counted; may be repeated.",
    )


class FacetQueryParameters(FacetParameters):
    """Parameters of the facets, which may be those of the pages that a query finds."""

    q: str = Field("", max_length=MAX_QUERY_CHARS, description="Count only pages that match this query.")
    mode: SearchMode = Field(SearchMode.HYBRID, description="How the query finds pages.")


class SearchParameters(FacetParameters):
    """Parameters of a search."""

    q: QueryText = Field(
        description='A question or words; "a phrase", -word, tag:x, path:x, title:x, lang:x, OR work too.'
    )
    n: Count = Field(10, ge=1, le=MAX_HITS, description=_HITS_TEXT)
    mode: SearchMode = Field(
        SearchMode.HYBRID, description="Search by meaning and words, by meaning only, or by words only."
    )
    max_chunks_per_page: Count = Field(
        1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="Maximum number of chunks of one page."
    )
    fresh: Flag = Field(False, description="Wait, for a limited time, until the index reaches HEAD.")
    at_least: str = Field(
        "",
        pattern="^([0-9a-f]{7,64})?$",
        description="A commit, as a write answers: wait, for a limited time, until the index contains it.",
    )
    offset: Count = Field(0, ge=0, le=MAX_OFFSET, description="Number of hits to skip.")
    sort: SortOrder = Field(
        SortOrder.RELEVANCE,
        description="By relevance, or the newest of the relevant pages first.",
    )
    rerank: Flag | None = Field(
        None,
        description="Whether the reranker rescores the best pages; default: for unclear answers, by rerank.model.",
    )

    explain: Flag = Field(False, description="Whether each hit says in one line why it is there.")
    collapse: Flag = Field(True, description=_COLLAPSE_TEXT)

    @property
    def waits_for_index(self) -> bool:
        return bool(self.fresh or self.at_least)

    def to_request(self) -> SearchRequest:
        return SearchRequest(
            self.q,
            self.n,
            self.mode,
            self.to_filter(),
            self.max_chunks_per_page,
            self.rerank,
            self.offset,
            self.sort,
            tuple(self.facets),
            self.explain,
            self.collapse,
        )


class WikiSearchParameters(SearchParameters):
    """Parameters of a search that may cover several wikis."""

    wiki: list[SlugValue] = Field(
        [],
        max_length=MAX_WIKIS_PER_SEARCH,
        description="Search this wiki; may be repeated. Needs an operator key, or the key of each wiki.",
    )


class SemanticParameters(SearchParameters):
    """Parameters of a search by meaning, for clients of otterwiki-semantic-search."""

    n: Count = Field(5, ge=1, le=MAX_HITS, description=_HITS_TEXT)
    mode: SearchMode = Field(SearchMode.SEMANTIC, description="Search by meaning only, unless set otherwise.")
    collapse: Flag = Field(False, description=_COLLAPSE_TEXT)


class SimilarParameters(FilterParameters):
    """Parameters of a search for similar pages."""

    path: PagePath
    n: Count = Field(5, ge=1, le=MAX_HITS, description="Maximum number of pages.")
    collapse: Flag = Field(
        True, description="Whether near-duplicates of the page are left out, and those of a hit are named in also_on."
    )


class DuplicatesParameters(FilterParameters):
    """Parameters of the report of near-duplicates."""

    limit: Count = Field(100, ge=1, le=1000, description="Maximum number of groups of pages, and of passages.")


class ReportParameters(Parameters):
    """Parameters of the query report."""

    days: Count = Field(0, ge=0, le=3660, description="Number of days to report; 0 means all that are kept.")
    limit: Count = Field(10, ge=1, le=1000, description="Maximum number of rows of each list.")


def wait_for_index(wiki: WikiSession, parameters: SearchParameters) -> None:
    """Wait as long as the parameters ask for, before the index is read."""
    if parameters.fresh:
        wiki.wait_until_fresh()
    elif parameters.at_least:
        wiki.wait_for_revision(parameters.at_least)


def search_several(opened: OpenedWikis, parameters: SearchParameters) -> SearchResultDocument:
    """Search each wiki by itself and merge the hits."""
    interfaces = {session.interface for session in opened.sessions}
    if parameters.at_least or (parameters.fresh and interfaces != {SearchInterface.CLI}):
        raise InvalidQuery("fresh and at_least are for one wiki.", hint="Name the wiki: /w/SLUG/api/v1/search")
    if parameters.fresh:
        for session in opened.sessions:
            session.wait_until_fresh()
    result = search_wikis(
        [session.handle for session in opened.sessions],
        parameters.to_request(),
        interface=interfaces.pop(),
        failures=opened.failures,
        describe_error=lambda error: get_public_message(error)[0],
    )
    return build_result_document(result)


SEARCH_OPERATIONS = OperationTable("search", caching=Caching.VERSION, is_search=True)


@SEARCH_OPERATIONS.add("GET /search", run_several=search_several)
def search(
    wiki: WikiSession, parameters: WikiSearchParameters, snapshot: IndexSnapshot | None = None
) -> SearchResultDocument:
    """Find pages by meaning and by words; with an operator key or a list of keys, in several wikis."""
    return _search(wiki, parameters, snapshot)


def _search(wiki: WikiSession, parameters: SearchParameters, snapshot: IndexSnapshot | None) -> SearchResultDocument:
    request = parameters.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    with wiki.use_handle() as handle:
        result = handle.search(request, interface=wiki.interface, snapshot=snapshot)
    return build_result_document(result, wiki.path_style)


@SEARCH_OPERATIONS.add("GET /semantic-search", "semantic_search")
def search_semantic(
    wiki: WikiSession, parameters: SemanticParameters, snapshot: IndexSnapshot | None = None
) -> SearchResultDocument:
    """Find pages by meaning, with a superset of the parameters and fields of otterwiki-semantic-search."""
    if "max_chunks_per_page" not in parameters.model_fields_set:
        parameters = parameters.model_copy(update={"max_chunks_per_page": wiki.semantic_chunks_per_page})
    return _search(wiki, parameters, snapshot)


@SEARCH_OPERATIONS.add("GET /similar", "similar", errors=(404,))
def find_similar(
    wiki: WikiSession, parameters: SimilarParameters, snapshot: IndexSnapshot | None = None
) -> SearchResultDocument:
    """Find the pages most similar in meaning to one page."""
    path, where = wiki.path_style.to_git_path(parameters.path), wiki.to_git_filter(parameters.to_filter())
    with wiki.use_handle() as handle:
        result = handle.find_similar(path, parameters.n, where, collapse=parameters.collapse, snapshot=snapshot)
    return build_result_document(result, wiki.path_style)


@SEARCH_OPERATIONS.add("GET /facets", "facets")
def count_facets(wiki: WikiSession, parameters: FacetQueryParameters, snapshot: IndexSnapshot) -> FacetsDocument:
    """List the categories, tags, folders and values of frontmatter properties, with their page counts.

    With a query, only those of pages that contain its words or are likely answers, among its best 100 pages.
    """
    where = wiki.to_git_filter(parameters.to_filter())
    if not parameters.q.strip():
        return build_facets_document(snapshot.pages.get_facets(where, parameters.facets))
    request = SearchRequest(parameters.q, MAX_HITS, parameters.mode, where, rerank=False)
    result = wiki.handle.search(request, snapshot=snapshot)
    return build_facets_document(count_hit_facets(result.hits, where.path_prefix))


@SEARCH_OPERATIONS.add("GET /duplicates", "duplicates", scope=Scope.WRITE, is_search=False)
def report_duplicates(
    wiki: WikiSession, parameters: DuplicatesParameters, snapshot: IndexSnapshot | None = None
) -> DuplicatesDocument:
    """List the pages and passages that are nearly the same, in groups with their places."""
    with wiki.use_handle() as handle:
        duplicates = handle.find_duplicates(wiki.to_git_filter(parameters.to_filter()), snapshot=snapshot)
    return build_duplicates_document(wiki.wiki.slug, duplicates, parameters.limit, wiki.path_style)


@SEARCH_OPERATIONS.add(
    "GET /report", "report", scope=Scope.ADMIN, caching=Caching.NEVER, errors=(404,), is_search=False
)
def report_queries(wiki: WikiSession, parameters: ReportParameters) -> QueryReportDocument:
    """Show frequent, unanswered and slow queries, and pages that no search finds."""
    report = wiki.handle.query_log.build_report(parameters.days, parameters.limit)
    return build_query_report_document(wiki.wiki.slug, report, wiki.path_style)
