"""A report of queries as sentences and tables, for terminal and HTML alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from wikiholt.asked import AskedQuery, FoundPages, QueryReport, SlowQuery
from wikiholt.surfaces.cli.output import counted


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; `empty` is said where there is none."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


def summary(report: QueryReport) -> list[str]:
    """What there is to say beside tables."""
    period = f"{_day(report.since)} to {_day(report.until)}"
    if not report.searches:
        return [f"No searches were written down from {period}.", *_notes(report)]
    typed = f" (and {counted(report.beginnings, 'beginning')} while they were typed)" if report.beginnings else ""
    ways = ", ".join(f"{count} by {surface}" for surface, count in report.surfaces.items())
    searches = "1 search" if report.searches == 1 else f"{report.searches} searches"
    queries = "1 query" if report.queries == 1 else f"{report.queries} queries"
    return [
        f"{period}: {searches}{typed} for {queries}; {ways}.",
        f"Without a result: {report.without_result}. Answered while something was missing (degraded): "
        f"{report.degraded}. Milliseconds: {report.p50_ms:.1f} at the median, {report.p95_ms:.1f} at p95.",
        *_notes(report),
    ]


def _notes(report: QueryReport) -> Iterator[str]:
    if not report.logging:
        yield "Searches are not written down any more: what is here is from before."
    if report.lost:
        yield f"{report.lost} more could not be written down: they came faster than the log could be written."
    if report.damaged_at:
        yield f"The log was found damaged on {_day(report.damaged_at)} and begun anew; what it held before is lost."
    if report.pages is None:
        yield "There is no index that could be asked for its pages."


def tables(report: QueryReport) -> list[Table]:
    """The tables of a report with searches."""
    found = [
        Table(
            "Asked most often",
            ("query", "times", "hits", "best score"),
            tuple((each.query, str(each.count), f"{each.mean_hits:.1f}", _score(each)) for each in report.frequent),
            "None.",
        ),
        Table(
            "Asked without a result",
            ("query", "times", "best score", "with a filter", "did you mean"),
            tuple(_unanswered(each) for each in report.unanswered),
            "None: every query had a relevant hit.",
        ),
        Table("Slowest", ("query", "ms", "when", "mode"), tuple(_slow(each) for each in report.slow), "None."),
    ]
    return found + (_page_tables(report.pages) if report.pages else [])


def _page_tables(pages: FoundPages) -> list[Table]:
    shown = f", the first {len(pages.never)} by path" if pages.never_found > len(pages.never) else ""
    caption = f"Pages never found: {pages.never_found} of {pages.indexed}{shown}"
    often = tuple((path, str(count)) for path, count in pages.often)
    return [
        Table(caption, ("page",), tuple((path,) for path in pages.never), "None: every page was found by some search."),
        Table("Pages found most often", ("page", "times"), often, "None."),
    ]


def _unanswered(asked: AskedQuery) -> tuple[str, ...]:
    times = str(asked.without_result) + (f" of {asked.count}" if asked.count > asked.without_result else "")
    return asked.query, times, _score(asked), str(asked.filtered or "–"), asked.did_you_mean or "–"


def _slow(slow: SlowQuery) -> tuple[str, ...]:
    when = datetime.fromtimestamp(slow.at).astimezone()
    return slow.query, f"{slow.ms:.1f}", f"{when:%Y-%m-%d %H:%M}", slow.mode + (", degraded" if slow.degraded else "")


def _score(asked: AskedQuery) -> str:
    return f"{asked.best_score:.2f}"


def _day(when: datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M}"
