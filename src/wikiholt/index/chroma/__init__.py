"""Vector search with ChromaDB, in a child process or on a server."""
