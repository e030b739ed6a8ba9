"""The Model Context Protocol (MCP): one wiki for an agent, over HTTP or stdio."""
