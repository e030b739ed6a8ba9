"""JSON documents of answers."""

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.search_documents import HitDocument, build_hit_document
from wikiholt.domain.answer import Answer, AnswerSentence, WrittenAnswer, WrittenSentence
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


class WrittenSentenceDocument(TypedDict):
    """A sentence of a language model. If its passages do not support it, `reason` says why."""

    text: str
    citations: list[int]
    supported: bool
    reason: str | None


class WrittenAnswerDocument(TypedDict):
    """What a language model wrote from the passages, which it cites by their numbers, from 1."""

    model: str
    sentences: list[WrittenSentenceDocument]
    supported_share: float
    passages: list[AnswerSentenceDocument]
    note: str | None


class AnswerDocument(TypedDict):
    """The sentences that answer, or none if `answered` is false, and the closest pages."""

    question: str
    query: str
    did_you_mean: str | None
    answered: bool
    probability: float
    sentences: list[AnswerSentenceDocument]
    closest: list[HitDocument]
    language_model: str | None
    written: WrittenAnswerDocument | None
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    notes: list[str]
    meaning_ready: float
    seconds_left: float | None


def build_answer_document(
    answer: Answer, path_style: PathStyle = STORED_PATHS, language_model: str = ""
) -> AnswerDocument:
    """The document of an answer, without what a language model writes."""
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
        language_model=language_model or None,
        written=None,
    )


def build_written_document(
    written: WrittenAnswer, commit: str | None, path_style: PathStyle = STORED_PATHS
) -> WrittenAnswerDocument:
    return build_document(
        WrittenAnswerDocument,
        written,
        sentences=[build_written_sentence(each) for each in written.sentences],
        supported_share=round(written.supported_share, 4),
        passages=[_build_sentence(each, commit, path_style) for each in written.passages],
        note=written.note or None,
    )


def build_written_sentence(sentence: WrittenSentence) -> WrittenSentenceDocument:
    return build_document(WrittenSentenceDocument, sentence, reason=sentence.fault or None)


def _build_sentence(sentence: AnswerSentence, commit: str | None, path_style: PathStyle) -> AnswerSentenceDocument:
    return build_document(
        AnswerSentenceDocument,
        sentence,
        path_style,
        url=path_style.to_url(sentence.url),
        commit=commit,
        explanation=sentence.explanation or None,
    )
