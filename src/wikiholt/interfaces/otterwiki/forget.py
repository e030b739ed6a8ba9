"""Removes the data of wikis that were deleted outside Wikiholt."""

import importlib
import os
import sys
from contextlib import closing
from typing import Any

from wikiholt.app.bootstrap import build_service
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.otterwiki.plugin_config import PluginConfig
from wikiholt.wikis.service import WikiService

_PLUGIN = "wikiholt.interfaces.otterwiki.plugin"


def forget_wiki(path_or_slug: str | os.PathLike[str]) -> tuple[str, ...]:
    """Remove the wiki with this slug, or the wikis at or below this path; return the removed slugs."""
    text = os.fspath(path_or_slug)
    target = text if isinstance(path_or_slug, str) and not text.startswith("/") else os.path.realpath(text)
    runtime = _get_runtime()
    if runtime is not None:
        return _forget_in_service(runtime.application.service, target)
    if not os.environ.get("WIKIHOLT_DATA"):
        raise InvalidSetting(
            "The data directory of Wikiholt is not set.",
            hint="Set WIKIHOLT_DATA as for Otterwiki, or call this inside an Otterwiki process.",
        )
    with closing(build_service(PluginConfig.from_environment({}, os.environ).load_settings())) as service:
        return _forget_in_service(service, target)


def _forget_in_service(service: WikiService, path_or_slug: str) -> tuple[str, ...]:
    return tuple(removed.wiki.slug for removed in service.forget(path_or_slug))


def _get_runtime() -> Any:
    """Return the runtime of the plugin if Otterwiki runs in this process, else None."""
    if _PLUGIN not in sys.modules:
        return None
    return importlib.import_module(_PLUGIN).plugin.runtime
