"""Indexes in PostgreSQL: a schema and a login role per wiki."""
