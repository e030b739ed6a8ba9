"""Indexes as SQLite files, one per generation."""
