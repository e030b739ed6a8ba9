"""Questions that a wiki answers with sentences of its pages."""

from pydantic import Field

from wikiholt.api.documents.answer_documents import AnswerDocument, build_answer_document
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, FilterParameters, Flag
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.session import WikiSession


class AskParameters(FilterParameters):
    """A question to one wiki."""

    q: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        pattern=r"^[^\x00]*[^\s\x00][^\x00]*$",
        description="The question.",
    )
    after: str = Field(
        "",
        max_length=MAX_QUERY_CHARS,
        pattern=NO_NUL_PATTERN,
        description="The previous question, whose words count if this one has none of its own or refers back.",
    )
    explain: Flag = Field(False, description="Whether each sentence and page says in one line why it is there.")


ASK_OPERATIONS = OperationTable("search", caching=Caching.VERSION, is_search=True)


@ASK_OPERATIONS.add("GET /ask")
def ask(wiki: WikiSession, parameters: AskParameters, snapshot: IndexSnapshot | None = None) -> AnswerDocument:
    """Answer with sentences of pages, each with its place; or, if the wiki does not say, with the closest pages."""
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
    return build_answer_document(answer, wiki.path_style)
