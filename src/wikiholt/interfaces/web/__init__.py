"""The web page: search, status and page preview in the browser."""
