"""The HTTP API: one set of routes under /api/v1, the same for every wiki."""
