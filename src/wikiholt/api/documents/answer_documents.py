"""JSON documents of answers."""

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.search_documents import HitDocument, build_hit_document
from wikiholt.domain.answer import Answer, AnswerSentence
from wikiholt.wikis.session import STORED_PATHS, PathStyle


class AnswerSentenceDocument(TypedDict):
    """A sentence of a page, with its place: `file:line` in `commit`."""

    text: str
    name: str
    path: str
    file: str
    url: str
    heading_path: list[str]
    anchor: str
    line: int
    last_line: int
    commit: str | None
    explanation: str | None


class AnswerDocument(TypedDict):
    """The sentences that answer, or none if `answered` is false, and the closest pages."""

    question: str
    query: str
    did_you_mean: str | None
    answered: bool
    probability: float
    sentences: list[AnswerSentenceDocument]
    closest: list[HitDocument]
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    notes: list[str]
    meaning_ready: float
    seconds_left: float | None


def build_answer_document(answer: Answer, path_style: PathStyle = STORED_PATHS) -> AnswerDocument:
    result = answer.result
    return build_document(
        AnswerDocument,
        result,
        question=answer.question,
        did_you_mean=result.did_you_mean or None,
        answered=answer.answered,
        probability=answer.probability,
        sentences=[_build_sentence(each, result.indexed_revision, path_style) for each in answer.sentences],
        closest=[build_hit_document(hit, path_style) for hit in answer.closest],
    )


def _build_sentence(sentence: AnswerSentence, commit: str | None, path_style: PathStyle) -> AnswerSentenceDocument:
    return build_document(
        AnswerSentenceDocument,
        sentence,
        path_style,
        url=path_style.to_url(sentence.url),
        commit=commit,
        explanation=sentence.explanation or None,
    )
