"""An evaluation as a person reads it on the terminal."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from pathlib import Path

from wikiholt.app.bootstrap import open_evaluation_handle
from wikiholt.app.settings.definitions import SETTINGS
from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.errors import InvalidEvaluation, InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.html_report import render_html_page, write_html_file
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, to_safe_line
from wikiholt.interfaces.cli.wiki_commands import print_result
from wikiholt.interfaces.schemas.search_schemas import build_evaluation_document
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
"""Pages shown of what was returned for a question."""
_SIGNIFICANCE_LEVEL = 0.05
_MAX_LABEL_CHARS = 30
"""Characters a configuration has beside its figures; one that needs more stands above them."""


def format_evaluation(report: EvaluationReport, style: TerminalStyle) -> list[str]:
    asked = report.runs[0].count_kinds()
    parts = [f"{count} of {report.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {report.revision[:10]}" if report.revision else ""
    lines = [
        f"{style.format_bold(report.wiki)}{at}: {format_count(sum(asked.values()), 'question')} ({', '.join(parts)})",
        "",
    ]
    labels = [len(run.label) for run in report.list_runs()]
    width = min(_MAX_LABEL_CHARS, max(len("configuration"), *(len(f"  {kind}") for kind in asked), *labels))
    heads = "  ".join(f"{metric:19}" for metric in METRICS).rstrip()
    lines.append(style.format_dim(f"{'configuration':{width}}  {heads}"))
    for run in report.list_runs():
        lines += _format_run(run, report, width, style)
    if report.comparison:
        lines += ["", *_format_comparison(report.comparison, style)]
    lines += _format_worst(report, style)
    return [*lines, *(style.format_warning(f"note: {to_safe_line(note)}") for note in report.list_notes())]


def _format_run(run: EvaluationRun, report: EvaluationReport, width: int, style: TerminalStyle) -> list[str]:
    half, most = run.get_latency_ms()
    times = style.format_dim(f"{half:.0f}/{most:.0f} ms")
    label = to_safe_line(run.label)
    lines = [style.format_bold(label)] if len(label) > width else []
    beginning = "" if lines else label
    lines.append(
        f"{style.format_bold(f'{beginning:{width}}')}  {_format_metrics(run.compute_metrics(None, report.seed))}  {times}"
    )
    kinds = run.count_kinds()
    if len(kinds) > 1:
        lines += [f"  {kind:{width - 2}}  {_format_metrics(run.compute_metrics(kind, report.seed))}" for kind in kinds]
    return lines


def _format_metrics(metrics: Mapping[str, ConfidenceInterval]) -> str:
    return "  ".join(f"{each.mean:.3f} [{each.low:.3f} {each.high:.3f}]" for each in metrics.values())


def _format_comparison(comparison: RunComparison, style: TerminalStyle) -> list[str]:
    lines = [
        f"{style.format_bold(comparison.ours.label)} against {style.format_bold(to_safe_line(comparison.theirs.label))}:"
    ]
    for metric, each in comparison.differences.items():
        gap = each.interval
        sure = each.p_value < _SIGNIFICANCE_LEVEL
        colour = (style.format_success if gap.mean > 0 else style.format_error) if sure else style.format_dim
        said = f"{metric:10}  {gap.mean:+.3f} [{gap.low:+.3f} {gap.high:+.3f}]  p = {each.p_value:.4f}"
        counts = f"{each.better} better, {each.worse} worse, {each.same} the same"
        lines.append(f"  {colour(said)}  {counts}{'' if sure else style.format_dim('; may be chance')}")
    return lines


def _format_worst(report: EvaluationReport, style: TerminalStyle) -> list[str]:
    first = report.runs[0]
    worst = first.find_worst(report.worst_count)
    lines = ["", f"Worst of {first.label}:"] if worst else []
    for outcome in worst:
        lines += _format_outcome(outcome, style)
    return lines


def _format_outcome(outcome: QuestionOutcome, style: TerminalStyle) -> list[str]:
    question = outcome.question
    returned = ", ".join(to_safe_line(each.path) for each in outcome.returned[:_MAX_TEXT_RETURNED]) or "nothing"
    about = f"{question.kind}, nDCG {outcome.metrics['ndcg@10']:.2f}"
    return [
        f"  {style.format_bold(to_safe_line(question.text))}  {style.format_dim(about)}",
        f"    wanted {', '.join(map(to_safe_line, question.relevant))}",
        f"    found  {returned}",
    ]


# An evaluation as one HTML file that needs no other: tables, bars with their intervals, the worst questions.


_BAR_WIDTH_PX = 120
_MAX_HTML_RETURNED = 5


def render_evaluation(report: EvaluationReport) -> str:
    """The report; whatever stands in the wiki is shown as text, and nothing is fetched by it."""
    asked = report.runs[0].count_kinds()
    parts = [f"{count} of {report.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {escape(report.revision[:10])}" if report.revision else ""
    body = [
        f"<p>{sum(asked.values())} questions{at}: {escape(', '.join(parts))}. Seed {report.seed}. "
        "Figures are means; brackets and lines hold them with 95 % confidence.</p>",
        *(f"<p class='quiet'>Note: {escape(note)}</p>" for note in report.list_notes()),
        _render_table(report),
        *([_render_comparison(report.comparison)] if report.comparison else []),
        f"<h2>Answered worst by {escape(report.runs[0].label)}</h2>",
        _render_outcomes(report.runs[0].find_worst(report.worst_count)),
    ]
    return render_html_page(f"How well {report.wiki} is searched", body)


def _render_table(report: EvaluationReport) -> str:
    head = "".join(f"<th scope='col'>{name}</th>" for name in (*METRICS, "median", "p95"))
    rows = "".join(row for run in report.list_runs() for row in _render_rows(run, report.seed))
    return f"<div class='wide'><table><tr><th></th>{head}</tr>{rows}</table></div>"


def _render_rows(run: EvaluationRun, seed: int) -> Iterator[str]:
    """The figures of a configuration, and of each kind of questions where there are several."""
    times = "".join(f"<td class='figure'>{each:.1f} ms</td>" for each in run.get_latency_ms())
    yield f"<tr><th scope='row'>{escape(run.label)}</th>{_render_metrics(run.compute_metrics(None, seed))}{times}</tr>"
    kinds = run.count_kinds()
    for kind in kinds if len(kinds) > 1 else ():
        yield f"<tr><td class='quiet'>{kind}</td>{_render_metrics(run.compute_metrics(kind, seed))}<td></td><td></td></tr>"


def _render_metrics(metrics: Mapping[str, ConfidenceInterval]) -> str:
    return "".join(_render_metric(each) for each in metrics.values())


def _render_metric(metric: ConfidenceInterval) -> str:
    low, high, mean = (round(value * _BAR_WIDTH_PX, 1) for value in (metric.low, metric.high, metric.mean))
    drawn = (
        f"<svg width='{_BAR_WIDTH_PX}' height='10' role='img' aria-label='{metric.mean:.3f}'>"
        f"<rect class='bar' width='{mean}' height='10'/>"
        f"<path class='bounds' d='M{low} 5H{high}M{low} 2V8M{high} 2V8'/></svg>"
    )
    return f"<td class='figure'>{metric.mean:.3f} <small>[{metric.low:.3f} {metric.high:.3f}]</small>{drawn}</td>"


def _render_comparison(comparison: RunComparison) -> str:
    rows = []
    for metric, each in comparison.differences.items():
        gap = each.interval
        sure = each.p_value < 0.05
        tone = ("good" if gap.mean > 0 else "bad") if sure else "quiet"
        rows.append(
            f"<tr><th scope='row'>{metric}</th><td class='figure {tone}'>{gap.mean:+.3f} "
            f"<small>[{gap.low:+.3f} {gap.high:+.3f}]</small></td><td class='figure'>{each.p_value:.4f}"
            f"{'' if sure else ' <small>may be chance</small>'}</td>"
            f"<td>{each.better}</td><td>{each.worse}</td><td>{each.same}</td></tr>"
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
        + (f"<p>Where they differ most, losses first:</p><ul>{examples}</ul>" if examples else "")
    )


def _render_outcomes(outcomes: Sequence[QuestionOutcome]) -> str:
    if not outcomes:
        return "<p>None: every question found all it wanted first.</p>"
    return (
        "<ul>"
        + "".join(f"<li>{_render_question(each)}<br>found {_render_returned(each)}</li>" for each in outcomes)
        + "</ul>"
    )


def _render_question(outcome: QuestionOutcome) -> str:
    question = outcome.question
    return f"<b>{escape(question.text)}</b> <small>{question.kind}</small><br>wanted {_render_paths(question.relevant)}"


def _render_returned(outcome: QuestionOutcome) -> str:
    """What was returned, the wanted ones marked, and how good that is."""
    relevant = outcome.question.relevant
    shown = [(each.path, _render_paths([each.path])) for each in outcome.returned[:_MAX_HTML_RETURNED]]
    pages = ", ".join(f"<mark>{page}</mark>" if path in relevant else page for path, page in shown)
    return f"<small>nDCG {outcome.metrics['ndcg@10']:.2f}</small> {pages or 'nothing'}"


def _render_paths(paths: Iterable[str]) -> str:
    return ", ".join(f"<code>{escape(path)}</code>" for path in paths)


# `wikiholt eval`.


ServiceBuilder = Callable[[Mapping[str, str]], WikiService]
"""Builds the service that these settings, beside those of the command, describe."""
_CACHE_TIMEOUT_S = 600.0
_SECRET_SETTINGS = frozenset(setting.name for setting in SETTINGS.values() if setting.secret)


def run_eval(service: WikiService, arguments: Namespace, build_service: ServiceBuilder) -> int:
    """Ask a wiki what it should know and say how well it answers; nothing of the wiki or its index is changed."""
    _check_arguments(arguments)
    slug, modes = arguments.slug, [SearchMode(mode) for mode in dict.fromkeys(arguments.mode)] or list(SearchMode)
    questions, revision, available = _load_questions(service, arguments)
    with ExitStack() as stack:
        ask = stack.enter_context(_open_search(service, slug, questions, modes))
        runs = [_run_questions(str(mode), mode, questions, ask, arguments) for mode in modes]
        comparison = None
        if arguments.against:
            theirs = _run_comparison(stack, service, arguments, build_service, runs, ask)
            comparison = RunComparison.from_runs(runs[0], theirs, arguments.seed, arguments.worst)
    found = EvaluationReport(slug, revision, arguments.seed, available, tuple(runs), comparison, arguments.worst)
    if arguments.html:
        write_html_file(arguments.html, render_evaluation(found))
    lines = format_evaluation(found, output.TerminalStyle.from_stream(sys.stdout))
    return print_result(arguments, build_evaluation_document(found), [*lines, *_format_written(arguments)])


def _check_arguments(arguments: Namespace) -> None:
    if bool(arguments.queries) != bool(arguments.qrels):
        raise InvalidEvaluation("queries and judgements belong together", hint="give both --queries and --qrels")
    if arguments.queries and arguments.kind:
        raise InvalidEvaluation("--kind chooses among mined questions", hint="leave it out, or --queries and --qrels")
    for name, least in (("limit", 1), ("worst", 0)):
        if not least <= getattr(arguments, name) <= 10_000:
            raise InvalidEvaluation(f"--{name} is {getattr(arguments, name)}", hint=f"use {least} to 10000")


def _load_questions(
    service: WikiService, arguments: Namespace
) -> tuple[list[Question], str | None, dict[QuestionKind, int]]:
    handle = service.get_handle(arguments.slug)
    if not arguments.queries:
        mined = handle.mine_questions(
            [QuestionKind(kind) for kind in arguments.kind] or MINED_KINDS, arguments.limit, arguments.seed
        )
        return list(mined.questions), mined.revision, dict(mined.available)
    found = handle.load_judged_questions(_read_lines(arguments.queries), _read_lines(arguments.qrels))
    if not found:
        raise InvalidEvaluation("no query has a relevant page", hint="give judgements with grades above 0 in --qrels")
    state = handle.get_status().state
    chosen = sample_questions(found, arguments.limit, arguments.seed)
    return chosen, state.revision if state else None, {QuestionKind.LABELLED: len(found)}


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidEvaluation(f"{file.name} cannot be read ({why})", hint="name a file of text") from None


@contextmanager
def _open_search(
    service: WikiService, slug: str, questions: Sequence[Question], modes: Sequence[SearchMode]
) -> Iterator[SearchFunction]:
    """Asks the wiki; what a question was taken from does not help to answer it."""
    if any(mode is not SearchMode.KEYWORD for mode in modes):
        service.components.embedder()  # without it hybrid search goes by words alone, and its figures would mislead
        if service.components.reranking is not None:
            service.components.reranking.get_reranker()
    handle = service.get_handle(slug)
    handle.wait_for_caches(_CACHE_TIMEOUT_S)
    with ExitStack() as stack:
        blind = handle
        if any(question.kind is QuestionKind.DESCRIPTIONS for question in questions):
            blind = open_evaluation_handle(service, slug, questions)
            stack.callback(blind.close)

        def search_for(question: Question, request: SearchRequest) -> SearchResult:
            return (blind if question.kind is QuestionKind.DESCRIPTIONS else handle).search(request)

        yield search_for


def _run_questions(
    label: str, mode: SearchMode, questions: Sequence[Question], search: SearchFunction, arguments: Namespace
) -> EvaluationRun:
    if sys.stderr.isatty() and not arguments.json:
        sys.stderr.write(f"asking {output.format_count(len(questions), 'question')}: {label}\n")
    return run_evaluation(label, mode, questions, search)


def _run_comparison(
    stack: ExitStack,
    service: WikiService,
    arguments: Namespace,
    build_service: ServiceBuilder,
    runs: Sequence[EvaluationRun],
    search: SearchFunction,
) -> EvaluationRun:
    """The other configuration: another mode, or the same mode with other settings."""
    modes = [each for each in arguments.against if "=" not in each]
    if unknown := [each for each in modes if each not in list(SearchMode)] or modes[1:]:
        raise InvalidSetting(
            f"--against {unknown[0]!r} makes no configuration", hint="give one mode, or NAME=VALUE for a setting"
        )
    settings = dict(each.split("=", 1) for each in arguments.against if "=" in each)
    mode = SearchMode(modes[0]) if modes else runs[0].mode
    questions = [outcome.question for outcome in runs[0].outcomes]
    label = " ".join(
        [str(mode), *(f"{name}={'…' if name in _SECRET_SETTINGS else value}" for name, value in settings.items())]
    )
    if settings:
        if "data" in settings and "store" not in settings and service.components.databases is not None:
            raise InvalidSetting(
                "the index lies in a database, whatever the data directory is",
                hint="name the other database with --against store=…, or --against store= for an index in files",
            )
        other = build_service(settings)
        stack.callback(other.close)
        _check_comparable(service, other, arguments.slug, questions)
        search = stack.enter_context(_open_search(other, arguments.slug, questions, [mode]))
    elif known := next((run for run in runs if run.mode is mode), None):
        return known
    elif mode is not SearchMode.KEYWORD:
        service.components.embedder()
    return _run_questions(label, mode, questions, search, arguments)


def _check_comparable(service: WikiService, other: WikiService, slug: str, questions: Sequence[Question]) -> None:
    """Refuse settings that only another index could show, and an index of another wiki."""
    in_files = service.components.databases is None
    place, place_setting = ("data directory", "data=DIR") if in_files else ("database", "store=…")
    if (
        other.get_handle(slug).get_indexed_revision() is None
        and service.get_handle(slug).get_indexed_revision() is not None
    ):
        raise InvalidSetting(
            "with these settings the index would have to be built anew",
            hint=f"build it in a {place} of its own, and compare with --against {place_setting}",
        )
    known = {page.path for page in other.get_handle(slug).pages.list().pages}
    if missing := next((path for each in questions for path in each.relevant if path not in known), None):
        raise InvalidEvaluation(
            f"the other index lacks the page {missing!r}", hint="sync both indexes with the same repository"
        )


def _format_written(arguments: Namespace) -> list[str]:
    return [f"Report: {output.to_safe_line(str(arguments.html))}"] if arguments.html else []
