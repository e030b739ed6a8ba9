"""`wikiholt report`: what was searched for in a wiki, as text or HTML."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from wikiholt.api.documents.search_documents import build_query_report_document
from wikiholt.errors import InvalidInput, QueryLogNotFound
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_slug
from wikiholt.interfaces.cli.output import format_count
from wikiholt.interfaces.cli.reports import Report, ReportTable, write_report
from wikiholt.wikis.query_report import PageReach, QueryReport, QueryStats, SlowQuery


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "report", run_report)
    add_slug(parser)
    parser.add_argument("--days", type=int, metavar="N", help="the last N days (default: all logged searches)")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="rows of each table (default: 10)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as HTML")
    parser.add_argument("--clear", action="store_true", help="delete all logged searches")


def run_report(context: CommandContext) -> int:
    """Show the report of a wiki's query log, or clear the log."""
    try:
        return _show_or_clear(context)
    except QueryLogNotFound as error:
        command = f"wikiholt set {context.arguments.slug} log_queries=true"
        hint = f"Enable it: `{command}`, or queries.log = true in the settings for all."
        raise QueryLogNotFound(error.message, hint=hint) from error


def _show_or_clear(context: CommandContext) -> int:
    arguments, slug = context.arguments, context.arguments.slug
    query_log = context.service.get_handle(slug).query_log
    if arguments.clear:
        count = query_log.clear()
        text = f"Deleted {count} logged searches of {slug}." if count else "There was nothing to delete."
        return context.print_result({"wiki": slug, "cleared": count}, [text])
    for name, maximum in (("days", 3660), ("limit", 1000)):
        value = getattr(arguments, name)
        if value is not None and not 1 <= value <= maximum:
            raise InvalidInput(f"--{name} is {value}", hint=f"use 1 to {maximum}")
    report = query_log.build_report(arguments.days, arguments.limit)
    lines = write_report(build_report(slug, report), arguments.html, context.style)
    return context.print_result(build_query_report_document(slug, report), lines)


def build_report(slug: str, report: QueryReport) -> Report:
    tables = _build_tables(report) if report.searches else []
    return Report("Searches in", slug, _format_summary(report), tables)


def _format_summary(report: QueryReport) -> list[str]:
    """The sentences before the tables."""
    period = f"{_format_day(report.since)} to {_format_day(report.until)}"
    if not report.searches:
        return [f"No searches were logged from {period}.", *_format_notes(report)]
    typed = f" (and {format_count(report.unfinished, 'unfinished one')} while typing)" if report.unfinished else ""
    interfaces = ", ".join(f"{count} by {interface}" for interface, count in report.interfaces.items())
    searches = "1 search" if report.searches == 1 else f"{report.searches} searches"
    queries = "1 query" if report.queries == 1 else f"{report.queries} queries"
    return [
        f"{period}: {searches}{typed} for {queries}; {interfaces}.",
        f"Without a result: {report.without_result}. Degraded: "
        f"{report.degraded}. Latency: {report.p50_ms:.1f} ms median, {report.p95_ms:.1f} ms p95.",
        *_format_notes(report),
    ]


def _format_notes(report: QueryReport) -> Iterator[str]:
    if not report.logging:
        yield "Logging is off now; these searches were logged before."
    if report.lost:
        yield f"{report.lost} more were not logged, because the log could not keep up."
    if report.damaged_at:
        yield f"The log was damaged and restarted on {_format_day(report.damaged_at)}; earlier entries are lost."
    if report.pages is None:
        yield "There is no index to list the pages of."


def _build_tables(report: QueryReport) -> list[ReportTable]:
    """The tables of a report that has searches."""
    tables = [
        ReportTable(
            "Most frequent",
            ("query", "times", "hits", "best score"),
            tuple(
                (stats.query, str(stats.count), f"{stats.mean_hits:.1f}", f"{stats.best_score:.2f}")
                for stats in report.frequent
            ),
            "None.",
        ),
        ReportTable(
            "Without a result",
            ("query", "times", "best score", "with a filter", "did you mean"),
            tuple(map(_format_unanswered, report.unanswered)),
            "None: every query had a relevant hit.",
        ),
        ReportTable(
            "Possible synonyms: a search without a result, repeated with other words",
            ("rule", "times"),
            tuple((proposal.rule, str(proposal.count)) for proposal in report.synonyms),
            "None.",
        ),
        ReportTable("Slowest", ("query", "ms", "when", "mode"), tuple(map(_format_slow, report.slow)), "None."),
    ]
    return tables + (_build_page_tables(report.pages) if report.pages else [])


def _build_page_tables(pages: PageReach) -> list[ReportTable]:
    shown = f", the first {len(pages.never)} by path" if pages.never_found > len(pages.never) else ""
    caption = f"Pages never found: {pages.never_found} of {pages.indexed}{shown}"
    often = tuple((path, str(count)) for path, count in pages.often)
    return [
        ReportTable(
            caption, ("page",), tuple((path,) for path in pages.never), "None: every page was found by a search."
        ),
        ReportTable("Pages found most often", ("page", "times"), often, "None."),
    ]


def _format_unanswered(stats: QueryStats) -> tuple[str, ...]:
    times = str(stats.without_result) + (f" of {stats.count}" if stats.count > stats.without_result else "")
    return stats.query, times, f"{stats.best_score:.2f}", str(stats.filtered or "–"), stats.did_you_mean or "–"


def _format_slow(slow: SlowQuery) -> tuple[str, ...]:
    return slow.query, f"{slow.ms:.1f}", _format_day(slow.at), slow.mode + (", degraded" if slow.degraded else "")


def _format_day(date: datetime) -> str:
    return f"{date.astimezone():%Y-%m-%d %H:%M}"
