"""Which wiki a request is about: the one whose storage Otterwiki uses in this very request. Never a global of ours.

A farm may put another storage in the place of Otterwiki's for each request, by setting module attributes or by a
proxy, or have us ask a function of its own.
"""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import has_request_context, request

from wikiholt.errors import InvalidSetting, WikiNotFound

_READERS = ("otterwiki.server", "otterwiki.wiki")
"""Modules whose storage serves a request: the first is where a farm puts it, the second is what pages are read by."""


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on this machine, and what the farm calls its wiki, if it does."""

    path: str
    slug: str | None = None
    certain: bool = True
    """Whether this is a wiki for sure; one that is not is left alone unless it is known."""


class Resolver:
    """Says which wiki is meant, by storage or by the function that `named` names as module:function."""

    def __init__(self, named: str) -> None:
        self._named = named
        self._function: Callable[..., Any] | None = None

    def here(self) -> Place:
        """The wiki of the request being handled; raises WikiNotFound where that cannot be told for certain."""
        return self._asked() if self._named else Place(_storage_path())

    def elsewhere(self) -> list[Place]:
        """The wikis that something outside of a request may have changed: a start, a pull in a thread of its own."""
        manager = getattr(sys.modules.get("otterwiki.repomgmt"), "repo_manager", None)
        paths = {_path_of(holder) for holder in (*map(sys.modules.get, _READERS), manager)}
        # Who names wikis by a function of their own may have none where Otterwiki was told to look.
        return [Place(path, certain=not self._named) for path in sorted(filter(None, paths))]

    def _asked(self) -> Place:
        if self._function is None:
            self._function = _function(self._named)
        answer = self._function(request)
        slug, path = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, answer)
        if not path or not isinstance(path, str | os.PathLike) or not isinstance(slug, str | None):
            raise _unknown("the resolver named no wiki")
        return Place(os.path.realpath(os.fspath(path)), slug or None)


def in_request() -> bool:
    return has_request_context()


def _storage_path() -> str:
    paths = {path for name in _READERS if (path := _path_of(sys.modules.get(name))) is not None}
    if len(paths) != 1:
        raise _unknown("Otterwiki's parts use different storages" if paths else "Otterwiki has no storage here")
    return paths.pop()


def _path_of(holder: Any) -> str | None:
    """Where the storage of a module of Otterwiki lies; None where it has none, or a proxy that leads nowhere now."""
    try:
        return os.path.realpath(str(holder.storage.path))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _function(named: str) -> Callable[..., Any]:
    module, _, function = named.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        if not callable(found):
            raise TypeError(f"{function} is no function")
    except Exception as error:
        raise InvalidSetting(
            f"WIKIHOLT_OTTERWIKI_RESOLVER = {named!r} cannot be used: {type(error).__name__}: {error}.",
            hint="Name a function as module:function that takes the request and returns a repository's path.",
        ) from error
    return found


def _unknown(reason: str) -> WikiNotFound:
    return WikiNotFound(
        f"Which wiki this request is about cannot be told: {reason}.",
        hint="A farm can say so itself: set WIKIHOLT_OTTERWIKI_RESOLVER.",
    )
