"""The tools that agents get, in the order of their list, and the names of other servers for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from mcp_types import Tool as Described

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
    Tool,
)

_OPERATIONS = {operation.name: operation for operation in OPERATIONS_OF_WIKI}
_FILTERS = tuple(param.name for param in FILTER_PARAMS)
_PLAIN_FILTERS = (*PLAIN_ARGUMENTS, *_FILTERS)
"""Filters are described once, in the tool `search`."""


def _make_search(name: str, title: str, description: str, operation: str, *arguments: str, **options: Any) -> Tool:
    return Tool(
        name,
        title,
        _OPERATIONS[operation],
        arguments,
        answers.present_search,
        format_compact_json,
        answers.SearchArguments,
        f"{description} {DATA_NOTE}",
        {"n": 8},
        reads_index=True,
        **options,
    )


def _make_list(name: str, title: str, operation: str, *arguments: str, **options: Any) -> Tool:
    return Tool(
        name,
        title,
        _OPERATIONS[operation],
        arguments,
        options.pop("present", present_lists),
        format_lines,
        **{"reads_index": True, **options},
    )


def _make_write(name: str, title: str, operation: str, *arguments: str, **options: Any) -> Tool:
    return Tool(
        name,
        title,
        _OPERATIONS[operation],
        ("path", *arguments, "commit_message"),
        present_written,
        format_lines,
        **{"answer": NoArguments, **options},
    )


_SEARCH_NOTE = "Find pages by meaning and by words; the answer says when nothing relevant was found."
_SEARCH = _make_search(
    "search",
    "Search the wiki",
    _SEARCH_NOTE,
    "search",
    *("query=q", "n", "mode", *_FILTERS, "offset", "sort", "fresh"),
)
_FETCH = Tool(
    "fetch",
    "Fetch a page by id",
    _OPERATIONS["read_parts"],
    ("id=paths",),
    answers.present_fetched,
    format_compact_json,
    description=f"Get a page by the id of a search result. {DATA_NOTE}",
    shapes={"id": {"type": "string", "description": "PATH, or PATH#L40-60 for some lines."}},
)
READ_TOOLS: Sequence[Tool] = (
    _SEARCH,
    Tool(
        "ask",
        "Answer a question",
        _OPERATIONS["ask"],
        ("query=q", "after"),
        answers.present_answer,
        format_compact_json,
        description=f"Get the few sentences of the wiki that answer a question, or the closest pages. {DATA_NOTE}",
        reads_index=True,
    ),
    Tool(
        "read_page",
        "Read pages",
        _OPERATIONS["read_parts"],
        ("paths", "section", "from_line", "to_line", "revision"),
        answers.present_pages,
        answers.format_page,
        answers.TextArguments,
        f"Read pages, a section, lines, or an older revision. A later write requires the revision. {DATA_NOTE}",
    ),
    _make_list(
        "list_pages",
        "List pages",
        "list_pages",
        *(*_FILTERS, "limit", "offset"),
        description="List pages by path: all, or those that match the filters, which are those of search.",
        defaults={"limit": 100},
        plain=_PLAIN_FILTERS,
    ),
    _make_list(
        "list_tags",
        "List tags and folders",
        "facets",
        "prefix",
        "facets",
        present=answers.present_facets,
        answer=PagedArguments,
        description="List tags, categories, folders and values of frontmatter keys, with their numbers of pages.",
    ),
    _make_search(
        "similar_pages",
        "Find similar pages",
        "Find the pages closest in meaning to one page. Filters are those of search.",
        "similar",
        *("path", "n", *_FILTERS),
        plain=_PLAIN_FILTERS,
    ),
    _make_list("get_links", "Follow links", "links", "path", answer=PagedArguments),
    _make_list("find_orphans", "Find orphaned pages", "orphans", answer=PagedArguments),
    _make_list(
        "recent_changes",
        "See recent changes",
        "changelog",
        *("prefix", "since", "limit", "offset"),
        defaults={"limit": 20},
        reads_index=False,
    ),
    _make_list(
        "page_history",
        "See a page's history",
        "history",
        *("path", "limit", "offset"),
        defaults={"limit": 20},
        reads_index=False,
    ),
    Tool(
        "diff_page",
        "Compare revisions",
        _OPERATIONS["compare_revisions"],
        ("path", "from_revision", "to_revision"),
        answers.present_diff,
        answers.format_diff,
        answers.DiffArguments,
    ),
    _make_list(
        "list_attachments",
        "List attachments",
        "list_attachments",
        "path",
        present=answers.present_attachments,
        answer=PagedArguments,
        reads_index=False,
    ),
)
WRITE_TOOLS: Sequence[Tool] = (
    _make_write(
        "write_page",
        "Write a page",
        "put_page",
        *("content", "revision"),
        description="Write an entire page, as one commit. An existing page needs the revision from read_page; to "
        "change a part of it, use edit_page.",
        destructive=True,
    ),
    _make_write(
        "edit_page",
        "Edit a page",
        "edit_part",
        *("new_string", "old_string", "replace_all", "section", "from_line", "to_line", "revision"),
        destructive=True,
    ),
    _make_write("append_to_page", "Append to a page", "append_to_page", "text", "revision"),
    _make_write(
        "rename_page",
        "Rename a page",
        "rename_page",
        *("new_path", "update_links", "move_subpages", "revision"),
        answer=AnswerArguments,
        destructive=True,
    ),
    _make_write(
        "delete_page",
        "Delete a page",
        "delete_page",
        "revision",
        description="Delete a page; its content stays in the git history. Ask the user before you do this.",
        destructive=True,
    ),
)
HTTP_TOOLS: Sequence[Tool] = (_FETCH,)
"""ChatGPT's connectors, which use HTTP, need a tool of this name. For other agents it repeats `read_page`."""
SEVERAL_WIKIS_TOOLS: Sequence[Tool] = (
    _make_search(
        "search",
        "Search several wikis",
        f"{_SEARCH_NOTE} Each result names its wiki; each wiki is searched by itself.",
        "search",
        *("query=q", "wikis=wiki", "n", "mode", *_FILTERS),
    ),
)
"""The tools of a request with an operator key or a list of keys."""


_ALIAS_TOOLS: Sequence[Tool] = (
    _make_search(
        "semantic_search",
        "Search by meaning",
        "Find pages by meaning, with up to max_chunks_per_page chunks of each.",
        "semantic_search",
        *("query=q", "n", *_FILTERS, "max_chunks_per_page"),
    ),
    Tool(
        "download_attachment",
        "Read an attachment",
        _OPERATIONS["read_attachment"],
        ("path", "filename"),
        answers.present_attachment,
        format_lines,
    ),
    _make_write("upload_attachment", "Attach a file", "attach", "filename", "content", destructive=True),
    _make_write("delete_attachment", "Delete an attachment", "detach", "filename", destructive=True),
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
    tools = {tool.name: tool for tool in (*READ_TOOLS, *(HTTP_TOOLS if http else ()), *WRITE_TOOLS)}
    if aliases:
        for name, (original, defaults) in _ALIASES.items():
            tool = tools[original]
            tools[name] = replace(tool, name=name, defaults={**tool.defaults, **defaults})
        tools |= {tool.name: tool for tool in _ALIAS_TOOLS}
    return tools


@cache
def get_definition(tool: Tool) -> Described:
    """The definition for clients. It is built once per process, because schemas take time."""
    return tool.describe()
