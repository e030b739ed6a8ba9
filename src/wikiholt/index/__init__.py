"""What an index stores, and how a page becomes a part of it: files, PostgreSQL, keywords, Chroma, repair, backups."""
