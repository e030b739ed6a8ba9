"""The interfaces: command line, HTTP API, web page, MCP server and Otterwiki plugin."""
