"""Otterwiki as it is without any plugin, in an environment where ours is installed: `gunicorn bench.otterwiki.bare:app`."""

import pluggy

pluggy.PluginManager.load_setuptools_entrypoints = lambda *_, **__: 0  # type: ignore[method-assign]

from otterwiki.server import app  # noqa: E402

__all__ = ["app"]
