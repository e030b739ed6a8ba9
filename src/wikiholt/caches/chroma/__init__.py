"""Vector search through ChromaDB, in a child process or a server."""
