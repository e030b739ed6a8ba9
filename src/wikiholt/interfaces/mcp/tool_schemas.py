"""The arguments of the MCP tools, and other names and types of them that agents often send.

Unknown arguments and values of another type are rejected.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES, PageFilter, SearchMode, SortOrder
from wikiholt.interfaces.schemas.filter_params import FILTER_PARAMS, build_filter
from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_OFFSET, MAX_QUERY_CHARS, SearchRequest
from wikiholt.wikis.multi_search import MAX_WIKIS_PER_SEARCH

MIN_TOKENS, MAX_TOKENS = 300, 50_000
MAX_PAGES_PER_READ = 20
_MAX_DATE_CHARS = 40

TEXT_PATTERN = r"^[^\x00]*$"


def _to_list(value: Any) -> Any:
    """Accept a string for a list of one, and an empty string for an empty list, as some clients send."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def _empty_to_none(value: Any) -> Any:
    return None if value == "" else value


_ArgumentValue = Annotated[str, Field(min_length=1, max_length=MAX_FILTER_VALUE_CHARS, pattern=TEXT_PATTERN)]
ArgumentValues = Annotated[list[_ArgumentValue], BeforeValidator(_to_list, json_schema_input_type=list[str] | str)]
PagePathArgument = Annotated[
    str,
    Field(min_length=1, max_length=1000, pattern=TEXT_PATTERN, description="The page's path, as search returns it."),
]
RevisionArgument = Annotated[
    Annotated[str, Field(pattern=r"^[0-9a-fA-F]{7,64}$")] | None,
    BeforeValidator(_empty_to_none, json_schema_input_type=str | None),
]
MessageArgument = Annotated[str, Field(max_length=10_000, pattern=TEXT_PATTERN)]


class ToolArguments(BaseModel):
    """Base class of the arguments of all tools."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BudgetedArguments(ToolArguments):
    """Arguments of a tool whose result has a token budget."""

    max_tokens: int | None = Field(
        None,
        ge=MIN_TOKENS,
        le=MAX_TOKENS,
        description="Limit of the result in tokens.",
    )


def _build_filter_fields() -> Iterator[tuple[str, Any]]:
    """The fields of the filters of all interfaces."""
    for param in FILTER_PARAMS:
        limits: dict[str, Any] = {"max_length": MAX_FILTER_VALUE_CHARS, "pattern": TEXT_PATTERN}
        if param.is_list:
            limits = {"max_length": MAX_FILTER_VALUES}
        elif param.parse is not None:
            limits = {"max_length": _MAX_DATE_CHARS}
        kind, default = (ArgumentValues, []) if param.is_list else (str, "")
        yield param.mcp_name or param.name, (kind, Field(default, description=param.mcp_description, **limits))


if TYPE_CHECKING:
    _FilterFields = BudgetedArguments
else:
    _FilterFields = create_model("_FilterFields", __base__=BudgetedArguments, **dict(_build_filter_fields()))


class FilterArguments(_FilterFields):
    """Arguments that filter pages. All of them must match. Its fields are the filters of all interfaces."""

    def to_filter(self) -> PageFilter:
        return build_filter(lambda param: getattr(self, param.mcp_name or param.name) or None)


class SearchArguments(FilterArguments):
    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description='A question or words; "a phrase", -word, tag:x, path:x, title:x and OR work too.',
    )
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and keywords, by meaning only, or by keywords only."
    )
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Number of results to skip.")
    sort: Literal["relevance", "date"] = Field(
        "relevance", description="By relevance, or the newest of the relevant pages first."
    )
    fresh: bool = Field(
        False, description="Wait until the index has reached the newest commit. It always waits for your own writes."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(
            self.query,
            self.n,
            SearchMode(self.mode),
            self.to_filter(),
            offset=self.offset,
            sort=SortOrder(self.sort),
        )


class SemanticSearchArguments(SearchArguments):
    """Arguments of semantic_search, a tool of otterwiki-mcp."""

    max_chunks_per_page: int = Field(1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="Maximum number of passages a page.")

    def to_request(self) -> SearchRequest:
        return replace(super().to_request(), chunks_per_page=self.max_chunks_per_page)


class SearchWikisArguments(FilterArguments):
    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description='A question or words; "a phrase" and -word work too.'
    )
    wikis: list[str] = Field([], max_length=MAX_WIKIS_PER_SEARCH, description="Only these wikis; default: all.")
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and keywords, by meaning only, or by keywords only."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(self.query, self.n, SearchMode(self.mode), self.to_filter())


class SimilarArguments(FilterArguments):
    """Arguments of similar_pages."""

    path: PagePathArgument
    n: int = Field(8, ge=1, le=MAX_HITS, description="Maximum number of pages.")


class ReadPageArguments(BudgetedArguments):
    path: PagePathArgument
    section: str = Field("", max_length=500, description="Only the section under this heading (its text or anchor).")
    from_line: int | None = Field(None, ge=1, description="The first line to read.")
    to_line: int | None = Field(None, ge=1, description="The last line to read.")
    from_character: int = Field(0, ge=0, description="Characters of the first line to skip, for very long lines.")
    revision: RevisionArgument = Field(None, description="A commit, by 7 or more digits; the default is the newest.")


class FetchArguments(BudgetedArguments):
    id: str = Field(
        min_length=1,
        max_length=1100,
        pattern=TEXT_PATTERN,
        description="The id of a result: the page's path; PATH#L40 starts at line 40, PATH#L40-60 ends at line 60.",
    )


class PagedArguments(BudgetedArguments):
    """Arguments of a list."""

    limit: int = Field(100, ge=1, le=1000, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class ReadPagesArguments(BudgetedArguments):
    paths: ArgumentValues = Field(min_length=1, max_length=MAX_PAGES_PER_READ, description="The paths of the pages.")


class ListTagsArguments(PagedArguments):
    prefix: str = Field(
        "", max_length=MAX_FILTER_VALUE_CHARS, pattern=TEXT_PATTERN, description="Only below this folder."
    )

    def to_filter(self) -> PageFilter:
        return PageFilter(path_prefix=self.prefix)


class DiffPageArguments(BudgetedArguments):
    path: PagePathArgument
    from_revision: RevisionArgument = Field(None, description="The older commit; default: the one before.")
    to_revision: RevisionArgument = Field(None, description="The newer commit; default: the newest.")
    from_line: int = Field(1, ge=1, description="The first line of the diff.")
    from_character: int = Field(0, ge=0, description="Characters of that line to skip.")


class ListPagesArguments(FilterArguments):
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class LinksArguments(PagedArguments):
    """Arguments of get_links. Limit and offset are for each direction."""

    path: PagePathArgument


class ChangesArguments(BudgetedArguments):
    """Arguments of recent_changes."""

    limit: int = Field(20, ge=1, le=200, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=1_000_000, description="Number of commits to skip.")
    prefix: str = Field(
        "", max_length=MAX_FILTER_VALUE_CHARS, pattern=TEXT_PATTERN, description="Only this page or folder."
    )
    since: str = Field("", max_length=_MAX_DATE_CHARS, description="Since a date, or 7d, 12h, 3w ago.")


class HistoryArguments(BudgetedArguments):
    """Arguments of page_history."""

    path: PagePathArgument
    limit: int = Field(20, ge=1, le=200, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=10_000, description="Number of entries to skip.")


class WriteArguments(ToolArguments):
    """Arguments of all tools that write."""

    path: PagePathArgument
    commit_message: MessageArgument = Field(
        "", description="The reason, in one line; it is part of the wiki's history."
    )
    revision: RevisionArgument = Field(
        None, description="The revision from read_page: the write is rejected if the page was changed since."
    )


class WritePageArguments(WriteArguments):
    content: str = Field(pattern=TEXT_PATTERN, description="The entire page, in Markdown; frontmatter first, if any.")


class EditPageArguments(WriteArguments):
    old_string: str = Field(
        "",
        pattern=TEXT_PATTERN,
        description="The text to replace. It must occur exactly once, unless replace_all is set.",
    )
    new_string: str = Field(pattern=TEXT_PATTERN, description="The replacement.")
    replace_all: bool = Field(False, description="Replace old_string everywhere.")
    section: str = Field(
        "", max_length=500, description="Instead of old_string: replace this section, its heading and subsections."
    )
    from_line: int | None = Field(
        None, ge=1, description="Instead of old_string: replace from this line; needs revision."
    )
    to_line: int | None = Field(None, ge=1, description="The last line to replace; default: from_line.")


class AppendToPageArguments(WriteArguments):
    text: str = Field(min_length=1, pattern=TEXT_PATTERN, description="The text to add at the end, on a new line.")


class RenamePageArguments(WriteArguments, BudgetedArguments):
    new_path: str = Field(min_length=1, max_length=1000, pattern=TEXT_PATTERN, description="The new path.")
    update_links: bool = Field(True, description="Whether links to the page are updated, in the same commit.")
    move_subpages: bool = Field(True, description="Whether its sub-pages and attachments move with it.")


class ListAttachmentsArguments(BudgetedArguments):
    path: PagePathArgument
    offset: int = Field(0, ge=0, description="Number of files to skip.")

    @property
    def limit(self) -> int:
        """All of them, as far as the budget allows."""
        return MAX_OFFSET


FileNameArgument = Annotated[str, Field(min_length=1, max_length=255, pattern=TEXT_PATTERN)]


class AttachmentArguments(BudgetedArguments):
    """Arguments of download_attachment."""

    path: PagePathArgument
    filename: FileNameArgument


class DeleteAttachmentArguments(ToolArguments):
    path: PagePathArgument
    filename: FileNameArgument
    commit_message: MessageArgument = ""


class UploadAttachmentArguments(DeleteAttachmentArguments):
    content: str = Field(description="The content of the file in base64.")


# Other names and types of arguments


_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "path": ("page", "page_path", "page_name", "file", "filename"),
    "paths": ("pages", "path"),
    "id": ("path", "page"),
    "query": ("q", "question", "search_query"),
    "n": ("limit", "k", "top_k", "max_results"),
    "limit": ("n", "max_results"),
    "tag": ("tags",),
    "category": ("categories",),
    "prefix": ("folder", "directory", "path_prefix"),
    "updated_since": ("since",),
    "since": ("updated_since",),
    "section": ("heading",),
    "from_line": ("start_line",),
    "to_line": ("end_line",),
    "from_revision": ("old_revision",),
    "to_revision": ("new_revision",),
    "content": ("text", "body", "content_b64", "content_base64"),
    "filename": ("file", "name"),
    "text": ("content", "body"),
    "old_string": ("old_text", "old_str"),
    "new_string": ("new_text", "new_str", "content"),
    "commit_message": ("message",),
}
_INTEGER_PATTERN = re.compile(r"[0-9]{1,9}")
_BOOLEANS = {"true": True, "false": False}


def adapt_arguments(arguments_type: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their own names, with numbers and booleans in place of text. Unknown names stay as they are.

    Another name counts only if it is no argument of the tool, and the argument itself is not given.
    """
    fields = arguments_type.model_fields
    adapted = {name: value for name, value in arguments.items() if name in fields}
    unknown = {name: value for name, value in arguments.items() if name not in fields}
    for name in fields:
        others = [other for other in _OTHER_NAMES.get(name, ()) if other in unknown]
        if others and name not in adapted:
            adapted[name] = unknown.pop(others[0])
    for name, value in adapted.items():
        annotation = fields[name].annotation
        if isinstance(value, str) and (annotation is int or int in get_args(annotation)):
            adapted[name] = int(value) if _INTEGER_PATTERN.fullmatch(value) else value
        elif isinstance(value, str) and annotation is bool:
            adapted[name] = _BOOLEANS.get(value.lower(), value)
    return {**adapted, **unknown}
