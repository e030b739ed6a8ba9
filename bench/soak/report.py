"""The report of a soak."""

import statistics
from collections.abc import Sequence

from bench.soak.client import Ledger
from bench.soak.growth import Point, Trend, find_longest_life
from bench.soak.outcome import SoakOutcome

_SLICES = 10


def format_report(outcome: SoakOutcome) -> list[str]:
    """The report, as lines of Markdown."""
    faults, plan, ledger = outcome.find_faults(), outcome.plan, outcome.ledger
    requests = sum(ledger.done.values())
    rows = [f"**{'Passed' if not faults else f'{len(faults)} findings'}.** {plan.wikis} wikis, {outcome.lasted:.0f} s,"]
    rows[0] += f" {requests:,} requests and pushes, {len(outcome.service.ends) - 1} restarts."
    rows += [f"Repositories are checked every {plan.interval:g} s, backups kept: {plan.backups_kept}."]
    rows += ["", *(f"- {fault}" for fault in faults)] if faults else []
    rows += ["", *_format_answers(ledger), "", *_format_freshness(ledger), "", *_format_latency(ledger)]
    rows += ["", *_format_growth(outcome.trends), "", *_format_points(outcome.points)]
    return [*rows, "", *_format_restarts(outcome), "", *_format_final(outcome)]


def _format_answers(ledger: Ledger) -> list[str]:
    rows = ["## Answers", "", f"Unexplained: {ledger.unexplained_count}. Number of requests:", ""]
    rows += [", ".join(f"{what} {count:,}" for what, count in sorted(ledger.done.items())) + ".", ""]
    rows += ["| explained deviation | times |", "|---|---|"]
    return rows + [f"| {kind} | {count:,} |" for kind, count in ledger.explained.most_common()]


def _format_spread(figures: Sequence[float], scale: float, digits: int) -> str:
    if len(figures) < 2:
        return f"{len(figures)} | | | |"
    cuts = statistics.quantiles(figures, n=100, method="inclusive")
    percentiles = " | ".join(f"{cuts[at] * scale:.{digits}f}" for at in (49, 94, 98))
    return f"{len(figures):,} | {percentiles} | {max(figures) * scale:.{digits}f}"


def _format_freshness(ledger: Ledger) -> list[str]:
    rows = ["## Freshness", "", "From a commit to the first search that finds it:", ""]
    rows += ["| commit | times | p50 s | p95 s | p99 s | longest s |", "|---|---|---|---|---|---|"]
    return rows + [f"| {kind} | {_format_spread(seen, 1, 2)} |" for kind, seen in sorted(ledger.freshness.items())]


def _format_latency(ledger: Ledger) -> list[str]:
    rows = ["## Searches", "", "| | times | p50 ms | p95 ms | p99 ms | longest ms |", "|---|---|---|---|---|---|"]
    kinds = sorted({kind for _, kind, _ in ledger.latencies})
    rows += [
        f"| {kind} | {_format_spread([s for _, k, s in ledger.latencies if k == kind], 1e3, 1)} |" for kind in kinds
    ]
    plain = [(at, seconds) for at, kind, seconds in ledger.latencies if "fresh" not in kind]
    last = max((at for at, _ in plain), default=0.0)
    for number in range(_SLICES):
        low, high = last * number / _SLICES, last * (number + 1) / _SLICES
        some = [seconds for at, seconds in plain if low <= at < high]
        rows.append(f"| all but fresh, {low:.0f} to {high:.0f} s | {_format_spread(some, 1e3, 1)} |")
    return rows


def _format_growth(trends: Sequence[Trend]) -> list[str]:
    rows = ["## Growth", ""]
    rows += ["Medians of the points of the longest life of the process, without its first third (warm-up):", ""]
    rows += ["| | middle | end | growth | allowed | |", "|---|---|---|---|---|---|"]
    for trend in trends:
        verdict = "grows" if trend.grows else ""
        middle = f"{trend.before:.1f} | {trend.after:.1f} | {trend.growth:+.1f}"
        rows.append(f"| {trend.name} | {middle} | {trend.allowed:.1f} ({trend.tolerance}) | {verdict} |")
    return rows


def _format_points(points: Sequence[Point]) -> list[str]:
    names = list(points[0].figures)
    rows = ["Every point, while idle, with every index at its HEAD and every wiki just searched:", ""]
    rows += ["| life | s | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for point in points:
        figures = " | ".join(f"{point.figures[name]:.1f}".removesuffix(".0") for name in names)
        rows.append(f"| {point.life + 1} | {point.at:.0f} | {figures} |")
    return [*rows, "", f"{len(find_longest_life(points))} of these points are of the longest life."]


def _format_restarts(outcome: SoakOutcome) -> list[str]:
    rows = ["## Restarts", "", "| signal | ended after s | listening again after s |", "|---|---|---|"]
    rows += [f"| {how} | {gone:.2f} | {back:.2f} |" for how, gone, back in outcome.service.ends]
    lines = [f"| {line} | {count:,} |" for line, count in outcome.log.most_common(20)]
    return rows + (["", "| in the log | times |", "|---|---|", *lines] if lines else ["", "The log is empty."])


def _format_final(outcome: SoakOutcome) -> list[str]:
    ending = outcome.ending
    return [
        "## At the end",
        "",
        f"{ending.wikis} indexes were compared with their HEAD as git reports it, {ending.pages:,} pages and their blobs;",
        f"{ending.commits:,} acknowledged commits were searched in the histories; every byte below the data directory",
        f"and the log were searched for canaries of other wikis. Faults: {len(ending.faults)}. Index files are",
        f"{ending.bloat:.2f} times their size after a rebuild (median).",
    ]
