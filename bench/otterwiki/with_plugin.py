"""Otterwiki with the plugin: `gunicorn bench.otterwiki.with_plugin:app`."""

from otterwiki.server import app as otterwiki

from bench.otterwiki.request_costs import measure_requests

app = measure_requests(otterwiki)
