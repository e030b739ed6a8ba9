"""An evaluation as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wikiholt.evaluating import MetricDifference, ConfidenceInterval, QuestionOutcome, EvaluationRun
from wikiholt.evaluating.report import RunComparison, EvaluationReport


def build_evaluation_document(evaluation: EvaluationReport) -> Mapping[str, Any]:
    """Figures are rounded to four digits: no evaluation tells more."""
    return {
        "wiki": evaluation.wiki,
        "indexed_revision": evaluation.revision,
        "seed": evaluation.seed,
        "questions": {
            "asked": {str(kind): count for kind, count in evaluation.runs[0].count_kinds().items()},
            "available": {str(kind): count for kind, count in evaluation.available.items()},
        },
        "runs": [_build_run(run, evaluation) for run in evaluation.runs],
        "comparison": _build_comparison(evaluation.comparison, evaluation) if evaluation.comparison else None,
        "notes": list(evaluation.list_notes()),
    }


def _build_run(run: EvaluationRun, evaluation: EvaluationReport) -> dict[str, Any]:
    kinds = run.count_kinds()
    half, most = run.get_latency_ms()
    return {
        "configuration": run.label,
        "mode": str(run.mode),
        "figures": _build_metrics(run.compute_metrics(None, evaluation.seed)),
        "by_kind": {str(kind): _build_metrics(run.compute_metrics(kind, evaluation.seed)) for kind in kinds},
        "p50_ms": half,
        "p95_ms": most,
        "worst": [_build_outcome(outcome) for outcome in run.find_worst(evaluation.worst_count)],
    }


def _build_metrics(metrics: Mapping[str, ConfidenceInterval]) -> dict[str, Any]:
    return {metric: _round_values(asdict(value)) for metric, value in metrics.items()}


def _build_comparison(comparison: RunComparison, evaluation: EvaluationReport) -> dict[str, Any]:
    return {
        "ours": comparison.ours.label,
        "theirs": _build_run(comparison.theirs, evaluation),
        "differences": {metric: _build_difference(value) for metric, value in comparison.differences.items()},
        "examples": [
            {"ours": _build_outcome(ours), "theirs": _build_outcome(theirs)["found"]} for ours, theirs in comparison.examples
        ],
    }


def _build_difference(value: MetricDifference) -> dict[str, Any]:
    return {
        **_round_values(asdict(value.interval)),
        "p_value": round(value.p_value, 4),
        "better": value.better,
        "worse": value.worse,
        "same": value.same,
    }


def _build_outcome(outcome: QuestionOutcome) -> dict[str, Any]:
    question = outcome.question
    return {
        "id": question.id,
        "kind": str(question.kind),
        "query": question.text,
        "wanted": dict(question.relevant),
        "excluded": sorted(question.excluded),
        "found": [asdict(found) for found in outcome.returned],
        "figures": _round_values(dict(outcome.metrics)),
    }


def _round_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
