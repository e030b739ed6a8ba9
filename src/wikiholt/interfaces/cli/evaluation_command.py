"""`wikiholt eval`: measures search quality, and shows the report as text or HTML."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
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
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, to_safe_line
from wikiholt.interfaces.cli.report_command import render_html_page, write_html_file
from wikiholt.interfaces.cli.selection import choose_default_wiki
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.evaluation.quality_metrics import METRICS, ConfidenceInterval
from wikiholt.wikis.evaluation.questions import MINED_KINDS, Question, QuestionKind, sample_questions
from wikiholt.wikis.evaluation.runner import (
    EvaluationReport,
    EvaluationRun,
    QuestionOutcome,
    RunComparison,
    SearchFunction,
    run_evaluation,
)
from wikiholt.wikis.service import WikiService

_MAX_TEXT_RETURNED = 3
"""Results shown per question on the terminal."""
_SIGNIFICANCE_LEVEL = 0.05
_MAX_LABEL_CHARS = 30
"""A longer configuration name is printed on a line of its own."""


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
    lines = format_evaluation(report, context.style)
    if arguments.html:
        write_html_file(arguments.html, render_evaluation(report))
        lines.append(f"Report: {to_safe_line(str(arguments.html))}")
    return context.print_result(build_evaluation_document(report), lines)


def _check_arguments(arguments: Namespace) -> None:
    if bool(arguments.queries) != bool(arguments.qrels):
        raise InvalidEvaluation("--queries and --qrels require each other", hint="give both --queries and --qrels")
    if arguments.queries and arguments.kind:
        raise InvalidEvaluation("--kind selects mined questions", hint="omit it, or omit --queries and --qrels")
    for name, minimum in (("limit", 1), ("worst", 0)):
        value = getattr(arguments, name)
        if not minimum <= value <= _MAX_COUNT:
            raise InvalidEvaluation(f"--{name} is {value}", hint=f"use {minimum} to {_MAX_COUNT}")


def _load_questions(
    service: WikiService, arguments: Namespace
) -> tuple[list[Question], str | None, dict[QuestionKind, int]]:
    handle = service.get_handle(arguments.slug)
    if not arguments.queries:
        mined = handle.mine_questions(
            [QuestionKind(kind) for kind in arguments.kind] or MINED_KINDS, arguments.limit, arguments.seed
        )
        return list(mined.questions), mined.revision, dict(mined.available)
    judged = handle.load_judged_questions(_read_lines(arguments.queries), _read_lines(arguments.qrels))
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


# The report on the terminal.


def format_evaluation(report: EvaluationReport, style: TerminalStyle) -> list[str]:
    kinds = report.runs[0].count_kinds()
    at = f" at {report.revision[:10]}" if report.revision else ""
    count = format_count(sum(kinds.values()), "question")
    lines = [f"{style.format_bold(report.wiki)}{at}: {count} ({_format_kinds(report)})", ""]
    labels = [len(run.label) for run in report.list_runs()]
    width = min(_MAX_LABEL_CHARS, max(len("configuration"), *(len(f"  {kind}") for kind in kinds), *labels))
    headers = "  ".join(f"{metric:19}" for metric in METRICS).rstrip()
    lines.append(style.format_dim(f"{'configuration':{width}}  {headers}"))
    for run in report.list_runs():
        lines += _format_run(run, report, width, style)
    if report.comparison:
        lines += ["", *_format_comparison(report.comparison, style)]
    worst = report.runs[0].find_worst(report.worst_count)
    lines += ["", f"Worst of {report.runs[0].label}:"] if worst else []
    lines += [line for outcome in worst for line in _format_outcome(outcome, style)]
    return [*lines, *(style.format_warning(f"note: {to_safe_line(note)}") for note in report.list_notes())]


def _format_kinds(report: EvaluationReport) -> str:
    counts = report.runs[0].count_kinds()
    return ", ".join(f"{count} of {report.available.get(kind, count)} {kind}" for kind, count in counts.items())


def _format_run(run: EvaluationRun, report: EvaluationReport, width: int, style: TerminalStyle) -> list[str]:
    median, p95 = run.get_latency_ms()
    latency = style.format_dim(f"{median:.0f}/{p95:.0f} ms")
    label = to_safe_line(run.label)
    lines = [style.format_bold(label)] if len(label) > width else []
    start = style.format_bold(f"{'' if lines else label:{width}}")
    lines.append(f"{start}  {_format_metrics(run.compute_metrics(None, report.seed))}  {latency}")
    kinds = run.count_kinds()
    if len(kinds) > 1:
        lines += [f"  {kind:{width - 2}}  {_format_metrics(run.compute_metrics(kind, report.seed))}" for kind in kinds]
    return lines


def _format_metrics(metrics: Mapping[str, ConfidenceInterval]) -> str:
    return "  ".join(f"{metric.mean:.3f} [{metric.low:.3f} {metric.high:.3f}]" for metric in metrics.values())


def _format_comparison(comparison: RunComparison, style: TerminalStyle) -> list[str]:
    ours, theirs = comparison.ours.label, to_safe_line(comparison.theirs.label)
    lines = [f"{style.format_bold(ours)} against {style.format_bold(theirs)}:"]
    for metric, difference in comparison.differences.items():
        interval = difference.interval
        significant = difference.p_value < _SIGNIFICANCE_LEVEL
        color = (style.format_success if interval.mean > 0 else style.format_error) if significant else style.format_dim
        bounds = f"[{interval.low:+.3f} {interval.high:+.3f}]"
        text = f"{metric:10}  {interval.mean:+.3f} {bounds}  p = {difference.p_value:.4f}"
        counts = f"{difference.better} better, {difference.worse} worse, {difference.same} the same"
        lines.append(f"  {color(text)}  {counts}{'' if significant else style.format_dim('; may be chance')}")
    return lines


def _format_outcome(outcome: QuestionOutcome, style: TerminalStyle) -> list[str]:
    question = outcome.question
    returned = ", ".join(to_safe_line(page.path) for page in outcome.returned[:_MAX_TEXT_RETURNED]) or "nothing"
    details = f"{question.kind}, nDCG {outcome.metrics['ndcg@10']:.2f}"
    return [
        f"  {style.format_bold(to_safe_line(question.text))}  {style.format_dim(details)}",
        f"    expected {', '.join(map(to_safe_line, question.relevant))}",
        f"    found    {returned}",
    ]


# The report as HTML.


_BAR_WIDTH_PX = 120
_MAX_HTML_RETURNED = 5


def render_evaluation(report: EvaluationReport) -> str:
    """The report as a self-contained HTML page. All text from the wiki is escaped."""
    count = sum(report.runs[0].count_kinds().values())
    at = f" at {escape(report.revision[:10])}" if report.revision else ""
    body = [
        f"<p>{count} questions{at}: {escape(_format_kinds(report))}. Seed {report.seed}. "
        "Figures are means; brackets and lines show the 95 % confidence interval.</p>",
        *(f"<p class='quiet'>Note: {escape(note)}</p>" for note in report.list_notes()),
        _render_table(report),
        *([_render_comparison(report.comparison)] if report.comparison else []),
        f"<h2>Worst results of {escape(report.runs[0].label)}</h2>",
        _render_outcomes(report.runs[0].find_worst(report.worst_count)),
    ]
    return render_html_page(f"Search quality of {report.wiki}", body)


def _render_table(report: EvaluationReport) -> str:
    head = "".join(f"<th scope='col'>{name}</th>" for name in (*METRICS, "median", "p95"))
    rows = "".join(row for run in report.list_runs() for row in _render_rows(run, report.seed))
    return f"<div class='wide'><table><tr><th></th>{head}</tr>{rows}</table></div>"


def _render_rows(run: EvaluationRun, seed: int) -> Iterator[str]:
    """The metrics of a configuration, and of each kind of question if there are several."""
    latency = "".join(f"<td class='figure'>{ms:.1f} ms</td>" for ms in run.get_latency_ms())
    cells = _render_metrics(run.compute_metrics(None, seed))
    yield f"<tr><th scope='row'>{escape(run.label)}</th>{cells}{latency}</tr>"
    kinds = run.count_kinds()
    for kind in kinds if len(kinds) > 1 else ():
        cells = _render_metrics(run.compute_metrics(kind, seed))
        yield f"<tr><td class='quiet'>{kind}</td>{cells}<td></td><td></td></tr>"


def _render_metrics(metrics: Mapping[str, ConfidenceInterval]) -> str:
    return "".join(map(_render_metric, metrics.values()))


def _render_metric(metric: ConfidenceInterval) -> str:
    low, high, mean = (round(value * _BAR_WIDTH_PX, 1) for value in (metric.low, metric.high, metric.mean))
    bar = (
        f"<svg width='{_BAR_WIDTH_PX}' height='10' role='img' aria-label='{metric.mean:.3f}'>"
        f"<rect class='bar' width='{mean}' height='10'/>"
        f"<path class='bounds' d='M{low} 5H{high}M{low} 2V8M{high} 2V8'/></svg>"
    )
    return f"<td class='figure'>{metric.mean:.3f} <small>[{metric.low:.3f} {metric.high:.3f}]</small>{bar}</td>"


def _render_comparison(comparison: RunComparison) -> str:
    rows = []
    for metric, difference in comparison.differences.items():
        interval = difference.interval
        significant = difference.p_value < _SIGNIFICANCE_LEVEL
        tone = ("good" if interval.mean > 0 else "bad") if significant else "quiet"
        rows.append(
            f"<tr><th scope='row'>{metric}</th><td class='figure {tone}'>{interval.mean:+.3f} "
            f"<small>[{interval.low:+.3f} {interval.high:+.3f}]</small></td><td class='figure'>{difference.p_value:.4f}"
            f"{'' if significant else ' <small>may be chance</small>'}</td>"
            f"<td>{difference.better}</td><td>{difference.worse}</td><td>{difference.same}</td></tr>"
        )
    ours, theirs = escape(comparison.ours.label), escape(comparison.theirs.label)
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("difference", "p", "better", "worse", "same"))
    examples = "".join(
        f"<li>{_render_question(one)}<br>{ours} {_render_returned(one)}<br>{theirs} {_render_returned(other)}</li>"
        for one, other in comparison.examples
    )
    return (
        f"<h2>{ours} against {theirs}</h2>"
        f"<div class='wide'><table><tr><th></th>{head}</tr>{''.join(rows)}</table></div>"
        + (f"<p>The largest differences, losses first:</p><ul>{examples}</ul>" if examples else "")
    )


def _render_outcomes(outcomes: Sequence[QuestionOutcome]) -> str:
    if not outcomes:
        return "<p>None: every question found all expected pages first.</p>"
    items = (f"<li>{_render_question(outcome)}<br>found {_render_returned(outcome)}</li>" for outcome in outcomes)
    return f"<ul>{''.join(items)}</ul>"


def _render_question(outcome: QuestionOutcome) -> str:
    question = outcome.question
    expected = _render_paths(question.relevant)
    return f"<b>{escape(question.text)}</b> <small>{question.kind}</small><br>expected {expected}"


def _render_returned(outcome: QuestionOutcome) -> str:
    """The score and the returned pages, with the expected pages marked."""
    relevant = outcome.question.relevant
    rendered = [(page.path, _render_paths([page.path])) for page in outcome.returned[:_MAX_HTML_RETURNED]]
    pages = ", ".join(f"<mark>{html}</mark>" if path in relevant else html for path, html in rendered)
    return f"<small>nDCG {outcome.metrics['ndcg@10']:.2f}</small> {pages or 'nothing'}"


def _render_paths(paths: Iterable[str]) -> str:
    return ", ".join(f"<code>{escape(path)}</code>" for path in paths)
