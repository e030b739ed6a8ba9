"""Where indexes are stored: SQLite files, or a PostgreSQL schema per wiki."""
