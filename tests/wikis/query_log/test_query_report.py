"""The query report of given records."""

from datetime import UTC, datetime

from tests.wikis.query_log.query_log_fixtures import make_query_record
from wikiholt.domain.search import QueryRecord
from wikiholt.wikis.query_report import QueryReport, ReportPeriod, build_report, drop_unfinished_queries

PERIOD = ReportPeriod(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC), logging=True)
PATHS = frozenset({"Heron", "Pump", "Rota"})


def build_test_report(*entries: QueryRecord, limit: int = 10) -> QueryReport:
    return build_report(entries, PATHS, PERIOD, limit)


def get_kept_queries(*entries: QueryRecord) -> list[str]:
    return [record.query for record in drop_unfinished_queries(entries)]


def test_queries_that_differ_in_case_and_space_are_the_same() -> None:
    found = build_test_report(
        make_query_record("grey heron", 100, hits=3, score=0.5),
        make_query_record(" Grey  HERON ", 200, hits=1, score=0.9),
        make_query_record("pump", 300),
    )
    assert (found.searches, found.queries) == (3, 2)
    first = found.frequent[0]
    assert (first.query, first.count, first.mean_hits, first.best_score) == ("Grey HERON", 2, 2.0, 0.9)


def test_queries_without_results_are_listed_by_frequency_with_suggestion_and_filter() -> None:
    found = build_test_report(
        make_query_record("pump", 100),
        make_query_record("hereon", 200, hits=0, did_you_mean="heron", pages=()),
        make_query_record("tax return", 300, nothing_relevant=True),
        make_query_record("Tax Return", 400, nothing_relevant=True, filtered=True),
    )
    assert found.without_result == 3
    assert [(record.query, record.without_result, record.filtered) for record in found.unanswered] == [
        ("Tax Return", 2, 1),
        ("hereon", 1, 0),
    ]
    assert found.unanswered[1].did_you_mean == "heron"


def test_the_slowest_answer_of_each_query_is_shown_with_shares_of_all() -> None:
    entries = [make_query_record(f"q{number}", number * 100, ms=float(number)) for number in range(1, 21)]
    found = build_test_report(*entries, make_query_record("q20", 9000, ms=500, degraded=True, mode="keyword"), limit=2)
    assert [(record.query, record.ms, record.degraded) for record in found.slow] == [
        ("q20", 500, True),
        ("q19", 19, False),
    ]
    assert (found.p50_ms, found.p95_ms) == (11, 20)
    assert found.degraded == 1


def test_pages_shown_only_below_nothing_relevant_count_as_never_found() -> None:
    found = build_test_report(
        make_query_record("heron", 100, pages=("Heron",)),
        make_query_record("bird", 200, pages=("Heron", "Gone")),
        make_query_record("tax", 300, nothing_relevant=True, pages=("Rota", "Pump")),
    )
    assert found.pages is not None
    assert (found.pages.indexed, found.pages.never_found, found.pages.never) == (3, 2, ("Pump", "Rota"))
    assert found.pages.often == (("Heron", 2),)
    assert build_test_report(make_query_record("x", 1), limit=1).pages.never == ("Rota",)  # type: ignore[union-attr]


def test_lost_records_are_summed_and_an_empty_log_gives_an_empty_report() -> None:
    assert build_test_report(make_query_record("a", 1, lost=3), make_query_record("b", 99, lost=4)).lost == 7
    found = build_test_report()
    assert (found.searches, found.queries, found.p95_ms, found.frequent, found.slow) == (0, 0, 0.0, (), ())


def test_unfinished_queries_are_counted_separately_with_their_time() -> None:
    typed = [
        make_query_record(text, 100 + 0.4 * place, ms=50) for place, text in enumerate(("h", "her", "heron", "heron "))
    ]
    found = build_test_report(*typed, make_query_record("pump", 200, ms=1))
    assert (found.searches, found.unfinished, found.queries) == (2, 3, 2)
    assert [record.query for record in found.frequent] == ["heron", "pump"]
    assert found.p50_ms == 50


def test_only_a_query_continued_within_seconds_in_the_same_interface_is_unfinished() -> None:
    assert get_kept_queries(make_query_record("pump", 0), make_query_record("pump room", 4)) == ["pump room"]
    assert get_kept_queries(make_query_record("pump", 0), make_query_record("pump room", 6)) == ["pump", "pump room"]
    assert get_kept_queries(make_query_record("pump", 0), make_query_record("pump room", 1, interface="otterwiki")) == [
        "pump",
        "pump room",
    ]
    assert get_kept_queries(
        make_query_record("pump", 0), make_query_record("heron", 1), make_query_record("pump", 2)
    ) == [
        "heron",
        "pump",
    ]
    assert get_kept_queries(make_query_record("pump room", 0), make_query_record("pump", 1)) == ["pump room", "pump"]
    for way in ("cli", "mcp"):  # not an interface for typing
        assert get_kept_queries(
            make_query_record("pump", 0, interface=way), make_query_record("pump", 1, interface=way)
        ) == [
            "pump",
            "pump",
        ]


def test_two_people_who_type_at_once_are_distinguished_by_their_queries() -> None:
    texts = ["d", "p", "de", "pu", "depl", "pump", "deploy"]
    assert get_kept_queries(*(make_query_record(text, 0.3 * place) for place, text in enumerate(texts))) == [
        "pump",
        "deploy",
    ]
