"""The tools search and similar_pages, with results cut to the token budget."""

from dataclasses import dataclass, replace

from wikiholt.domain.search import Hit, SearchInterface, SearchResult
from wikiholt.errors import Forbidden
from wikiholt.interfaces.http.problem_details import get_public_message
from wikiholt.interfaces.mcp.result_schemas import DATA_NOTICE, Continuation, SearchToolHit, SearchToolResult
from wikiholt.interfaces.mcp.text_output import (
    estimate_json_tokens,
    estimate_tokens,
    fit_to_budget,
    format_search_result,
    shorten_fields,
    truncate_text,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    FilterArguments,
    SearchArguments,
    SearchWikisArguments,
    SemanticSearchArguments,
    SimilarArguments,
)
from wikiholt.interfaces.schemas.common import build_document
from wikiholt.interfaces.schemas.search_schemas import format_did_you_mean
from wikiholt.search.spell_check import format_as_typed
from wikiholt.wikis.multi_search import OpenedWikis, search_wikis
from wikiholt.wikis.session import STORED_PATHS, PathStyle, WikiSession

_HIT_TEXTS = ("title", "heading_path", "category", "tags", "snippet")
_STALE_NOTE = "The index is behind the newest commit: the latest changes may be missing."
_NOTHING_RELEVANT_NOTE = (
    "Nothing relevant was found: the pages listed, if any, are only the closest ones. Say so, or search with other "
    "words, or use list_pages."
)


@dataclass(frozen=True, slots=True)
class _FittedHits:
    pages: list[SearchToolHit]
    omitted: int
    was_shortened: bool


def run_search(wiki: WikiSession, params: SearchArguments, budget: int) -> SearchToolResult:
    return _search(wiki, params, budget, "search")


def run_semantic_search(wiki: WikiSession, params: SemanticSearchArguments, budget: int) -> SearchToolResult:
    return _search(wiki, params, budget, "semantic_search")


def _search(wiki: WikiSession, params: SearchArguments, budget: int, tool: str) -> SearchToolResult:
    request = params.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    if params.fresh:
        wiki.wait_until_fresh()
    with wiki.use_handle() as handle:
        result = handle.search(request, interface=SearchInterface.MCP)
    return _build_result(wiki.path_style, result, budget, tool, params)


def run_search_wikis(wikis: OpenedWikis, params: SearchWikisArguments, budget: int) -> SearchToolResult:
    names = set(params.wikis)
    if names - {session.wiki.slug for session in wikis.sessions} - wikis.failures.keys():
        raise Forbidden(
            "One of these wikis is not covered by your keys.", hint="Leave out wikis to search all of them."
        )
    sessions = [session for session in wikis.sessions if not names or session.wiki.slug in names]
    result = search_wikis(
        [session.handle for session in sessions],
        params.to_request(),
        interface=SearchInterface.MCP,
        failures={slug: error for slug, error in wikis.failures.items() if not names or slug in names},
        describe_error=lambda error: get_public_message(error)[0],
    )
    return _build_result(STORED_PATHS, result, budget, "search_wikis", params)


def run_similar(wiki: WikiSession, params: SimilarArguments, budget: int) -> SearchToolResult:
    path, where = wiki.path_style.to_git_path(params.path), wiki.to_git_filter(params.to_filter())
    with wiki.use_handle() as handle:
        result = handle.find_similar(path, params.n, where)
    return _build_result(wiki.path_style, result, budget, "similar_pages", params)


def _build_result(
    path_style: PathStyle, result: SearchResult, budget: int, tool: str, params: FilterArguments
) -> SearchToolResult:
    notes = list(result.notes)
    if result.nothing_relevant or not result.hits:
        notes.insert(0, _NOTHING_RELEVANT_NOTE)
    if result.did_you_mean:
        typed = format_as_typed(result.query, result.did_you_mean)
        notes.insert(0, f"{format_did_you_mean(result)} To search for the original words, use the query: {typed}")
    if result.stale:
        notes.append(_STALE_NOTE)

    def build(share: int) -> SearchToolResult:
        fitted = _fit_hits(path_style, result.hits, share)
        is_cut = fitted.omitted or fitted.was_shortened
        document = build_document(
            SearchToolResult,
            result,
            did_you_mean=result.did_you_mean or None,
            results=fitted.pages,
            nothing_relevant=result.nothing_relevant or not result.hits,
            notes=notes,
            notice=DATA_NOTICE,
            continuation=_build_continuation(fitted, budget, tool, params) if is_cut else None,
        )
        return shorten_fields(document, ("query", "did_you_mean"), share // 4)

    return fit_to_budget(build, format_search_result, budget)


def _build_continuation(fitted: _FittedHits, budget: int, tool: str, params: FilterArguments) -> Continuation:
    if fitted.omitted:
        text = f"{fitted.omitted} more results did not fit; use more max_tokens, or narrow the search."
    else:
        text = "Some passages did not fit; read them with read_page, or use more max_tokens."
    arguments = params.model_dump(exclude_defaults=True) | {"max_tokens": min(50_000, budget * 3)}
    return {"message": text, "tool": tool, "arguments": arguments}


def _fit_hits(path_style: PathStyle, hits: tuple[Hit, ...], budget: int) -> _FittedHits:
    """Hits in order: with the passage while it fits, then with the snippet only, then omitted."""
    pages: list[SearchToolHit] = []
    used, was_shortened = 0, False
    for number, hit in enumerate(hits):
        page = shorten_fields(_build_hit(path_style, hit), _HIT_TEXTS, budget // 8)
        overhead = estimate_json_tokens(page)
        total = overhead + estimate_tokens(hit.text)
        if pages and used + overhead > budget:
            return _FittedHits(pages, len(hits) - number, was_shortened)
        fits = used + total <= budget
        text = hit.text
        if not fits:
            text = "" if pages or overhead >= budget else truncate_text(hit.text, budget - overhead)
            was_shortened = True
        pages.append({**page, "text": text})
        used += total if fits else overhead + estimate_tokens(text)
    return _FittedHits(pages, 0, was_shortened)


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
