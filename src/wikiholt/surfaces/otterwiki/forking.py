"""Whether this process serves the wiki itself, or has loaded it only for others to come."""

import importlib
import logging
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import click

_log = logging.getLogger(__name__)


def is_prefork_master() -> bool:
    """Whether threads had better not be started while the wiki is loaded: it is loaded to be forked, or for a command.

    gunicorn with --preload, and uWSGI unless told otherwise, load it once and fork workers, which inherit no threads.
    """
    return _is_uwsgi_master() or _is_gunicorn_master() or _is_cli_command()


def register_after_fork(callback: Callable[[], None]) -> None:
    """Have `begin` called in every process that is forked from this one, perhaps twice."""
    os.register_at_fork(after_in_child=callback)
    uwsgi = _load_uwsgi()
    if uwsgi is None:
        return
    # uWSGI forks without telling Python; it has one hook of its own.
    before: Callable[[], None] | None = getattr(uwsgi, "post_fork_hook", None)

    def on_fork() -> None:
        if before is not None:
            before()
        callback()

    uwsgi.post_fork_hook = on_fork
    if not getattr(uwsgi, "has_threads", True):
        _log.warning(
            "Wikiholt: uWSGI runs without threads, so that the index follows only while pages are being served. "
            "Set enable-threads = true in its configuration."
        )


def _load_uwsgi() -> Any:
    """What uWSGI tells the programs it runs; None elsewhere."""
    try:
        return importlib.import_module("uwsgi")
    except ImportError:
        return None


def _is_uwsgi_master() -> bool:
    try:
        return int(_load_uwsgi().worker_id()) == 0
    except AttributeError:
        return False


def _is_gunicorn_master() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "gunicorn.arbiter":
            return frame.f_code.co_name != "spawn_worker"
        frame = frame.f_back
    return False


def _is_cli_command() -> bool:
    """Whether this is one of Flask's or Otterwiki's commands, other than to run the wiki."""
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name not in ("run", "gunicorn", "waitress-serve")
