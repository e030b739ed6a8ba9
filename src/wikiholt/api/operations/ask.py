"""Questions that a wiki answers with sentences of its pages."""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from wikiholt.api.documents.answer_documents import (
    AnswerDocument,
    WrittenAnswerDocument,
    build_answer_document,
    build_written_document,
    build_written_sentence,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, FilterParameters, Flag, QueryText
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.session import WikiSession

if TYPE_CHECKING:  # few installations use it
    from wikiholt.search.answer_writer import AnswerDraft


class AskParameters(FilterParameters):
    """A question to one wiki."""

    q: QueryText = Field(description="The question.")
    after: str = Field(
        "",
        max_length=MAX_QUERY_CHARS,
        pattern=NO_NUL_PATTERN,
        description="The previous question, for a follow-up such as: and how long?",
    )
    explain: Flag = Field(False, description="Whether each sentence and page says in one line why it is there.")
    model: Flag = Field(True, description="Whether a language model answers too, if one is set.")
    stream: Flag = Field(
        False,
        description="Whether to send lines of JSON (application/x-ndjson): the answer, each sentence of the language "
        "model as it is written, and the end.",
    )


def stream_answer(wiki: WikiSession, parameters: AskParameters) -> Generator[Mapping[str, Any]]:
    """The answer with the passages that the language model gets, each sentence as it is written, and all of them."""
    draft, document = _ask(wiki, parameters, None)
    yield {"event": "answer", "answer": document}
    for sentence in draft or ():
        yield {"event": "sentence", "sentence": build_written_sentence(sentence)}
    yield {"event": "end", "written": _build_written(wiki, document, draft) if draft is not None else None}


ASK_OPERATIONS = OperationTable("search", caching=Caching.VERSION, is_search=True)


@ASK_OPERATIONS.add("GET /ask", stream=stream_answer)
def ask(wiki: WikiSession, parameters: AskParameters, snapshot: IndexSnapshot | None = None) -> AnswerDocument:
    """Answer with sentences of pages, each with its place; or, if the wiki does not say, with the closest pages."""
    draft, document = _ask(wiki, parameters, snapshot)
    if draft is not None:
        document["degraded"] = draft.write_all().has_failed or document["degraded"]
        document["written"] = _build_written(wiki, document, draft)
    return document


def _ask(
    wiki: WikiSession, parameters: AskParameters, snapshot: IndexSnapshot | None
) -> tuple["AnswerDraft | None", AnswerDocument]:
    where = wiki.to_git_filter(parameters.to_filter())
    with wiki.use_handle() as handle:
        answer = handle.ask(
            parameters.q,
            parameters.after,
            where,
            explain=parameters.explain,
            interface=wiki.interface,
            snapshot=snapshot,
        )
        draft = handle.start_writing(answer) if parameters.model else None
        document = build_answer_document(answer, wiki.path_style, handle.language_model)
    if draft is not None:
        document["written"] = _build_written(wiki, document, draft)
    return draft, document


def _build_written(wiki: WikiSession, document: AnswerDocument, draft: "AnswerDraft") -> WrittenAnswerDocument:
    return build_written_document(draft.get_written(), document["indexed_revision"], wiki.path_style)
