"""How well one wiki's search finds what it should: questions, answers judged, and what of the figures may be chance."""

from wikiholt.evaluating.chance import MetricDifference, ConfidenceInterval
from wikiholt.evaluating.gathering import MinedQuestions, make_path_resolver, mine_questions, build_terms_without
from wikiholt.evaluating.labels import parse_judged_questions
from wikiholt.evaluating.measuring import (
    ALL_KINDS,
    SearchFunction,
    ReturnedPage,
    QuestionOutcome,
    EvaluationRun,
    run_question,
    compare_runs,
    find_differences,
    score_ranking,
    run_evaluation,
    get_result_limit,
)
from wikiholt.evaluating.questions import MINED_KINDS, QuestionKind, Question, sample_questions

__all__ = [
    "ALL_KINDS",
    "MINED_KINDS",
    "SearchFunction",
    "MetricDifference",
    "ReturnedPage",
    "ConfidenceInterval",
    "QuestionKind",
    "MinedQuestions",
    "QuestionOutcome",
    "Question",
    "EvaluationRun",
    "run_question",
    "compare_runs",
    "find_differences",
    "score_ranking",
    "make_path_resolver",
    "parse_judged_questions",
    "mine_questions",
    "run_evaluation",
    "sample_questions",
    "get_result_limit",
    "build_terms_without",
]
