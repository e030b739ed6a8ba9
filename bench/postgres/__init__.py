"""PostgreSQL as the store: beside the embedded one, and beside one table for all wikis."""
