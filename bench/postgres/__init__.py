"""PostgreSQL as the store, compared with the embedded store and with one table for all wikis."""
