"""Findings in a wiki that real commits changed."""
