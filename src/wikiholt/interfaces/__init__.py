"""The ways in: command line, HTTP, web page, MCP and the Otterwiki plugin."""
