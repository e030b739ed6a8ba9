"""`wikiholt eval`: measures search quality."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wikiholt.api.bootstrap import open_evaluation_handle
from wikiholt.api.documents.search_documents import build_evaluation_document
from wikiholt.api.settings.definitions import SETTINGS
from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.errors import InvalidEvaluation, InvalidSetting
from wikiholt.interfaces.cli.command import (
    CommandContext,
    Subparsers,
    add_command,
    add_repeatable,
    load_settings,
    open_service,
)
from wikiholt.interfaces.cli.output import format_count
from wikiholt.interfaces.cli.reports import Report, ReportTable, write_report
from wikiholt.interfaces.cli.selection import choose_default_wiki
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.evaluation.mined_questions import make_path_resolver, mine_questions
from wikiholt.wikis.evaluation.quality_metrics import METRICS, ConfidenceInterval
from wikiholt.wikis.evaluation.questions import (
    MINED_KINDS,
    Question,
    QuestionKind,
    parse_judged_questions,
    sample_questions,
)
from wikiholt.wikis.evaluation.runner import (
    EvaluationReport,
    EvaluationRun,
    QuestionOutcome,
    RunComparison,
    SearchFunction,
    run_evaluation,
)
from wikiholt.wikis.service import WikiService

_MAX_RETURNED = 3
"""Results shown per question."""
_SIGNIFICANCE_LEVEL = 0.05
_CACHE_TIMEOUT_S = 600.0
_MAX_COUNT = 10_000
_SECRET_SETTINGS = frozenset(name for name, setting in SETTINGS.items() if setting.secret)


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "eval", run_eval)
    parser.add_argument(
        "slug", nargs="?", metavar="SLUG", help="the wiki (default: that of the current directory, or the only one)"
    )
    modes = [str(mode) for mode in SearchMode]
    add_repeatable(parser, "--mode", choices=modes, text="only this mode; repeatable (default: all three)")
    text = "compare the first mode with another, or with itself under another setting; repeatable"
    add_repeatable(parser, "--against", metavar="MODE_OR_NAME=VALUE", text=text)
    kinds = [str(kind) for kind in MINED_KINDS]
    add_repeatable(parser, "--kind", choices=kinds, text="only these questions; repeatable (default: all)")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="your own questions: JSON lines of id and text")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="expected pages: query, page, grade, tab-separated")
    parser.add_argument("--limit", type=int, default=200, metavar="N", help="questions per kind (default: 200)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the sample (default: 0)")
    parser.add_argument("--worst", type=int, default=5, metavar="N", help="worst results to show (default: 5)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as HTML")


def run_eval(context: CommandContext) -> int:
    """Run the questions and print the metrics. Changes neither the wiki nor its index."""
    arguments, service = context.arguments, context.service
    _check_arguments(arguments)
    if arguments.slug is None:
        arguments.slug = choose_default_wiki(context, "Write `wikiholt eval SLUG` with one of these").slug
    slug, modes = arguments.slug, [SearchMode(mode) for mode in dict.fromkeys(arguments.mode)] or list(SearchMode)
    questions, revision, available = _load_questions(service, arguments)
    with ExitStack() as stack:
        search = stack.enter_context(_open_search(service, slug, questions, modes))
        runs = [_run_questions(str(mode), mode, questions, search, arguments) for mode in modes]
        comparison = None
        if arguments.against:
            theirs = _run_comparison(stack, context, runs, search)
            comparison = RunComparison.from_runs(runs[0], theirs, arguments.seed, arguments.worst)
    report = EvaluationReport(slug, revision, arguments.seed, available, tuple(runs), comparison, arguments.worst)
    lines = write_report(build_report(report), arguments.html, context.style)
    return context.print_result(build_evaluation_document(report), lines)


def _check_arguments(arguments: Namespace) -> None:
    if bool(arguments.queries) != bool(arguments.qrels):
        raise InvalidEvaluation("--queries and --qrels require each other", hint="give both --queries and --qrels")
    if arguments.queries and arguments.kind:
        raise InvalidEvaluation(
            "--kind selects among the questions of the wiki", hint="omit it, or omit --queries and --qrels"
        )
    for name, minimum in (("limit", 1), ("worst", 0)):
        value = getattr(arguments, name)
        if not minimum <= value <= _MAX_COUNT:
            raise InvalidEvaluation(f"--{name} is {value}", hint=f"use {minimum} to {_MAX_COUNT}")


def _load_questions(
    service: WikiService, arguments: Namespace
) -> tuple[list[Question], str | None, dict[QuestionKind, int]]:
    handle = service.get_handle(arguments.slug)
    if not arguments.queries:
        kinds = [QuestionKind(kind) for kind in arguments.kind] or MINED_KINDS
        with handle.open_contents() as contents:
            mined = mine_questions(*contents, kinds, arguments.limit, arguments.seed)
        return list(mined.questions), mined.revision, dict(mined.available)
    with handle.open_contents() as (index, *_):
        resolve_path = make_path_resolver(index)
        judged = parse_judged_questions(_read_lines(arguments.queries), _read_lines(arguments.qrels), resolve_path)
    if not judged:
        raise InvalidEvaluation("no query has a relevant page", hint="give judgements with grades above 0 in --qrels")
    state = handle.get_status().state
    sample = sample_questions(judged, arguments.limit, arguments.seed)
    return sample, state.revision if state else None, {QuestionKind.LABELLED: len(judged)}


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidEvaluation(f"{file.name} cannot be read ({reason})", hint="name a text file") from None


@contextmanager
def _open_search(
    service: WikiService, slug: str, questions: Sequence[Question], modes: Sequence[SearchMode]
) -> Iterator[SearchFunction]:
    """A search function in which the source text of a question does not help to answer it."""
    if any(mode is not SearchMode.KEYWORD for mode in modes):
        service.load_embedder()  # without it, hybrid search falls back to keywords, and its metrics would mislead
        service.load_reranker()
    handle = service.get_handle(slug)
    handle.wait_for_caches(_CACHE_TIMEOUT_S)
    with ExitStack() as stack:
        blind_handle = handle
        if any(question.kind is QuestionKind.DESCRIPTIONS for question in questions):
            blind_handle = open_evaluation_handle(service, slug, questions)
            stack.callback(blind_handle.close)

        def search_for(question: Question, request: SearchRequest) -> SearchResult:
            return (blind_handle if question.kind is QuestionKind.DESCRIPTIONS else handle).search(request)

        yield search_for


def _run_questions(
    label: str, mode: SearchMode, questions: Sequence[Question], search: SearchFunction, arguments: Namespace
) -> EvaluationRun:
    if sys.stderr.isatty() and not arguments.json:
        sys.stderr.write(f"running {format_count(len(questions), 'question')}: {label}\n")
    return run_evaluation(label, mode, questions, search)


def _run_comparison(
    stack: ExitStack, context: CommandContext, runs: Sequence[EvaluationRun], search: SearchFunction
) -> EvaluationRun:
    """Run the other configuration: another mode, or the same mode with other settings."""
    arguments, service = context.arguments, context.service
    modes = [value for value in arguments.against if "=" not in value]
    if invalid := [value for value in modes if value not in list(SearchMode)] or modes[1:]:
        raise InvalidSetting(
            f"--against {invalid[0]!r} is not a configuration", hint="give one mode, or NAME=VALUE for a setting"
        )
    settings = dict(value.split("=", 1) for value in arguments.against if "=" in value)
    mode = SearchMode(modes[0]) if modes else runs[0].mode
    questions = [outcome.question for outcome in runs[0].outcomes]
    label = " ".join(
        [str(mode), *(f"{name}={'…' if name in _SECRET_SETTINGS else value}" for name, value in settings.items())]
    )
    if settings:
        if "data" in settings and "store" not in settings and service.databases is not None:
            raise InvalidSetting(
                "the index is in a database, so another data directory makes no difference",
                hint="name the other database with --against store=…, or --against store= for an index in files",
            )
        other = open_service(load_settings(context.arguments, settings))
        stack.callback(other.close)
        _check_comparable(service, other, arguments.slug, questions)
        search = stack.enter_context(_open_search(other, arguments.slug, questions, [mode]))
    elif same_mode := next((run for run in runs if run.mode is mode), None):
        return same_mode
    elif mode is not SearchMode.KEYWORD:
        service.load_embedder()
    return _run_questions(label, mode, questions, search, arguments)


def _check_comparable(service: WikiService, other: WikiService, slug: str, questions: Sequence[Question]) -> None:
    """Raise if the settings require another index, or if the other index has other pages."""
    in_files = service.databases is None
    location, location_setting = ("data directory", "data=DIR") if in_files else ("database", "store=…")
    if (
        other.get_handle(slug).get_indexed_revision() is None
        and service.get_handle(slug).get_indexed_revision() is not None
    ):
        raise InvalidSetting(
            "with these settings the index would have to be rebuilt",
            hint=f"build it in a separate {location}, and compare with --against {location_setting}",
        )
    known = {page.path for page in other.get_handle(slug).pages.list().pages}
    if missing := next((path for question in questions for path in question.relevant if path not in known), None):
        raise InvalidEvaluation(
            f"the other index does not contain the page {missing!r}", hint="sync both indexes with the same repository"
        )


# The report.


def build_report(report: EvaluationReport) -> Report:
    kinds = report.runs[0].count_kinds()
    at = f" at {report.revision[:10]}" if report.revision else ""
    questions = ", ".join(f"{count} of {report.available.get(kind, count)} {kind}" for kind, count in kinds.items())
    figures = [row for run in report.list_runs() for row in _build_rows(run, report.seed)]
    tables = [ReportTable("Means [95 % confidence interval]", ("configuration", *METRICS, "ms p50/p95"), figures)]
    tables += _build_comparison(report.comparison) if report.comparison else []
    worst = [_describe_question(outcome) for outcome in report.runs[0].find_worst(report.worst_count)]
    tables.append(
        ReportTable(
            f"Worst of {report.runs[0].label}",
            ("question", "kind", "expected", "found"),
            worst,
            "None: every question found all expected pages first.",
        )
    )
    summary = f"{format_count(sum(kinds.values()), 'question')}{at} ({questions}), seed {report.seed}"
    return Report("Search quality of", report.wiki, [summary], tables, report.list_notes())


def _build_rows(run: EvaluationRun, seed: int) -> Iterator[tuple[str, ...]]:
    """The metrics of a configuration, and of each kind of question if there are several."""
    median, p95 = run.get_latency_ms()
    yield run.label, *_format_metrics(run.compute_metrics(None, seed)), f"{median:.0f}/{p95:.0f}"
    kinds = run.count_kinds()
    for kind in kinds if len(kinds) > 1 else ():
        yield f"  {kind}", *_format_metrics(run.compute_metrics(kind, seed)), ""


def _format_metrics(metrics: Mapping[str, ConfidenceInterval]) -> Iterator[str]:
    return (f"{metric.mean:.3f} [{metric.low:.3f} {metric.high:.3f}]" for metric in metrics.values())


def _build_comparison(comparison: RunComparison) -> list[ReportTable]:
    ours, theirs = comparison.ours.label, comparison.theirs.label
    headers = ("metric", "difference", "p", "better", "worse", "same", "")
    rows = []
    for metric, difference in comparison.differences.items():
        interval, p_value = difference.interval, difference.p_value
        change = f"{interval.mean:+.3f} [{interval.low:+.3f} {interval.high:+.3f}]"
        counts = (str(difference.better), str(difference.worse), str(difference.same))
        chance = "" if p_value < _SIGNIFICANCE_LEVEL else "may be chance"
        rows.append((metric, change, f"{p_value:.4f}", *counts, chance))
    examples = [(*_describe_question(one), _describe_returned(other)) for one, other in comparison.examples]
    return [
        ReportTable(f"{ours} against {theirs}", headers, rows),
        ReportTable(
            "Largest differences, losses first", ("question", "kind", "expected", f"found by {ours}", theirs), examples
        ),
    ]


def _describe_question(outcome: QuestionOutcome) -> tuple[str, str, str, str]:
    question = outcome.question
    return question.text, str(question.kind), ", ".join(question.relevant), _describe_returned(outcome)


def _describe_returned(outcome: QuestionOutcome) -> str:
    """The score, and the first pages that were returned."""
    pages = ", ".join(page.path for page in outcome.returned[:_MAX_RETURNED]) or "nothing"
    return f"nDCG {outcome.metrics['ndcg@10']:.2f}: {pages}"
