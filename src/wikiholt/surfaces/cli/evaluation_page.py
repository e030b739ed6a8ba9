"""An evaluation as one HTML file that needs no other: tables, bars with their intervals, the worst questions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from wikiholt.evaluating import Interval, Outcome, Run
from wikiholt.evaluating.metrics import METRICS
from wikiholt.evaluating.report import Comparison, Evaluation
from wikiholt.surfaces.cli.sheet import sheet

_WIDTH = 120
_SHOWN = 5


def evaluation_page(found: Evaluation) -> str:
    """The report; whatever stands in the wiki is shown as text, and nothing is fetched by it."""
    asked = found.runs[0].kinds()
    parts = [f"{count} of {found.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {escape(found.revision[:10])}" if found.revision else ""
    body = [
        f"<p>{sum(asked.values())} questions{at}: {escape(', '.join(parts))}. Seed {found.seed}. "
        "Figures are means; brackets and lines hold them with 95 % confidence.</p>",
        *(f"<p class='quiet'>Note: {escape(note)}</p>" for note in found.notes()),
        _table(found),
        *([_comparison(found.comparison)] if found.comparison else []),
        f"<h2>Answered worst by {escape(found.runs[0].label)}</h2>",
        _outcomes(found.runs[0].worst(found.worst)),
    ]
    return sheet(f"How well {found.wiki} is searched", body)


def _table(found: Evaluation) -> str:
    head = "".join(f"<th scope='col'>{name}</th>" for name in (*METRICS, "median", "p95"))
    rows = "".join(row for run in found.everyone() for row in _rows(run, found.seed))
    return f"<div class='wide'><table><tr><th></th>{head}</tr>{rows}</table></div>"


def _rows(run: Run, seed: int) -> Iterator[str]:
    """The figures of a configuration, and of each kind of questions where there are several."""
    times = "".join(f"<td class='figure'>{each:.1f} ms</td>" for each in run.milliseconds())
    yield f"<tr><th scope='row'>{escape(run.label)}</th>{_figures(run.figures(None, seed))}{times}</tr>"
    kinds = run.kinds()
    for kind in kinds if len(kinds) > 1 else ():
        yield f"<tr><td class='quiet'>{kind}</td>{_figures(run.figures(kind, seed))}<td></td><td></td></tr>"


def _figures(figures: Mapping[str, Interval]) -> str:
    return "".join(_figure(each) for each in figures.values())


def _figure(each: Interval) -> str:
    low, high, mean = (round(value * _WIDTH, 1) for value in (each.low, each.high, each.mean))
    drawn = (
        f"<svg width='{_WIDTH}' height='10' role='img' aria-label='{each.mean:.3f}'>"
        f"<rect class='bar' width='{mean}' height='10'/>"
        f"<path class='bounds' d='M{low} 5H{high}M{low} 2V8M{high} 2V8'/></svg>"
    )
    return f"<td class='figure'>{each.mean:.3f} <small>[{each.low:.3f} {each.high:.3f}]</small>{drawn}</td>"


def _comparison(comparison: Comparison) -> str:
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
        f"<li>{_asked(one)}<br>{ours} {_returned(one)}<br>{theirs} {_returned(other)}</li>"
        for one, other in comparison.examples
    )
    return (
        f"<h2>{ours} against {theirs}</h2>"
        f"<div class='wide'><table><tr><th></th>{head}</tr>{''.join(rows)}</table></div>"
        + (f"<p>Where they differ most, losses first:</p><ul>{examples}</ul>" if examples else "")
    )


def _outcomes(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "<p>None: every question found all it wanted first.</p>"
    return "<ul>" + "".join(f"<li>{_asked(each)}<br>found {_returned(each)}</li>" for each in outcomes) + "</ul>"


def _asked(outcome: Outcome) -> str:
    question = outcome.question
    return f"<b>{escape(question.text)}</b> <small>{question.kind}</small><br>wanted {_paths(question.relevant)}"


def _returned(outcome: Outcome) -> str:
    """What was returned, the wanted ones marked, and how good that is."""
    relevant = outcome.question.relevant
    shown = [(each.path, _paths([each.path])) for each in outcome.found[:_SHOWN]]
    pages = ", ".join(f"<mark>{page}</mark>" if path in relevant else page for path, page in shown)
    return f"<small>nDCG {outcome.figures['ndcg@10']:.2f}</small> {pages or 'nothing'}"


def _paths(paths: Iterable[str]) -> str:
    return ", ".join(f"<code>{escape(path)}</code>" for path in paths)
