"""An evaluation as a person reads it on the terminal."""

from collections.abc import Mapping

from wikiholt.evaluating import ConfidenceInterval, QuestionOutcome, EvaluationRun
from wikiholt.evaluating.metrics import METRICS
from wikiholt.evaluating.report import RunComparison, EvaluationReport
from wikiholt.surfaces.cli.output import TerminalStyle, format_count, to_safe_line

_MAX_TEXT_RETURNED = 3
"""Pages shown of what was returned for a question."""
_SIGNIFICANCE_LEVEL = 0.05
_MAX_LABEL_CHARS = 30
"""Characters a configuration has beside its figures; one that needs more stands above them."""


def format_evaluation(report: EvaluationReport, style: TerminalStyle) -> list[str]:
    asked = report.runs[0].count_kinds()
    parts = [f"{count} of {report.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {report.revision[:10]}" if report.revision else ""
    lines = [f"{style.format_bold(report.wiki)}{at}: {format_count(sum(asked.values()), 'question')} ({', '.join(parts)})", ""]
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
    lines.append(f"{style.format_bold(f'{beginning:{width}}')}  {_format_metrics(run.compute_metrics(None, report.seed))}  {times}")
    kinds = run.count_kinds()
    if len(kinds) > 1:
        lines += [f"  {kind:{width - 2}}  {_format_metrics(run.compute_metrics(kind, report.seed))}" for kind in kinds]
    return lines


def _format_metrics(metrics: Mapping[str, ConfidenceInterval]) -> str:
    return "  ".join(f"{each.mean:.3f} [{each.low:.3f} {each.high:.3f}]" for each in metrics.values())


def _format_comparison(comparison: RunComparison, style: TerminalStyle) -> list[str]:
    lines = [f"{style.format_bold(comparison.ours.label)} against {style.format_bold(to_safe_line(comparison.theirs.label))}:"]
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
