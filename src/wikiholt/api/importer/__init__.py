"""Imports an index that several wikis shared into one index per wiki."""
