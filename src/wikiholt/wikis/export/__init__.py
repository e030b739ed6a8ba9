"""The search of a wiki as static files. A browser searches them with `static_search.js`, without a server."""
