"""Evaluation of answers: exclusions of a question, and compared configurations."""

from dataclasses import replace

from wikiholt.domain.search import SearchMode
from wikiholt.interfaces.cli.evaluation_command import build_report
from wikiholt.wikis.evaluation.questions import Question, QuestionKind
from wikiholt.wikis.evaluation.runner import (
    EvaluationReport,
    EvaluationRun,
    QuestionOutcome,
    ReturnedPage,
    RunComparison,
    get_result_limit,
    score_ranking,
)

LINKED = Question("1", QuestionKind.LINKS, "the warm corner", {"heap": 1}, frozenset({"Home", "Index"}))


def make_ranking(*paths: str) -> list[ReturnedPage]:
    return [ReturnedPage(path, path.title(), 0.5) for path in paths]


def make_run(label: str, mode: SearchMode, *paths: str) -> EvaluationRun:
    return EvaluationRun(label, mode, (score_ranking(LINKED, make_ranking(*paths), 2.0),))


def make_evaluation(ours: EvaluationRun, theirs: EvaluationRun, *runs: EvaluationRun) -> EvaluationReport:
    return EvaluationReport(
        "garden", None, 0, {QuestionKind.LINKS: 1}, (ours, *runs), RunComparison.from_runs(ours, theirs, 0, 5)
    )


def test_the_page_with_the_link_is_removed_before_a_ranking_is_judged() -> None:
    outcome: QuestionOutcome = score_ranking(LINKED, make_ranking("Home", "heap", "shed"), 1.0)
    assert [page.path for page in outcome.returned] == ["heap", "shed"]
    assert outcome.metrics == {"ndcg@10": 1.0, "recall@10": 1.0, "mrr": 1.0, "success@1": 1.0}
    kept = score_ranking(replace(LINKED, excluded=frozenset()), make_ranking("Home", "heap", "shed"), 1.0)
    assert kept.metrics["success@1"] == 0.0


def test_ten_pages_remain_without_the_excluded_ones() -> None:
    assert get_result_limit(LINKED) == 12
    pages = ["Home", "Index", *"abcdefghi", "heap"]
    outcome = score_ranking(LINKED, make_ranking(*pages), 1.0)
    assert len(outcome.returned) == 10
    assert outcome.metrics["recall@10"] == 1.0


def test_a_repeated_page_counts_at_its_first_rank() -> None:
    outcome = score_ranking(LINKED, make_ranking("shed", "shed", "heap"), 1.0)
    assert outcome.metrics["mrr"] == 0.5


def test_the_baseline_is_in_the_table_once() -> None:
    hybrid, keyword = (
        make_run("hybrid", SearchMode.HYBRID, "heap"),
        make_run("keyword", SearchMode.KEYWORD, "shed", "heap"),
    )
    for found in (make_evaluation(hybrid, keyword), make_evaluation(hybrid, keyword, keyword)):
        assert [run.label for run in found.list_runs()] == ["hybrid", "keyword"]
        assert [row[0] for row in build_report(found).tables[0].rows] == ["hybrid", "keyword"]


def test_the_report_shows_the_quality_of_each_answer() -> None:
    found = make_evaluation(
        make_run("hybrid", SearchMode.HYBRID, "heap"), make_run("keyword", SearchMode.KEYWORD, "shed", "heap")
    )
    (example,) = build_report(found).tables[2].rows
    assert example == ("the warm corner", "links", "heap", "nDCG 1.00: heap", "nDCG 0.63: shed, heap")


def test_a_note_that_concerns_some_answers_gives_their_number() -> None:
    slow = score_ranking(LINKED, make_ranking("heap"), 1.0, ("there was no time",))
    run = EvaluationRun("hybrid", SearchMode.HYBRID, (slow, score_ranking(LINKED, make_ranking("heap"), 1.0), slow))
    found = EvaluationReport("garden", None, 0, {QuestionKind.LINKS: 3}, (run,))
    assert found.list_notes()[1:] == ("hybrid: there was no time (2 of 3 answers)",)
    always = EvaluationReport(
        "garden", None, 0, {QuestionKind.LINKS: 1}, (EvaluationRun("hybrid", SearchMode.HYBRID, (slow,)),)
    )
    assert always.list_notes()[1:] == ("hybrid: there was no time",)
