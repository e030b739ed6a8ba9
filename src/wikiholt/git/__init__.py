"""Git repositories as sources of pages: read, written, fetched and discovered through the git program."""
