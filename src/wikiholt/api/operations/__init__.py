"""What a wiki can do: one table of operations, from which HTTP routes and MCP tools are made.

Commands call the same functions: each takes an opened wiki and its parameters, and returns a document.
"""
