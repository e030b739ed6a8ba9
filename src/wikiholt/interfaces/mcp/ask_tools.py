"""The tool that answers a question with sentences of the wiki."""

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.domain.search import PageFilter, SearchInterface
from wikiholt.interfaces.mcp.mcp_tool import DATA_NOTE, tool
from wikiholt.interfaces.mcp.text_output import fit_to_budget, quote_text, take_shortened
from wikiholt.interfaces.mcp.tool_schemas import DATA_NOTICE, TEXT_PATTERN, BudgetedArguments
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.wikis.session import WikiSession


class AskArguments(BudgetedArguments):
    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS, pattern=TEXT_PATTERN, description="The question.")
    after: str = Field(
        "", max_length=MAX_QUERY_CHARS, pattern=TEXT_PATTERN, description="The question that this one follows up."
    )


class AskToolSentence(TypedDict):
    """A sentence and its lines; without a sentence, a close page."""

    path: str
    lines: list[int]
    text: str


class AskToolResult(TypedDict):
    """Sentences that answer, or close pages if `answered` is false."""

    answered: bool
    probability: float
    results: list[AskToolSentence]
    commit: str | None
    stale: bool
    notes: list[str]
    notice: str


def _format_result(result: AskToolResult) -> str:
    head = "The wiki says:" if result["answered"] else "The wiki does not say. The closest pages are:"
    commit = f"@{result['commit'][:10]}" if result["commit"] else ""
    lines = [head]
    for each in result["results"]:
        lines.append(f"{each['path']}:{each['lines'][0]}{commit}")
        lines += quote_text(each["text"]) if each["text"] else []
    return "\n".join([*lines, *result["notes"]])


@tool(
    "Answer a question",
    "Get the few sentences of the wiki that answer a question, with page and lines; or that the wiki does not say, "
    f"with the closest pages. {DATA_NOTE}",
    _format_result,
    needs_own_writes=True,
)
def ask(wiki: WikiSession, params: AskArguments, budget: int) -> AskToolResult:
    with wiki.use_handle() as handle:
        answer = handle.ask(params.query, params.after, PageFilter(), interface=SearchInterface.MCP)
    style = wiki.path_style
    found: list[AskToolSentence] = [
        {"path": style.to_display_path(each.path), "lines": [each.line, each.last_line], "text": each.text}
        for each in answer.sentences
    ] or [
        {"path": style.to_display_path(hit.path), "lines": [hit.first_line, hit.last_line], "text": ""}
        for hit in answer.closest
    ]

    def build(share: int) -> AskToolResult:
        return {
            "answered": answer.answered,
            "probability": answer.probability,
            "results": take_shortened(found, ("text", "path"), share) if found else [],
            "commit": answer.result.indexed_revision,
            "stale": answer.result.stale,
            "notes": list(answer.result.notes),
            "notice": DATA_NOTICE,
        }

    return fit_to_budget(build, _format_result, budget)
