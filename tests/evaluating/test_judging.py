"""Answers judged: what a question excludes, and who is compared with whom."""

from dataclasses import replace

from wikiholt.evaluating import Found, Kind, Outcome, Question, Run, judged, wanted
from wikiholt.evaluating.report import Comparison, Evaluation
from wikiholt.model import Mode
from wikiholt.surfaces.cli.evaluation_lines import evaluation_lines
from wikiholt.surfaces.cli.evaluation_page import evaluation_page
from wikiholt.surfaces.cli.output import Style

LINKED = Question("1", Kind.LINKS, "the warm corner", {"heap": 1}, frozenset({"Home", "Index"}))


def ranking(*paths: str) -> list[Found]:
    return [Found(path, path.title(), 0.5) for path in paths]


def ran(label: str, mode: Mode, *paths: str) -> Run:
    return Run(label, mode, (judged(LINKED, ranking(*paths), 2.0),))


def evaluation(ours: Run, theirs: Run, *runs: Run) -> Evaluation:
    return Evaluation("garden", None, 0, {Kind.LINKS: 1}, (ours, *runs), Comparison.of(ours, theirs, 0, 5))


def test_the_page_a_link_stands_on_is_taken_out_before_a_ranking_is_judged() -> None:
    outcome: Outcome = judged(LINKED, ranking("Home", "heap", "shed"), 1.0)
    assert [each.path for each in outcome.found] == ["heap", "shed"]
    assert outcome.figures == {"ndcg@10": 1.0, "recall@10": 1.0, "mrr": 1.0, "success@1": 1.0}
    kept = judged(replace(LINKED, excluded=frozenset()), ranking("Home", "heap", "shed"), 1.0)
    assert kept.figures["success@1"] == 0.0


def test_ten_pages_are_left_when_the_excluded_ones_are_taken_out() -> None:
    assert wanted(LINKED) == 12
    pages = ["Home", "Index", *"abcdefghi", "heap"]
    outcome = judged(LINKED, ranking(*pages), 1.0)
    assert len(outcome.found) == 10
    assert outcome.figures["recall@10"] == 1.0


def test_a_page_that_comes_twice_counts_where_it_comes_first() -> None:
    outcome = judged(LINKED, ranking("shed", "shed", "heap"), 1.0)
    assert outcome.figures["mrr"] == 0.5


def test_who_is_compared_with_stands_in_the_table_once() -> None:
    hybrid, keyword = ran("hybrid", Mode.HYBRID, "heap"), ran("keyword", Mode.KEYWORD, "shed", "heap")
    for found in (evaluation(hybrid, keyword), evaluation(hybrid, keyword, keyword)):
        assert [run.label for run in found.everyone()] == ["hybrid", "keyword"]
        lines = evaluation_lines(found, Style(coloured=False))
        assert [line.split()[0] for line in lines[3:5]] == ["hybrid", "keyword"]
        assert evaluation_page(found).count("<th scope='row'>keyword</th>") == 1


def test_a_configuration_of_many_settings_stands_above_its_figures() -> None:
    hybrid, other = (
        ran("hybrid", Mode.HYBRID, "heap"),
        ran("hybrid rerank.model=a-model-with-a-name", Mode.HYBRID, "heap"),
    )
    lines = evaluation_lines(evaluation(hybrid, other), Style(coloured=False))
    assert lines[4] == "hybrid rerank.model=a-model-with-a-name"
    assert [line.index("1.000") for line in (lines[3], lines[5])] == [32, 32]


def test_the_report_shows_how_good_each_answer_was_and_marks_what_was_wanted() -> None:
    page = evaluation_page(evaluation(ran("hybrid", Mode.HYBRID, "heap"), ran("keyword", Mode.KEYWORD, "shed", "heap")))
    assert "hybrid <small>nDCG 1.00</small> <mark><code>heap</code></mark><br>" in page
    assert "keyword <small>nDCG 0.63</small> <code>shed</code>, <mark><code>heap</code></mark></li>" in page


def test_a_note_of_some_answers_says_of_how_many() -> None:
    slow = judged(LINKED, ranking("heap"), 1.0, ("there was no time",))
    run = Run("hybrid", Mode.HYBRID, (slow, judged(LINKED, ranking("heap"), 1.0), slow))
    found = Evaluation("garden", None, 0, {Kind.LINKS: 3}, (run,))
    assert found.notes()[1:] == ("hybrid: there was no time (2 of 3 answers)",)
    always = Evaluation("garden", None, 0, {Kind.LINKS: 1}, (Run("hybrid", Mode.HYBRID, (slow,)),))
    assert always.notes()[1:] == ("hybrid: there was no time",)
