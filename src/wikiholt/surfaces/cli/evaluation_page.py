"""An evaluation as one HTML file that needs no other: tables, bars with their intervals, the worst questions."""

from collections.abc import Iterable, Sequence
from html import escape

from wikiholt.evaluating import Interval, Outcome, Run
from wikiholt.evaluating.metrics import METRICS
from wikiholt.evaluating.report import Comparison, Evaluation

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem } caption { text-align: left; font-weight: 600 }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde3ea; vertical-align: top }
td.figure { font-variant-numeric: tabular-nums; white-space: nowrap } small, .quiet { color: #5b6b7c }
svg { display: block } .bar { fill: #9db8d6 } .bounds { stroke: #1d2733; stroke-width: 1.5 }
.good { color: #17663a } .bad { color: #a11d2b } li { margin: .3rem 0 }
@media (prefers-color-scheme: dark) {
  body { background: #12181f; color: #dfe6ee } th, td { border-color: #2b3642 } small, .quiet { color: #93a3b5 }
  .bar { fill: #3d5f86 } .bounds { stroke: #dfe6ee } .good { color: #6fd09a } .bad { color: #ff8b96 }
}
"""
_WIDTH = 120
_SHOWN = 5


def evaluation_page(found: Evaluation) -> str:
    """The report; whatever stands in the wiki is shown as text, and nothing is fetched by it."""
    asked = found.runs[0].kinds()
    parts = [f"{count} of {found.available.get(kind, count)} {kind}" for kind, count in asked.items()]
    at = f" at {escape(found.revision[:10])}" if found.revision else ""
    title = f"How well {escape(found.wiki)} is searched"
    body = [
        f"<h1>{title}</h1>",
        f"<p>{sum(asked.values())} questions{at}: {escape(', '.join(parts))}. Seed {found.seed}. "
        "Figures are means; brackets and lines hold them with 95 % confidence.</p>",
        *(f"<p class='quiet'>Note: {escape(note)}</p>" for note in found.notes()),
        *(_table(run, found) for run in found.runs),
        *([_comparison(found.comparison, found)] if found.comparison else []),
        f"<h2>Answered worst by {escape(found.runs[0].label)}</h2>",
        _outcomes(found.runs[0].worst(found.worst)),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _table(run: Run, found: Evaluation) -> str:
    half, most = run.milliseconds()
    rows = [("all", run.figures(None, found.seed))]
    kinds = run.kinds()
    rows += [(str(kind), run.figures(kind, found.seed)) for kind in kinds] if len(kinds) > 1 else []
    head = "".join(f"<th>{metric}</th>" for metric in METRICS)
    cells = [
        f"<tr><th scope='row'>{escape(name)}</th>" + "".join(_figure(each) for each in figures.values()) + "</tr>"
        for name, figures in rows
    ]
    caption = f"{escape(run.label)} <small>{half:.1f} ms at the median, {most:.1f} ms at p95</small>"
    return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(cells)}</table>"


def _figure(each: Interval) -> str:
    low, high, mean = (round(value * _WIDTH, 1) for value in (each.low, each.high, each.mean))
    drawn = (
        f"<svg width='{_WIDTH}' height='10' role='img' aria-label='{each.mean:.3f}'>"
        f"<rect class='bar' width='{mean}' height='10'/>"
        f"<path class='bounds' d='M{low} 5H{high}M{low} 2V8M{high} 2V8'/></svg>"
    )
    return f"<td class='figure'>{each.mean:.3f} <small>[{each.low:.3f} {each.high:.3f}]</small>{drawn}</td>"


def _comparison(comparison: Comparison, found: Evaluation) -> str:
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
    head = "<tr><th></th><th>difference</th><th>p</th><th>better</th><th>worse</th><th>same</th></tr>"
    examples = "".join(
        f"<li>{_asked(one)}<br>{ours}: {_returned(one)}<br>{theirs}: {_returned(other)}</li>"
        for one, other in comparison.examples
    )
    return (
        f"<h2>{ours} against {theirs}</h2>{_table(comparison.theirs, found)}<table>{head}{''.join(rows)}</table>"
        f"<p>Where they differ most, losses first:</p><ul>{examples}</ul>"
    )


def _outcomes(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "<p>None: every question found all it wanted first.</p>"
    return "<ul>" + "".join(f"<li>{_asked(each)}<br>found {_returned(each)}</li>" for each in outcomes) + "</ul>"


def _asked(outcome: Outcome) -> str:
    question = outcome.question
    about = f"<small>{question.kind}, nDCG {outcome.figures['ndcg@10']:.2f}</small>"
    return f"<b>{escape(question.text)}</b> {about}<br>wanted {_paths(question.relevant)}"


def _returned(outcome: Outcome) -> str:
    return _paths(each.path for each in outcome.found[:_SHOWN]) or "nothing"


def _paths(paths: Iterable[str]) -> str:
    return ", ".join(f"<code>{escape(path)}</code>" for path in paths)
