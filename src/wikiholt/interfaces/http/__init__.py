"""The HTTP API: routes, request context, errors, metrics."""
