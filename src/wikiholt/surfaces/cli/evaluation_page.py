"""An evaluation as one HTML file that needs no other: tables, bars with their intervals, the worst questions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from wikiholt.evaluating import ConfidenceInterval, QuestionOutcome, EvaluationRun
from wikiholt.evaluating.metrics import METRICS
from wikiholt.evaluating.report import RunComparison, EvaluationReport
from wikiholt.surfaces.cli.sheet import render_html_page

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
    return "<ul>" + "".join(f"<li>{_render_question(each)}<br>found {_render_returned(each)}</li>" for each in outcomes) + "</ul>"


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
