"""Faster forms of one version of an index. They can be deleted at any time."""
