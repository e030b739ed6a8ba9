"""Searches over HTTP: how many a second, and how long each takes."""
