"""The JSON documents that all interfaces return, and how they are built from values."""
