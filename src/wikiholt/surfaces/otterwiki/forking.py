"""Whether this process serves the wiki itself, or has loaded it only for others to come."""

import importlib
import sys
from types import FrameType

import click


def stands_by() -> bool:
    """Whether threads had better not be started while the wiki is loaded: it is loaded to be forked, or for a command.

    gunicorn with --preload, and uWSGI unless told otherwise, load it once and fork workers, which inherit no threads.
    """
    return _uwsgi_master() or _gunicorn_master() or _command()


def _uwsgi_master() -> bool:
    try:
        return int(importlib.import_module("uwsgi").worker_id()) == 0
    except (ImportError, AttributeError):
        return False


def _gunicorn_master() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "gunicorn.arbiter":
            return frame.f_code.co_name != "spawn_worker"
        frame = frame.f_back
    return False


def _command() -> bool:
    """Whether this is one of Flask's or Otterwiki's commands, other than to run the wiki."""
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name not in ("run", "gunicorn", "waitress-serve")
