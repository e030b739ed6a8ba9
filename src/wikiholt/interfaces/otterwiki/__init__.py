"""The Otterwiki plugin: hooks that notify the scheduler of changes, the API and the search pages."""

import logging
import os
import sys
from contextlib import closing

__all__ = ["forget"]

_PLUGIN = "wikiholt.interfaces.otterwiki.plugin"
_log = logging.getLogger("wikiholt.otterwiki")
_logged_reasons: set[str] = set()


def forget(path_or_slug: str | os.PathLike[str]) -> tuple[str, ...]:
    """Remove the index, keys, backups and query log of a deleted wiki, and return the removed slugs.

    Takes the slug, or the absolute path of the repository or of a directory above it. Call it after deleting the
    directory. An unknown wiki is not an error. Works in every process that has Otterwiki's WIKIHOLT_* settings in its
    environment. Raises WikiholtError.
    """
    # Otterwiki must start without these.
    from wikiholt.api.bootstrap import build_service  # noqa: PLC0415
    from wikiholt.errors import InvalidSetting  # noqa: PLC0415
    from wikiholt.interfaces.otterwiki.plugin_config import PluginConfig  # noqa: PLC0415

    text = os.fspath(path_or_slug)
    target = text if isinstance(path_or_slug, str) and not text.startswith("/") else os.path.realpath(text)
    module = sys.modules.get(_PLUGIN)
    runtime = module.plugin.runtime if module else None  # not None if Otterwiki runs in this process
    if runtime is not None:
        return tuple(removed.wiki.slug for removed in runtime.application.service.forget(target))
    if not os.environ.get("WIKIHOLT_DATA"):
        raise InvalidSetting(
            "The data directory of Wikiholt is not set.",
            hint="Set WIKIHOLT_DATA as for Otterwiki, or call this inside an Otterwiki process.",
        )
    with closing(build_service(PluginConfig.from_environment({}, os.environ).load_settings())) as service:
        return tuple(removed.wiki.slug for removed in service.forget(target))


def log_once(where: str, error: BaseException) -> None:
    """Log an error, once for each reason."""
    reason = f"{where}: {type(error).__name__}: {error}"
    if reason not in _logged_reasons and len(_logged_reasons) < 1000:
        _logged_reasons.add(reason)
        hint = getattr(error, "hint", "")
        # An error with a hint is an expected one and needs no traceback.
        _log.error("Wikiholt: %s%s", reason, f" ({hint})" if hint else "", exc_info=None if hint else error)
