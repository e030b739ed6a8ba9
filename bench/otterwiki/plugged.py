"""Otterwiki with the plugin: `gunicorn bench.otterwiki.plugged:app`."""

from otterwiki.server import app as otterwiki

from bench.otterwiki.measured import measure_requests

app = measure_requests(otterwiki)
