"""Otterwiki as it is without any plugin, in an environment where ours is installed: `gunicorn bench.otterwiki.without_plugin:app`."""

import pluggy

pluggy.PluginManager.load_setuptools_entrypoints = lambda *_, **__: 0  # type: ignore[method-assign]

from otterwiki.server import app as otterwiki  # noqa: E402

from bench.otterwiki.request_costs import measure_requests  # noqa: E402

app = measure_requests(otterwiki)
