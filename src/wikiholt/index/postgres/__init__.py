"""The store in PostgreSQL: one schema and one login role per wiki."""
