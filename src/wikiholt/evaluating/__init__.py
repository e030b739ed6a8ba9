"""How well one wiki's search finds what it should: questions, answers judged, and what of the figures may be chance."""

from wikiholt.evaluating.chance import Difference, Interval
from wikiholt.evaluating.gathering import Mined, known_paths, mine, words_without
from wikiholt.evaluating.labels import labelled
from wikiholt.evaluating.measuring import (
    ALL,
    Ask,
    Found,
    Outcome,
    Run,
    answered,
    compared,
    differing,
    judged,
    run,
    wanted,
)
from wikiholt.evaluating.questions import MINED, Kind, Question, sampled

__all__ = [
    "ALL",
    "MINED",
    "Ask",
    "Difference",
    "Found",
    "Interval",
    "Kind",
    "Mined",
    "Outcome",
    "Question",
    "Run",
    "answered",
    "compared",
    "differing",
    "judged",
    "known_paths",
    "labelled",
    "mine",
    "run",
    "sampled",
    "wanted",
    "words_without",
]
