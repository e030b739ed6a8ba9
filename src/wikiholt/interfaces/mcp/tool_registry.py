"""The MCP tools that a client gets, in the order of their list, and the names of other servers for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from mcp_types import Tool as Described

from wikiholt.interfaces.mcp import (
    ask_tools,
    attachment_tools,
    history_tools,
    list_tools,
    read_tools,
    search_tools,
    write_tools,
)
from wikiholt.interfaces.mcp.mcp_tool import McpTool

READ_TOOLS: Sequence[McpTool] = (
    search_tools.search,
    ask_tools.ask,
    read_tools.fetch,
    read_tools.read_page,
    read_tools.read_pages,
    list_tools.list_pages,
    list_tools.list_tags,
    search_tools.similar_pages,
    list_tools.get_links,
    history_tools.recent_changes,
    history_tools.page_history,
    history_tools.diff_page,
    list_tools.find_orphans,
    attachment_tools.list_attachments,
)
WRITE_TOOLS: Sequence[McpTool] = (
    write_tools.write_page,
    write_tools.edit_page,
    write_tools.append_to_page,
    write_tools.rename_page,
    write_tools.delete_page,
)
SEVERAL_WIKIS_TOOLS: Sequence[McpTool] = (search_tools.search_wikis,)
"""The tools of a request with an operator key or a list of keys."""
_ALIAS_TOOLS: Sequence[McpTool] = (
    search_tools.semantic_search,
    attachment_tools.download_attachment,
    attachment_tools.upload_attachment,
    attachment_tools.delete_attachment,
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
"""The tool names of otterwiki-mcp, with the tool and the fixed arguments here."""


@cache
def get_tools(*, aliases: bool) -> Mapping[str, McpTool]:
    """The tools by name, in listing order."""
    tools = {tool.name: tool for tool in (*READ_TOOLS, *WRITE_TOOLS)}
    if aliases:
        for name, (original, fixed) in _ALIASES.items():
            description = f"The same as {original}. {tools[original].description}"
            tools[name] = replace(tools[original], name=name, description=description, fixed_arguments=fixed)
        tools |= {tool.name: tool for tool in _ALIAS_TOOLS}
    return tools


@cache
def get_tool_definitions(*, aliases: bool) -> Mapping[str, Described]:
    """The definitions for clients by tool name. They are built once per process, because the schemas take time."""
    tools = (*get_tools(aliases=aliases).values(), *SEVERAL_WIKIS_TOOLS)
    return {tool.name: tool.to_definition() for tool in tools}
