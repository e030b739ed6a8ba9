"""What a farm calls when it has deleted a wiki: what Wikiholt has of it is removed too."""

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
    """Remove the wiki of this slug, or those at or below this path; returns the slugs that were removed."""
    given = os.fspath(path_or_slug)
    named = given if isinstance(path_or_slug, str) and not given.startswith("/") else os.path.realpath(given)
    host = _get_runtime()
    if host is not None:
        return _forget_in_service(host.application.service, named)
    if not os.environ.get("WIKIHOLT_DATA"):
        raise InvalidSetting(
            "Where Wikiholt keeps its data is not said.",
            hint="Set WIKIHOLT_DATA as for Otterwiki, or call this in a process of Otterwiki.",
        )
    with closing(build_service(PluginConfig.from_environment({}, os.environ).load_settings())) as service:
        return _forget_in_service(service, named)


def _forget_in_service(service: WikiService, named: str) -> tuple[str, ...]:
    return tuple(removed.wiki.slug for removed in service.forget(named))


def _get_runtime() -> Any:
    """The plugin's host, where Otterwiki runs in this process."""
    if _PLUGIN not in sys.modules:
        return None
    return importlib.import_module(_PLUGIN).plugin.host
