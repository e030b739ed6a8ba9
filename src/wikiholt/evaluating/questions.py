"""What is asked in an evaluation, and which of many questions are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b


class QuestionKind(StrEnum):
    """Where a question comes from."""

    LINKS = "links"
    FORMER_TITLES = "former-titles"
    DESCRIPTIONS = "descriptions"
    LABELLED = "labelled"


MINED_KINDS = (QuestionKind.LINKS, QuestionKind.FORMER_TITLES, QuestionKind.DESCRIPTIONS)


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the pages it should find, by path; `excluded` pages are taken from a ranking before it is judged."""

    id: str
    kind: QuestionKind
    text: str
    relevant: Mapping[str, int]
    excluded: frozenset[str] = field(default_factory=frozenset)


def sample_questions(questions: Iterable[Question], limit: int, seed: int) -> list[Question]:
    """At most so many of each kind, chosen by their text and the seed alone: a wiki that grows keeps most of them."""
    kept: dict[QuestionKind, list[Question]] = {}
    for question in sorted(questions, key=lambda each: _hash_question(each, seed)):
        of_kind = kept.setdefault(question.kind, [])
        if len(of_kind) < limit:
            of_kind.append(question)
    return [question for kind in QuestionKind for question in sorted(kept.get(kind, ()), key=lambda each: each.id)]


def _hash_question(question: Question, seed: int) -> bytes:
    text = f"{seed}\0{question.kind}\0{question.id}\0{question.text}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
