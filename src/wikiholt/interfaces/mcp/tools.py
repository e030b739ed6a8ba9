"""The tools that agents get, in the order of their list, and the names of other servers for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from wikiholt.api.filter_params import FILTER_PARAMS
from wikiholt.api.operations.table import OPERATIONS_OF_WIKI
from wikiholt.interfaces.mcp import answers
from wikiholt.interfaces.mcp.answers import format_lines, present_lists, present_written
from wikiholt.interfaces.mcp.budget import format_compact_json
from wikiholt.interfaces.mcp.tool import (
    DATA_NOTE,
    PLAIN_ARGUMENTS,
    AnswerArguments,
    NoArguments,
    PagedArguments,
    Presenter,
    Tool,
)

_OPERATIONS = {operation.name: operation for operation in OPERATIONS_OF_WIKI}
_FILTERS = " ".join(param.name for param in FILTER_PARAMS)
_PLAIN_FILTERS = (*PLAIN_ARGUMENTS, *_FILTERS.split())
"""Filters are described once, in the tool `search`."""


def _make_tool(
    name: str,
    title: str,
    operation: str,
    arguments: str,
    present: Presenter = present_lists,
    format_text: Callable[[Any], str] = format_lines,
    **options: Any,
) -> Tool:
    """A tool with these arguments, by default one that returns lists."""
    return Tool(name, title, _OPERATIONS[operation], tuple(arguments.split()), present, format_text, **options)


_make_index_tool = partial(_make_tool, reads_index=True)
_make_write = partial(_make_tool, present=present_written, answer=NoArguments)
_make_search = partial(
    _make_index_tool,
    present=answers.present_search,
    format_text=format_compact_json,
    answer=answers.SearchArguments,
    defaults={"n": 8},
)
_SEARCH_TEXT = "Find pages by meaning and by words; the answer says when nothing relevant was found."
READ_TOOLS: Sequence[Tool] = (
    _make_search(
        "search",
        "Search the wiki",
        "search",
        f"query=q n mode {_FILTERS} offset sort fresh",
        description=f"{_SEARCH_TEXT} {DATA_NOTE}",
    ),
    _make_index_tool(
        "ask",
        "Answer a question",
        "ask",
        "query=q after model",
        answers.present_answer,
        format_compact_json,
        description="Get the few sentences that answer a question, or the closest pages. What a model writes with "
        f"supported=false is unsafe. {DATA_NOTE}",
        defaults={"model": False},
    ),
    _make_tool(
        "read_page",
        "Read pages",
        "read_parts",
        "paths section from_line to_line revision",
        answers.present_pages,
        answers.format_page,
        answer=answers.TextArguments,
        description="Read pages, a section, lines, or an older revision. A later write requires the revision. "
        f"{DATA_NOTE}",
    ),
    _make_index_tool(
        "list_pages",
        "List pages",
        "list_pages",
        f"{_FILTERS} limit offset",
        description="List pages by path: all, or those that match the filters, which are those of search.",
        defaults={"limit": 100},
        plain=_PLAIN_FILTERS,
    ),
    _make_index_tool(
        "list_tags",
        "List tags and folders",
        "facets",
        "prefix facets",
        answers.present_facets,
        answer=PagedArguments,
        description="List tags, categories, folders and values of frontmatter keys, with their numbers of pages.",
    ),
    _make_search(
        "similar_pages",
        "Find similar pages",
        "similar",
        f"path n {_FILTERS.replace(' language', '')}",
        description=f"Find the pages closest in meaning to one page. Filters are those of search. {DATA_NOTE}",
        plain=_PLAIN_FILTERS,
    ),
    _make_index_tool("get_links", "Follow links", "links", "path", answer=PagedArguments),
    _make_index_tool("find_orphans", "Find orphaned pages", "orphans", "", answer=PagedArguments),
    _make_tool(
        "recent_changes", "See recent changes", "changelog", "prefix since limit offset", defaults={"limit": 20}
    ),
    _make_tool("page_history", "See a page's history", "history", "path limit offset", defaults={"limit": 20}),
    _make_tool(
        "diff_page",
        "Compare revisions",
        "compare_revisions",
        "path from_revision to_revision",
        answers.present_diff,
        answers.format_diff,
        answer=answers.DiffArguments,
    ),
    _make_tool(
        "list_attachments",
        "List attachments",
        "list_attachments",
        "path",
        answers.present_attachments,
        answer=PagedArguments,
    ),
)
PAST_TOOLS: Sequence[Tool] = (
    _make_tool(
        "search_past",
        "Search the past",
        "search_past",
        "query=q at n prefix",
        answers.present_search,
        format_compact_json,
        answer=answers.PastArguments,
        description=f"Find pages as they were; hits say what became of them. {DATA_NOTE}",
        shapes={"at": {"type": "string", "description": "A tag, a commit, or a date."}, "query": {"type": "string"}},
        defaults={"n": 8},
        plain=_PLAIN_FILTERS,
    ),
)
"""The tools that need the scope for the past."""
WRITE_TOOLS: Sequence[Tool] = (
    _make_write(
        "write_page",
        "Write a page",
        "put_page",
        "path content commit_message revision",
        description="Write an entire page, as one commit. An existing page needs the revision from read_page; to "
        "change a part of it, use edit_page.",
        destructive=True,
    ),
    _make_write(
        "edit_page",
        "Edit a page",
        "edit_part",
        "path new_string old_string replace_all section from_line to_line commit_message revision",
        destructive=True,
    ),
    _make_write("append_to_page", "Append to a page", "append_to_page", "path text commit_message revision"),
    _make_write(
        "rename_page",
        "Rename a page",
        "rename_page",
        "path new_path update_links move_subpages commit_message revision",
        answer=AnswerArguments,
        destructive=True,
    ),
    _make_write(
        "delete_page",
        "Delete a page",
        "delete_page",
        "path commit_message revision",
        description="Delete a page; its content stays in the git history. Ask the user before you do this.",
        destructive=True,
    ),
)
HTTP_TOOLS: Sequence[Tool] = (
    _make_tool(
        "fetch",
        "Fetch a page by id",
        "read_parts",
        "id=paths",
        answers.present_fetched,
        format_compact_json,
        description=f"Get a page by the id of a search result. {DATA_NOTE}",
        shapes={"id": {"type": "string", "description": "PATH, or PATH#L40-60 for some lines."}},
    ),
)
"""ChatGPT's connectors, which use HTTP, need a tool of this name. For other agents it repeats `read_page`."""
SEVERAL_WIKIS_TOOLS: Sequence[Tool] = (
    _make_search(
        "search",
        "Search several wikis",
        "search",
        f"query=q wikis=wiki n mode {_FILTERS}",
        description=f"{_SEARCH_TEXT} Each result names its wiki; each wiki is searched by itself. {DATA_NOTE}",
    ),
)
"""The tools of a request with an operator key or a list of keys."""
_ALIAS_TOOLS: Sequence[Tool] = (
    _make_search(
        "semantic_search",
        "Search by meaning",
        "semantic_search",
        f"query=q n {_FILTERS} max_chunks_per_page",
        description=f"Find pages by meaning, with up to max_chunks_per_page chunks of each. {DATA_NOTE}",
    ),
    _make_tool(
        "download_attachment", "Read an attachment", "read_attachment", "path filename", answers.present_attachment
    ),
    _make_write(
        "upload_attachment", "Attach a file", "attach", "path filename content commit_message", destructive=True
    ),
    _make_write(
        "delete_attachment", "Delete an attachment", "detach", "path filename commit_message", destructive=True
    ),
)
"""The tools of otterwiki-mcp that are not another name of a tool here."""
_ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "read_note": ("read_page", {}),
    "list_notes": ("list_pages", {}),
    "search_notes": ("search", {"mode": "keyword"}),
    "get_recent_changes": ("recent_changes", {}),
    "get_history": ("page_history", {}),
    "find_orphaned_notes": ("find_orphans", {}),
    "write_note": ("write_page", {}),
    "edit_note": ("edit_page", {}),
    "rename_note": ("rename_page", {}),
    "delete_note": ("delete_page", {}),
}
"""The tool names of otterwiki-mcp, with the tool and the defaults here."""


@cache
def get_tools(*, http: bool = False, aliases: bool = False) -> Mapping[str, Tool]:
    """The tools by name, in listing order."""
    tools = {tool.name: tool for tool in (*READ_TOOLS, *(HTTP_TOOLS if http else ()), *PAST_TOOLS, *WRITE_TOOLS)}
    if aliases:
        for name, (original, defaults) in _ALIASES.items():
            tool = tools[original]
            tools[name] = replace(tool, name=name, defaults={**tool.defaults, **defaults})
        tools |= {tool.name: tool for tool in _ALIAS_TOOLS}
    return tools
