"""The tools that search, with results cut to the token budget."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.search_documents import format_did_you_mean
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.search import Hit, SearchInterface, SearchMode, SearchResult, SortOrder
from wikiholt.errors import Forbidden
from wikiholt.interfaces.mcp.mcp_tool import DATA_NOTE, tool
from wikiholt.interfaces.mcp.text_output import (
    estimate_json_tokens,
    estimate_tokens,
    fit_to_budget,
    format_compact_json,
    shorten_fields,
    truncate_text,
)
from wikiholt.interfaces.mcp.tool_schemas import DATA_NOTICE, Continuation, FilterArguments, PagePathArgument
from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_OFFSET, MAX_QUERY_CHARS, SearchRequest
from wikiholt.search.spell_check import format_as_typed
from wikiholt.wikis import multi_search
from wikiholt.wikis.multi_search import MAX_WIKIS_PER_SEARCH, OpenedWikis
from wikiholt.wikis.session import STORED_PATHS, PathStyle, WikiSession

_HIT_TEXTS = ("title", "heading_path", "category", "tags", "snippet")
_STALE_NOTE = "The index is behind the newest commit: the latest changes may be missing."
_NOTHING_RELEVANT_NOTE = (
    "Nothing relevant was found: the pages listed, if any, are only the closest ones. Say so, or search with other "
    "words, or use list_pages."
)


class SearchArguments(FilterArguments):
    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description='A question or words; "a phrase", -word, tag:x, path:x, title:x and OR work too.',
    )
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and keywords, by meaning only, or by keywords only."
    )
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Number of results to skip.")
    sort: Literal["relevance", "date"] = Field(
        "relevance", description="By relevance, or the newest of the relevant pages first."
    )
    fresh: bool = Field(
        False, description="Wait until the index has reached the newest commit. It always waits for your own writes."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(
            self.query,
            self.n,
            SearchMode(self.mode),
            self.to_filter(),
            offset=self.offset,
            sort=SortOrder(self.sort),
        )


class SemanticSearchArguments(SearchArguments):
    max_chunks_per_page: int = Field(1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="Maximum number of chunks a page.")

    def to_request(self) -> SearchRequest:
        return replace(super().to_request(), chunks_per_page=self.max_chunks_per_page)


class SearchWikisArguments(FilterArguments):
    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description='A question or words; "a phrase" and -word work too.'
    )
    wikis: list[str] = Field([], max_length=MAX_WIKIS_PER_SEARCH, description="Only these wikis; default: all.")
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and keywords, by meaning only, or by keywords only."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(self.query, self.n, SearchMode(self.mode), self.to_filter())


class SimilarArguments(FilterArguments):
    path: PagePathArgument
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")


class SearchToolHit(TypedDict):
    """A page with its best passage; cite path, heading and lines. `text` is empty where only the snippet fits."""

    id: str
    title: str
    url: str
    path: str
    heading_path: list[str]
    lines: list[int]
    score: float
    confidence: Literal["high", "medium", "low"]
    category: str | None
    tags: list[str]
    last_updated: str | None
    snippet: str
    text: str
    wiki: str | None


class SearchToolResult(TypedDict):
    """Search results, with freshness and relevance."""

    query: str
    did_you_mean: str | None
    mode: Literal["hybrid", "semantic", "keyword"]
    results: list[SearchToolHit]
    nothing_relevant: bool
    stale: bool
    degraded: bool
    reranked: bool
    indexed_revision: str | None
    head_revision: str | None
    notes: list[str]
    notice: str
    continuation: Continuation | None


def _format_result(result: SearchToolResult) -> str:
    """Compact JSON, which hosts expect of a tool named `search`, without fields that only programs need."""
    names = ("wiki", "id", "title", "url", "heading_path", "lines", "confidence", "score", "last_updated")
    results = []
    for page in result["results"]:
        fields = {name: value for name, value in page.items() if name in names and value not in (None, [], "")}
        results.append({**fields, "text": page["text"] or page["snippet"]})
    document: dict[str, Any] = {"results": results}
    if result["notes"]:
        document["notes"] = result["notes"]
    document |= {"stale": result["stale"], "indexed_revision": result["indexed_revision"], "notice": result["notice"]}
    if result["continuation"]:
        document["continuation"] = result["continuation"]
    return format_compact_json(document)


@tool(
    "Search the wiki",
    "Find pages of the wiki by meaning and by keywords. Each result has path, heading and lines to cite, and a "
    f"confidence; the result says when nothing relevant was found. {DATA_NOTE}",
    _format_result,
    needs_own_writes=True,
)
def search(wiki: WikiSession, params: SearchArguments, budget: int) -> SearchToolResult:
    return _search(wiki, params, budget, "search")


@tool(
    "Search by meaning",
    f"Find pages of the wiki by meaning, with up to max_chunks_per_page chunks of each. {DATA_NOTE}",
    _format_result,
    needs_own_writes=True,
    fixed_arguments={"mode": "semantic"},
)
def semantic_search(wiki: WikiSession, params: SemanticSearchArguments, budget: int) -> SearchToolResult:
    return _search(wiki, params, budget, "semantic_search")


def _search(wiki: WikiSession, params: SearchArguments, budget: int, tool_name: str) -> SearchToolResult:
    request = params.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    if params.fresh:
        wiki.wait_until_fresh()
    with wiki.use_handle() as handle:
        result = handle.search(request, interface=SearchInterface.MCP)
    return _build_result(wiki.path_style, result, budget, tool_name, params)


@tool(
    "Search several wikis",
    "Find pages of several wikis by meaning and by keywords; each result names its wiki. Each wiki is searched by "
    f"itself, and the results are merged by score. {DATA_NOTE}",
    _format_result,
)
def search_wikis(wikis: OpenedWikis, params: SearchWikisArguments, budget: int) -> SearchToolResult:
    names = set(params.wikis)
    if names - {session.wiki.slug for session in wikis.sessions} - wikis.failures.keys():
        raise Forbidden(
            "One of these wikis is not covered by your keys.", hint="Leave out wikis to search all of them."
        )
    sessions = [session for session in wikis.sessions if not names or session.wiki.slug in names]
    result = multi_search.search_wikis(
        [session.handle for session in sessions],
        params.to_request(),
        interface=SearchInterface.MCP,
        failures={slug: error for slug, error in wikis.failures.items() if not names or slug in names},
        describe_error=lambda error: get_public_message(error)[0],
    )
    return _build_result(STORED_PATHS, result, budget, "search_wikis", params)


@tool(
    "Find similar pages",
    f"Find the pages closest in meaning to one page. {DATA_NOTE}",
    _format_result,
    needs_own_writes=True,
)
def similar_pages(wiki: WikiSession, params: SimilarArguments, budget: int) -> SearchToolResult:
    path, where = wiki.path_style.to_git_path(params.path), wiki.to_git_filter(params.to_filter())
    with wiki.use_handle() as handle:
        result = handle.find_similar(path, params.n, where)
    return _build_result(wiki.path_style, result, budget, "similar_pages", params)


def _build_result(
    path_style: PathStyle, result: SearchResult, budget: int, tool_name: str, params: FilterArguments
) -> SearchToolResult:
    notes = list(result.notes)
    if result.nothing_relevant or not result.hits:
        notes.insert(0, _NOTHING_RELEVANT_NOTE)
    if result.did_you_mean:
        typed = format_as_typed(result.query, result.did_you_mean)
        correction = format_did_you_mean(result.query, result.did_you_mean)
        notes.insert(0, f"{correction} To search for the original words, use the query: {typed}")
    if result.stale:
        notes.append(_STALE_NOTE)

    def build(share: int) -> SearchToolResult:
        pages, omitted, is_shortened = _fit_hits(path_style, result.hits, share)
        continuation: Continuation | None = None
        if omitted or is_shortened:
            more = f"{omitted} more results did not fit; use more max_tokens, or narrow the search."
            text = more if omitted else "Some passages did not fit; read them with read_page, or use more max_tokens."
            arguments = params.model_dump(exclude_defaults=True) | {"max_tokens": min(50_000, budget * 3)}
            continuation = {"message": text, "tool": tool_name, "arguments": arguments}
        document = build_document(
            SearchToolResult,
            result,
            did_you_mean=result.did_you_mean or None,
            results=pages,
            nothing_relevant=result.nothing_relevant or not result.hits,
            notes=notes,
            notice=DATA_NOTICE,
            continuation=continuation,
        )
        return shorten_fields(document, ("query", "did_you_mean"), share // 4)

    return fit_to_budget(build, _format_result, budget)


def _fit_hits(path_style: PathStyle, hits: tuple[Hit, ...], budget: int) -> tuple[list[SearchToolHit], int, bool]:
    """Hits in order: with the passage while it fits, then with the snippet only, then omitted.

    Returns the hits, the number of omitted ones, and whether a passage was shortened.
    """
    pages: list[SearchToolHit] = []
    used, was_shortened = 0, False
    for number, hit in enumerate(hits):
        page = shorten_fields(_build_hit(path_style, hit), _HIT_TEXTS, budget // 8)
        overhead = estimate_json_tokens(page)
        total = overhead + estimate_tokens(hit.text)
        if pages and used + overhead > budget:
            return pages, len(hits) - number, was_shortened
        fits = used + total <= budget
        text = hit.text
        if not fits:
            text = "" if pages or overhead >= budget else truncate_text(hit.text, budget - overhead)
            was_shortened = True
        pages.append({**page, "text": text})
        used += total if fits else overhead + estimate_tokens(text)
    return pages, 0, was_shortened


def _build_hit(path_style: PathStyle, hit: Hit) -> SearchToolHit:
    return build_document(
        SearchToolHit,
        hit,
        path_style,
        id=path_style.to_display_path(hit.path),
        title=path_style.to_display_title(hit.name, hit.path),
        lines=[hit.first_line, hit.last_line],
        snippet=hit.snippet.text,
        text="",
        wiki=hit.wiki or None,
    )
