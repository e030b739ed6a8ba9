"""The plugin that Otterwiki loads by its entry point. Errors in hooks are logged and never reach Otterwiki.

The module and its package import only the standard library and Otterwiki's hooks, so that Otterwiki starts even if
Wikiholt is broken.
"""

import functools
import importlib
import logging
import os
import re
from collections.abc import Callable
from typing import Any

from otterwiki.plugins import hookimpl
from otterwiki.version import __version__ as _otterwiki_version

from wikiholt.interfaces.otterwiki import log_once

_PACKAGE = "wikiholt.interfaces.otterwiki"
_MIN_OTTERWIKI = (2, 26)


class UnsupportedOtterwiki(Exception):
    """This version of Otterwiki lacks what the plugin needs. The wiki runs without the plugin."""

    hint = "update it: pip install --upgrade otterwiki"


def check_otterwiki_version(version: str) -> None:
    """Raise UnsupportedOtterwiki for a version that is too old; a version that is not a number is accepted."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is not None and (int(match[1]), int(match[2])) < _MIN_OTTERWIKI:
        needed = ".".join(map(str, _MIN_OTTERWIKI))
        raise UnsupportedOtterwiki(f"Otterwiki {version} is too old, {needed} is needed; the plugin is off")


def _catch_errors(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that never raises; it logs an error, once for each reason, and returns None."""

    @functools.wraps(hook)
    def call_safely(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - an error here must not break saving or showing a page
            log_once(hook.__name__, error)
            return None

    return call_safely


def _make_hook(function: Callable[..., Any]) -> Callable[..., Any]:
    hook: Callable[..., Any] = hookimpl(_catch_errors(function))
    return hook


def _configure_logging(app: Any) -> None:
    """Log to Otterwiki's handler, unless logging is configured otherwise."""
    log = logging.getLogger("wikiholt")
    if not log.hasHandlers():
        log.addHandler(importlib.import_module("flask.logging").default_handler)
        log.setLevel(app.logger.getEffectiveLevel())


class OtterwikiPlugin:
    """Implements Otterwiki's hooks; owns the PluginRuntime of this process."""

    def __init__(self) -> None:
        self.runtime: Any = None
        """The runtime of this process; None before Otterwiki calls `setup`."""
        self._injects: Any = None

    @_make_hook
    def setup(self, app: Any, db: Any, storage: Any) -> None:  # noqa: ARG002 - Otterwiki sets the parameter names
        _configure_logging(app)
        check_otterwiki_version(_otterwiki_version)
        importlib.import_module(f"{_PACKAGE}.plugin_config").log_legacy_advice(os.environ)
        self.runtime = importlib.import_module(f"{_PACKAGE}.plugin_runtime").PluginRuntime(app)
        self._register_part("api", app)
        self._injects = self._register_part("search_pages", app)
        self.runtime.start()

    @_catch_errors
    def _register_part(self, part: str, app: Any) -> Any:
        module = importlib.import_module(f"{_PACKAGE}.{part}")
        module.register(app, self.runtime)
        return module

    @_make_hook
    def repository_changed(self, *_: Any) -> None:
        if self.runtime is not None:  # Otterwiki writes the first page of an empty wiki before it calls setup
            self.runtime.notify_changed()

    page_saved = page_deleted = page_renamed = repository_changed

    @_make_hook
    def template_html_head_inject(self, page: Any) -> str | None:
        if self.runtime is not None:
            self.runtime.on_page_viewed()
        return self._render_inject("render_head", page)

    @_make_hook
    def template_html_sidebar_right_inject(self, page: Any) -> str | None:
        return self._render_inject("render_sidebar", page)

    def _render_inject(self, function: str, page: Any) -> str | None:
        html = getattr(self._injects, function)(page) if self._injects is not None else None
        return str(html) if html else None


plugin = OtterwikiPlugin()
