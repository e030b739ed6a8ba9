"""An evaluation as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wikiholt.evaluating import Difference, Interval, Outcome, Run
from wikiholt.evaluating.report import Comparison, Evaluation


def evaluation_document(evaluation: Evaluation) -> Mapping[str, Any]:
    """Figures are rounded to four digits: no evaluation tells more."""
    return {
        "wiki": evaluation.wiki,
        "indexed_revision": evaluation.revision,
        "seed": evaluation.seed,
        "questions": {
            "asked": {str(kind): count for kind, count in evaluation.runs[0].kinds().items()},
            "available": {str(kind): count for kind, count in evaluation.available.items()},
        },
        "runs": [_run(run, evaluation) for run in evaluation.runs],
        "comparison": _comparison(evaluation.comparison, evaluation) if evaluation.comparison else None,
        "notes": list(evaluation.notes()),
    }


def _run(run: Run, evaluation: Evaluation) -> dict[str, Any]:
    kinds = run.kinds()
    half, most = run.milliseconds()
    return {
        "configuration": run.label,
        "mode": str(run.mode),
        "figures": _figures(run.figures(None, evaluation.seed)),
        "by_kind": {str(kind): _figures(run.figures(kind, evaluation.seed)) for kind in kinds},
        "p50_ms": half,
        "p95_ms": most,
        "worst": [_outcome(outcome) for outcome in run.worst(evaluation.worst)],
    }


def _figures(figures: Mapping[str, Interval]) -> dict[str, Any]:
    return {metric: _rounded(asdict(value)) for metric, value in figures.items()}


def _comparison(comparison: Comparison, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "ours": comparison.ours.label,
        "theirs": _run(comparison.theirs, evaluation),
        "differences": {metric: _difference(value) for metric, value in comparison.differences.items()},
        "examples": [
            {"ours": _outcome(ours), "theirs": _outcome(theirs)["found"]} for ours, theirs in comparison.examples
        ],
    }


def _difference(value: Difference) -> dict[str, Any]:
    return {
        **_rounded(asdict(value.interval)),
        "p_value": round(value.p_value, 4),
        "better": value.better,
        "worse": value.worse,
        "same": value.same,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    question = outcome.question
    return {
        "id": question.id,
        "kind": str(question.kind),
        "query": question.text,
        "wanted": dict(question.relevant),
        "excluded": sorted(question.excluded),
        "found": [asdict(found) for found in outcome.found],
        "figures": _rounded(dict(outcome.figures)),
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
