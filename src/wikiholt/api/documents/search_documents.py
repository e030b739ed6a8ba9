"""JSON documents of search results, filter values, query reports and evaluations, and snippets as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, Literal

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.domain.page import MAX_FACET_VALUES, Facets
from wikiholt.domain.search import Hit, PassagePlace, PropertyFacets, SearchResult, Snippet, Span
from wikiholt.search.duplicates import DuplicateGroup, Duplicates
from wikiholt.search.spell_check import find_replaced_words, format_as_typed
from wikiholt.wikis.evaluation.quality_metrics import ConfidenceInterval, MetricDifference
from wikiholt.wikis.evaluation.runner import EvaluationReport, EvaluationRun, QuestionOutcome, RunComparison
from wikiholt.wikis.query_report import PageReach, QueryReport, QueryStats
from wikiholt.wikis.session import STORED_PATHS, PathStyle


def format_did_you_mean(query: str, corrected: str) -> str:
    """A sentence that explains a corrected query."""
    words = (query[start:end] for start, end in find_replaced_words(query, corrected))
    replaced = " or ".join(f"“{word}”" for word in dict.fromkeys(words))
    return f"Showing results for “{corrected}”; no page contains {replaced}."


# Filter values


class FacetDocument(TypedDict):
    """A filter value and the number of pages that have it."""

    value: str
    count: int


class FacetsDocument(TypedDict):
    """All filter values, the most frequent first; `folders` are those directly below the filter `path`."""

    pages: int
    categories: list[FacetDocument]
    tags: list[FacetDocument]
    folders: list[FacetDocument]
    properties: dict[str, list[FacetDocument]]


def build_facets_document(facets: Facets) -> FacetsDocument:
    return build_document(
        FacetsDocument,
        facets,
        categories=build_documents(FacetDocument, facets.categories),
        tags=build_documents(FacetDocument, facets.tags),
        folders=build_documents(FacetDocument, facets.folders),
        properties=build_property_documents(facets.properties),
    )


def build_property_documents(properties: Sequence[PropertyFacets]) -> dict[str, list[FacetDocument]]:
    """The most frequent values of each property, by its name as requested."""
    return {facets.name: build_documents(FacetDocument, facets.values[:MAX_FACET_VALUES]) for facets in properties}


# Search results. TypedDict is from typing_extensions: before Python 3.12 pydantic cannot use the one of typing.


class PassagePlaceDocument(TypedDict):
    """A page with a passage that is nearly the same, and where on it."""

    name: str
    path: str
    url: str
    file: str
    lines: list[int]


class HitDocument(TypedDict):
    """A page with its best passage."""

    name: str
    path: str
    url: str
    snippet: str
    matches: list[list[int]]
    sentence: list[int] | None
    distance: float | None
    score: float
    confidence: Literal["high", "medium", "low", "unknown"]
    channels: list[str]
    heading_path: list[str]
    anchor: str
    lines: list[int]
    chunk_index: int
    category: str | None
    tags: list[str]
    last_updated: str | None
    text: str
    section: str | None
    section_path: str | None
    total_chunks: int
    page_word_count: int
    file: str
    wiki: str | None
    name_matches: list[list[int]]
    heading_matches: list[list[list[int]]]
    explanation: str | None
    also_on: list[PassagePlaceDocument]


class SearchResultDocument(TypedDict):
    """The hits, how fresh the index is, and whether the search was degraded."""

    query: str
    did_you_mean: str | None
    as_typed: str | None
    mode: Literal["hybrid", "semantic", "keyword"]
    results: list[HitDocument]
    total: int
    considered: int
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    reranked: bool
    nothing_relevant: bool
    notes: list[str]
    offset: int
    facets: dict[str, list[FacetDocument]]
    wikis: list[str]
    meaning_ready: float
    seconds_left: float | None


def build_result_document(result: SearchResult, path_style: PathStyle = STORED_PATHS) -> SearchResultDocument:
    return build_document(
        SearchResultDocument,
        result,
        did_you_mean=result.did_you_mean or None,
        as_typed=format_as_typed(result.query, result.did_you_mean) if result.did_you_mean else None,
        results=[build_hit_document(hit, path_style) for hit in result.hits],
        total=len(result.hits),
        considered=result.considered,
        facets=build_property_documents(result.facets),
    )


def build_hit_document(hit: Hit, path_style: PathStyle = STORED_PATHS) -> HitDocument:
    snippet = hit.snippet
    return build_document(
        HitDocument,
        hit,
        path_style,
        url=path_style.to_url(hit.url),
        snippet=snippet.text,
        matches=_build_spans(snippet.matches),
        name_matches=_build_spans(hit.name_matches),
        heading_matches=[_build_spans(spans) for spans in hit.heading_matches],
        sentence=[snippet.sentence.start, snippet.sentence.end] if snippet.sentence else None,
        lines=[hit.first_line, hit.last_line],
        section=hit.heading_path[-1] if hit.heading_path else None,
        section_path=" > ".join(hit.heading_path) or None,
        page_word_count=hit.page_words,
        wiki=hit.wiki or None,
        explanation=hit.explanation or None,
        also_on=[build_place_document(place, path_style) for place in hit.also_on],
    )


def build_place_document(place: PassagePlace, path_style: PathStyle = STORED_PATHS) -> PassagePlaceDocument:
    return build_document(
        PassagePlaceDocument,
        place,
        path_style,
        url=path_style.to_url(place.url),
        lines=[place.first_line, place.last_line],
    )


def _build_spans(spans: Iterable[Span]) -> list[list[int]]:
    return [[span.start, span.end] for span in spans]


# Near-duplicates

_MAX_EXCERPT_CHARS = 200


class DuplicateGroupDocument(TypedDict):
    """Places with nearly the same text, and how it begins."""

    text: str
    places: list[PassagePlaceDocument]


class DuplicatesDocument(TypedDict):
    """The groups of near-duplicates of most pages, and how many there are."""

    wiki: str
    page_groups: int
    pages: list[DuplicateGroupDocument]
    passage_groups: int
    passages: list[DuplicateGroupDocument]


def build_duplicates_document(
    wiki: str, duplicates: Duplicates, limit: int, path_style: PathStyle = STORED_PATHS
) -> DuplicatesDocument:
    def build(groups: Sequence[DuplicateGroup]) -> list[DuplicateGroupDocument]:
        return [
            {
                "text": " ".join(group.text.split())[:_MAX_EXCERPT_CHARS],
                "places": [build_place_document(place, path_style) for place in group.places],
            }
            for group in groups[:limit]
        ]

    return {
        "wiki": wiki,
        "page_groups": len(duplicates.pages),
        "pages": build(duplicates.pages),
        "passage_groups": len(duplicates.passages),
        "passages": build(duplicates.passages),
    }


# Query reports


class QueryStatsDocument(TypedDict):
    """One normalized query; `without_result` counts searches without a clearly relevant hit."""

    query: str
    count: int
    mean_hits: float
    best_score: float
    without_result: int
    without_result_filtered: int
    did_you_mean: str | None


class SlowQueryDocument(TypedDict):
    """The slowest search for one query."""

    query: str
    ms: float
    at: str
    mode: str
    degraded: bool


class SynonymProposalDocument(TypedDict):
    """A rule for the setting `synonyms`, and how many searches without a result were then repeated with other words."""

    rule: str
    count: int


class PageHitCountDocument(TypedDict):
    """A page and the number of searches that returned it."""

    path: str
    count: int


class PageReachDocument(TypedDict):
    """Which pages searches returned; `never_found` lists the first of `never_found_total` pages, by path."""

    indexed: int
    never_found_total: int
    never_found: list[str]
    found_most: list[PageHitCountDocument]


class QueryReportDocument(TypedDict):
    """The searches in one wiki. `unfinished` counts queries while they were typed; `searches` excludes them."""

    wiki: str
    since: str
    until: str
    logging: bool
    searches: int
    unfinished: int
    queries: int
    interfaces: dict[str, int]
    without_result_total: int
    degraded: int
    lost: int
    damaged_at: str | None
    p50_ms: float
    p95_ms: float
    frequent: list[QueryStatsDocument]
    without_result: list[QueryStatsDocument]
    slow: list[SlowQueryDocument]
    synonyms: list[SynonymProposalDocument]
    pages: PageReachDocument | None


def build_query_report_document(
    slug: str, report: QueryReport, path_style: PathStyle = STORED_PATHS
) -> QueryReportDocument:
    return build_document(
        QueryReportDocument,
        report,
        wiki=slug,
        without_result_total=report.without_result,
        p50_ms=round(report.p50_ms, 3),
        p95_ms=round(report.p95_ms, 3),
        frequent=[_build_query_stats_document(stats) for stats in report.frequent],
        without_result=[_build_query_stats_document(stats) for stats in report.unanswered],
        slow=build_documents(SlowQueryDocument, report.slow),
        synonyms=build_documents(SynonymProposalDocument, report.synonyms),
        pages=_build_page_reach_document(report.pages, path_style) if report.pages else None,
    )


def _build_query_stats_document(stats: QueryStats) -> QueryStatsDocument:
    return build_document(
        QueryStatsDocument,
        stats,
        mean_hits=round(stats.mean_hits, 2),
        without_result_filtered=stats.filtered,
        did_you_mean=stats.did_you_mean or None,
    )


def _build_page_reach_document(pages: PageReach, path_style: PathStyle) -> PageReachDocument:
    return {
        "indexed": pages.indexed,
        "never_found_total": pages.never_found,
        "never_found": [path_style.to_display_path(path) for path in pages.never],
        "found_most": [{"path": path_style.to_display_path(path), "count": count} for path, count in pages.often],
    }


# Evaluations


def build_evaluation_document(evaluation: EvaluationReport) -> Mapping[str, Any]:
    """Round metrics to four digits; no evaluation is more precise."""
    return {
        "wiki": evaluation.wiki,
        "indexed_revision": evaluation.revision,
        "seed": evaluation.seed,
        "questions": {
            "asked": {str(kind): count for kind, count in evaluation.runs[0].count_kinds().items()},
            "available": {str(kind): count for kind, count in evaluation.available.items()},
        },
        "runs": [_build_run(run, evaluation) for run in evaluation.runs],
        "comparison": _build_comparison(evaluation.comparison, evaluation) if evaluation.comparison else None,
        "notes": list(evaluation.list_notes()),
    }


def _build_run(run: EvaluationRun, evaluation: EvaluationReport) -> dict[str, Any]:
    kinds = run.count_kinds()
    p50_ms, p95_ms = run.get_latency_ms()
    return {
        "configuration": run.label,
        "mode": str(run.mode),
        "figures": _build_metrics(run.compute_metrics(None, evaluation.seed)),
        "by_kind": {str(kind): _build_metrics(run.compute_metrics(kind, evaluation.seed)) for kind in kinds},
        "p50_ms": p50_ms,
        "p95_ms": p95_ms,
        "worst": [_build_outcome(outcome) for outcome in run.find_worst(evaluation.worst_count)],
    }


def _build_metrics(metrics: Mapping[str, ConfidenceInterval]) -> dict[str, Any]:
    return {metric: _round_values(asdict(value)) for metric, value in metrics.items()}


def _build_comparison(comparison: RunComparison, evaluation: EvaluationReport) -> dict[str, Any]:
    return {
        "ours": comparison.ours.label,
        "theirs": _build_run(comparison.theirs, evaluation),
        "differences": {metric: _build_difference(value) for metric, value in comparison.differences.items()},
        "examples": [
            {"ours": _build_outcome(ours), "theirs": _build_outcome(theirs)["found"]}
            for ours, theirs in comparison.examples
        ],
    }


def _build_difference(value: MetricDifference) -> dict[str, Any]:
    return {
        **_round_values(asdict(value.interval)),
        "p_value": round(value.p_value, 4),
        "better": value.better,
        "worse": value.worse,
        "same": value.same,
    }


def _build_outcome(outcome: QuestionOutcome) -> dict[str, Any]:
    question = outcome.question
    return {
        "id": question.id,
        "kind": str(question.kind),
        "query": question.text,
        "wanted": dict(question.relevant),
        "excluded": sorted(question.excluded),
        "found": [asdict(page) for page in outcome.returned],
        "figures": _round_values(dict(outcome.metrics)),
    }


def _round_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


# Snippets as HTML, for pages that the server renders


def render_matches(text: str, spans: Sequence[Span]) -> str:
    """Render a name or heading with its matches marked."""
    return _mark_matches(Snippet(text, tuple(spans)), 0, len(text))


def render_snippet(snippet: Snippet) -> str:
    """Render a snippet with its matches and the sentence closest to the query marked."""
    closest = snippet.sentence
    if closest is None:
        return _mark_matches(snippet, 0, len(snippet.text))
    before = _mark_matches(snippet, 0, closest.start)
    inside = _mark_matches(snippet, closest.start, closest.end)
    after = _mark_matches(snippet, closest.end, len(snippet.text))
    return f'{before}<span class="closest">{inside}</span>{after}'


def _mark_matches(snippet: Snippet, start: int, end: int) -> str:
    parts: list[str] = []
    text, position = snippet.text, start
    for span in snippet.matches:
        first, last = max(span.start, position), min(span.end, end)
        if first < last:
            parts += escape(text[position:first]), "<mark>", escape(text[first:last]), "</mark>"
            position = last
    return "".join([*parts, escape(text[position:end])])
