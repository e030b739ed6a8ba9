"""What tools take. An argument that is not here is refused, and so is a value that only nearly fits."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wikiholt.model import PageFilter, SearchMode
from wikiholt.model.answers import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES
from wikiholt.search import MAX_HITS, MAX_QUERY_CHARS, SearchRequest
from wikiholt.surfaces.documents.moments import parse_since

LEAST_TOKENS, MOST_TOKENS = 200, 50_000

_TEXT_PATTERN = r"^[^\x00]*$"


def _to_list(value: Any) -> Any:
    """One text for a list of one, and an empty one for none: clients that fill in every argument send that."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def _empty_to_none(value: Any) -> Any:
    return None if value == "" else value


_ArgumentValue = Annotated[str, Field(min_length=1, max_length=MAX_FILTER_VALUE_CHARS, pattern=_TEXT_PATTERN)]
ArgumentValues = Annotated[list[_ArgumentValue], BeforeValidator(_to_list, json_schema_input_type=list[str] | str)]
PagePathArgument = Annotated[
    str, Field(min_length=1, max_length=1000, pattern=_TEXT_PATTERN, description="The page's path, as search gives it.")
]
RevisionArgument = Annotated[
    Annotated[str, Field(pattern=r"^[0-9a-fA-F]{7,64}$")] | None,
    BeforeValidator(_empty_to_none, json_schema_input_type=str | None),
]
MessageArgument = Annotated[str, Field(max_length=10_000, pattern=_TEXT_PATTERN)]


class ToolArguments(BaseModel):
    """What every tool's arguments have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BudgetedArguments(ToolArguments):
    """An answer of bounded length."""

    max_tokens: int | None = Field(
        None,
        ge=LEAST_TOKENS,
        le=MOST_TOKENS,
        description="About how many tokens the answer may have; what is left out is said, and how to get it.",
    )


class FilterArguments(BudgetedArguments):
    """Which pages count; all that is given must hold."""

    tag: ArgumentValues = Field([], max_length=MAX_FILTER_VALUES, description="Only pages with all of these tags.")
    category: ArgumentValues = Field([], max_length=MAX_FILTER_VALUES, description="Only pages of one of these categories.")
    prefix: str = Field("", max_length=MAX_FILTER_VALUE_CHARS, pattern=_TEXT_PATTERN, description="Only pages whose path begins with this.")
    updated_since: str = Field(
        "", max_length=40, description="Only pages updated since: 2026-05-31, a date with time, or 7d, 12h, 3w ago."
    )

    def to_filter(self) -> PageFilter:
        when = parse_since(self.updated_since) if self.updated_since else None
        return PageFilter(tuple(self.category), tuple(self.tag), self.prefix, when)


class SearchArguments(FilterArguments):
    """A search."""

    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description='A question or words; "a phrase" and -word work too.'
    )
    n: int = Field(8, ge=1, le=MAX_HITS, description="How many pages at most.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and words, by meaning alone, or by words alone."
    )
    fresh: bool = Field(
        False, description="Wait until the index has reached the newest commit; own writes are waited for anyway."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(self.query, self.n, SearchMode(self.mode), self.to_filter())


class SimilarArguments(FilterArguments):
    """Pages like one page."""

    path: PagePathArgument
    n: int = Field(8, ge=1, le=MAX_HITS, description="How many pages at most.")


class ReadPageArguments(BudgetedArguments):
    """A page, or a part of it."""

    path: PagePathArgument
    section: str = Field("", max_length=500, description="Only the section under this heading (its text or anchor).")
    from_line: int | None = Field(None, ge=1, description="The first line to read.")
    to_line: int | None = Field(None, ge=1, description="The last line to read.")
    from_character: int = Field(0, ge=0, description="Characters of the first line to leave out: for very long lines.")
    revision: RevisionArgument = Field(None, description="A commit, by 7 digits or more; the newest if left out.")


class FetchArguments(BudgetedArguments):
    """A page by what `search` calls its id."""

    id: str = Field(
        min_length=1,
        max_length=1100,
        pattern=_TEXT_PATTERN,
        description="A result's id: the page's path; PATH#L40 begins at line 40, PATH#L40-60 ends at line 60.",
    )


class ListPagesArguments(FilterArguments):
    """Some of the pages, by path."""

    limit: int = Field(100, ge=1, le=1000, description="How many at most.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class LinksArguments(BudgetedArguments):
    """The links of a page."""

    path: PagePathArgument
    limit: int = Field(100, ge=1, le=1000, description="How many at most, each way.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning, each way.")


class ChangesArguments(BudgetedArguments):
    """The newest commits, or those before them."""

    limit: int = Field(20, ge=1, le=200, description="How many at most.")
    offset: int = Field(0, ge=0, le=1_000_000, description="How many to leave out at the beginning.")


class HistoryArguments(BudgetedArguments):
    """The newest commits of a page."""

    path: PagePathArgument
    limit: int = Field(20, ge=1, le=200, description="How many at most.")


class OrphansArguments(BudgetedArguments):
    """Some of the pages that nobody links to."""

    limit: int = Field(100, ge=1, le=1000, description="How many at most.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class WriteArguments(ToolArguments):
    """What every write says."""

    path: PagePathArgument
    commit_message: MessageArgument = Field("", description="Why, in a line; it stays in the wiki's history.")
    revision: RevisionArgument = Field(
        None, description="The revision that read_page gave: the write is refused if the page was changed since."
    )


class WritePageArguments(WriteArguments):
    """A page's whole content."""

    content: str = Field(pattern=_TEXT_PATTERN, description="The whole page, in Markdown; frontmatter first, if any.")


class EditPageArguments(WriteArguments):
    """One replacement."""

    old_string: str = Field(
        min_length=1, pattern=_TEXT_PATTERN, description="The text to replace, exactly as it stands there, and only once."
    )
    new_string: str = Field(pattern=_TEXT_PATTERN, description="What shall stand there instead.")


class AppendToPageArguments(WriteArguments):
    """Text to add."""

    text: str = Field(min_length=1, pattern=_TEXT_PATTERN, description="What to add at the end, on a line of its own.")


class RenamePageArguments(WriteArguments):
    """Another path."""

    new_path: str = Field(min_length=1, max_length=1000, pattern=_TEXT_PATTERN, description="The path it shall have.")
    update_links: bool = Field(True, description="Whether links on other pages follow, in the same commit.")


class DeletePageArguments(WriteArguments):
    """A page to delete."""
