"""What a query log tells, of entries made by hand."""

from datetime import UTC, datetime

from asked_ground import searched

from wikiholt.asked import QueryReport, reported
from wikiholt.asked.beginnings import without_beginnings
from wikiholt.asked.report import Period
from wikiholt.model import Searched

PERIOD = Period(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC), logging=True)
PATHS = frozenset({"Heron", "Pump", "Rota"})


def report(*entries: Searched, limit: int = 10) -> QueryReport:
    return reported(entries, PATHS, PERIOD, limit)


def kept(*entries: Searched) -> list[str]:
    return [each.query for each in without_beginnings(entries)]


def test_queries_are_the_same_whatever_their_case_and_space() -> None:
    found = report(
        searched("grey heron", 100, hits=3, score=0.5),
        searched(" Grey  HERON ", 200, hits=1, score=0.9),
        searched("pump", 300),
    )
    assert (found.searches, found.queries) == (3, 2)
    first = found.frequent[0]
    assert (first.query, first.count, first.mean_hits, first.best_score) == ("Grey HERON", 2, 2.0, 0.9)


def test_what_found_nothing_is_listed_by_how_often_with_what_was_meant_and_whether_a_filter_may_be_why() -> None:
    found = report(
        searched("pump", 100),
        searched("hereon", 200, hits=0, did_you_mean="heron", pages=()),
        searched("tax return", 300, nothing_relevant=True),
        searched("Tax Return", 400, nothing_relevant=True, filtered=True),
    )
    assert found.without_result == 3
    assert [(each.query, each.without_result, each.filtered) for each in found.unanswered] == [
        ("Tax Return", 2, 1),
        ("hereon", 1, 0),
    ]
    assert found.unanswered[1].did_you_mean == "heron"


def test_the_slowest_answer_of_each_query_is_shown_and_the_shares_are_those_of_all() -> None:
    entries = [searched(f"q{number}", number * 100, ms=float(number)) for number in range(1, 21)]
    found = report(*entries, searched("q20", 9000, ms=500, degraded=True, mode="keyword"), limit=2)
    assert [(each.query, each.ms, each.degraded) for each in found.slow] == [("q20", 500, True), ("q19", 19, False)]
    assert (found.p50_ms, found.p95_ms) == (11, 20)
    assert found.degraded == 1


def test_pages_that_no_answer_showed_were_never_found_though_they_stood_below_nothing_relevant() -> None:
    found = report(
        searched("heron", 100, pages=("Heron",)),
        searched("bird", 200, pages=("Heron", "Gone")),
        searched("tax", 300, nothing_relevant=True, pages=("Rota", "Pump")),
    )
    assert found.pages is not None
    assert (found.pages.indexed, found.pages.never_found, found.pages.never) == (3, 2, ("Pump", "Rota"))
    assert found.pages.often == (("Heron", 2),)
    assert report(searched("x", 1), limit=1).pages.never == ("Rota",)  # type: ignore[union-attr]


def test_what_was_lost_is_summed_up_and_an_empty_log_gives_an_empty_report() -> None:
    assert report(searched("a", 1, lost=3), searched("b", 99, lost=4)).lost == 7
    found = report()
    assert (found.searches, found.queries, found.p95_ms, found.frequent, found.slow) == (0, 0, 0.0, (), ())


def test_beginnings_of_what_is_typed_on_count_apart_and_their_time_counts() -> None:
    typed = [searched(text, 100 + 0.4 * place, ms=50) for place, text in enumerate(("h", "her", "heron", "heron "))]
    found = report(*typed, searched("pump", 200, ms=1))
    assert (found.searches, found.beginnings, found.queries) == (2, 3, 2)
    assert [each.query for each in found.frequent] == ["heron", "pump"]
    assert found.p50_ms == 50


def test_only_what_goes_on_within_seconds_by_the_same_way_is_a_beginning() -> None:
    assert kept(searched("pump", 0), searched("pump room", 4)) == ["pump room"]
    assert kept(searched("pump", 0), searched("pump room", 6)) == ["pump", "pump room"]
    assert kept(searched("pump", 0), searched("pump room", 1, surface="otterwiki")) == ["pump", "pump room"]
    assert kept(searched("pump", 0), searched("heron", 1), searched("pump", 2)) == ["heron", "pump"]
    assert kept(searched("pump room", 0), searched("pump", 1)) == ["pump room", "pump"]
    for way in ("cli", "mcp"):  # nobody types there
        assert kept(searched("pump", 0, surface=way), searched("pump", 1, surface=way)) == ["pump", "pump"]


def test_two_people_who_type_at_once_are_told_apart_by_what_they_type() -> None:
    texts = ["d", "p", "de", "pu", "depl", "pump", "deploy"]
    assert kept(*(searched(text, 0.3 * place) for place, text in enumerate(texts))) == ["pump", "deploy"]
