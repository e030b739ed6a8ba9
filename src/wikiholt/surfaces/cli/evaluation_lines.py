"""An evaluation as a person reads it on the terminal."""

from collections.abc import Mapping

from wikiholt.evaluating import Interval, Outcome, Run
from wikiholt.evaluating.metrics import METRICS
from wikiholt.evaluating.report import Comparison, Evaluation
from wikiholt.surfaces.cli.output import Style, counted, line

_SHOWN = 3
"""Pages shown of what was returned for a question."""
_SURE = 0.05
_WIDEST = 30
"""Characters a configuration has beside its figures; one that needs more stands above them."""


def evaluation_lines(found: Evaluation, style: Style) -> list[str]:
    asked = found.runs[0].kinds()
    parts = [f"{count} of {found.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {found.revision[:10]}" if found.revision else ""
    lines = [f"{style.bold(found.wiki)}{at}: {counted(sum(asked.values()), 'question')} ({', '.join(parts)})", ""]
    labels = [len(run.label) for run in found.everyone()]
    width = min(_WIDEST, max(len("configuration"), *(len(f"  {kind}") for kind in asked), *labels))
    heads = "  ".join(f"{metric:19}" for metric in METRICS).rstrip()
    lines.append(style.dim(f"{'configuration':{width}}  {heads}"))
    for run in found.everyone():
        lines += _run_lines(run, found, width, style)
    if found.comparison:
        lines += ["", *_comparison_lines(found.comparison, style)]
    lines += _worst_lines(found, style)
    return [*lines, *(style.warn(f"note: {line(note)}") for note in found.notes())]


def _run_lines(run: Run, found: Evaluation, width: int, style: Style) -> list[str]:
    half, most = run.milliseconds()
    times = style.dim(f"{half:.0f}/{most:.0f} ms")
    label = line(run.label)
    lines = [style.bold(label)] if len(label) > width else []
    beginning = "" if lines else label
    lines.append(f"{style.bold(f'{beginning:{width}}')}  {_figures(run.figures(None, found.seed))}  {times}")
    kinds = run.kinds()
    if len(kinds) > 1:
        lines += [f"  {kind:{width - 2}}  {_figures(run.figures(kind, found.seed))}" for kind in kinds]
    return lines


def _figures(figures: Mapping[str, Interval]) -> str:
    return "  ".join(f"{each.mean:.3f} [{each.low:.3f} {each.high:.3f}]" for each in figures.values())


def _comparison_lines(comparison: Comparison, style: Style) -> list[str]:
    lines = [f"{style.bold(comparison.ours.label)} against {style.bold(line(comparison.theirs.label))}:"]
    for metric, each in comparison.differences.items():
        gap = each.interval
        sure = each.p_value < _SURE
        colour = (style.good if gap.mean > 0 else style.bad) if sure else style.dim
        said = f"{metric:10}  {gap.mean:+.3f} [{gap.low:+.3f} {gap.high:+.3f}]  p = {each.p_value:.4f}"
        counts = f"{each.better} better, {each.worse} worse, {each.same} the same"
        lines.append(f"  {colour(said)}  {counts}{'' if sure else style.dim('; may be chance')}")
    return lines


def _worst_lines(found: Evaluation, style: Style) -> list[str]:
    first = found.runs[0]
    worst = first.worst(found.worst)
    lines = ["", f"Worst of {first.label}:"] if worst else []
    for outcome in worst:
        lines += _outcome_lines(outcome, style)
    return lines


def _outcome_lines(outcome: Outcome, style: Style) -> list[str]:
    question = outcome.question
    returned = ", ".join(line(each.path) for each in outcome.found[:_SHOWN]) or "nothing"
    about = f"{question.kind}, nDCG {outcome.figures['ndcg@10']:.2f}"
    return [
        f"  {style.bold(line(question.text))}  {style.dim(about)}",
        f"    wanted {', '.join(map(line, question.relevant))}",
        f"    found  {returned}",
    ]
