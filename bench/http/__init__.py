"""Searches over HTTP: rate and latency."""
