"""Which wiki a request is about: the one whose storage Otterwiki uses in this very request. Never a global of ours.

A farm may put another storage in the place of Otterwiki's for each request, by setting module attributes or by a
proxy, or have us ask a function of its own.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from flask import has_request_context, request

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSetting, WikiExists, WikiholtError, WikiNotFound
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.slugs import propose_slug

_STORAGE_MODULES = ("otterwiki.server", "otterwiki.wiki")
"""Modules whose storage serves a request: the first is where a farm puts it, the second is what pages are read by."""


@dataclass(frozen=True, slots=True)
class WikiLocation:
    """A repository on this machine, and what the farm calls its wiki, if it does."""

    path: str
    slug: str | None = None
    is_certain: bool = True
    """Whether this is a wiki for sure; one that is not is left alone unless it is known."""


class WikiResolver:
    """Says which wiki is meant, by storage or by the function that `named` names as module:function."""

    def __init__(self, function_name: str) -> None:
        self._function_name = function_name
        self._function: Callable[..., Any] | None = None

    def resolve_request(self) -> WikiLocation:
        """The wiki of the request being handled; raises WikiNotFound where that cannot be told for certain."""
        return self._call_function() if self._function_name else WikiLocation(_get_storage_path())

    def find_outside_request(self) -> list[WikiLocation]:
        """The wikis that something outside of a request may have changed: a start, a pull in a thread of its own."""
        manager = getattr(sys.modules.get("otterwiki.repomgmt"), "repo_manager", None)
        paths = {_get_path(holder) for holder in (*map(sys.modules.get, _STORAGE_MODULES), manager)}
        # Who names wikis by a function of their own may have none where Otterwiki was told to look.
        return [WikiLocation(path, is_certain=not self._function_name) for path in sorted(filter(None, paths))]

    def _call_function(self) -> WikiLocation:
        if self._function is None:
            self._function = _load_function(self._function_name)
        answer = self._function(request)
        slug, path = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, answer)
        if not path or not isinstance(path, str | os.PathLike) or not isinstance(slug, str | None):
            raise _build_unknown_wiki_error("the resolver named no wiki")
        return WikiLocation(os.path.realpath(os.fspath(path)), slug or None)


def is_in_request() -> bool:
    return has_request_context()


def _get_storage_path() -> str:
    paths = {path for name in _STORAGE_MODULES if (path := _get_path(sys.modules.get(name))) is not None}
    if len(paths) != 1:
        raise _build_unknown_wiki_error(
            "Otterwiki's parts use different storages" if paths else "Otterwiki has no storage here"
        )
    return paths.pop()


def _get_path(holder: Any) -> str | None:
    """Where the storage of a module of Otterwiki lies; None where it has none, or a proxy that leads nowhere now."""
    try:
        return os.path.realpath(str(holder.storage.path))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _load_function(function_name: str) -> Callable[..., Any]:
    module, _, function = function_name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        if not callable(found):
            raise TypeError(f"{function} is no function")
    except Exception as error:
        raise InvalidSetting(
            f"WIKIHOLT_OTTERWIKI_RESOLVER = {function_name!r} cannot be used: {type(error).__name__}: {error}.",
            hint="Name a function as module:function that takes the request and returns a repository's path.",
        ) from error
    return found


def _build_unknown_wiki_error(reason: str) -> WikiNotFound:
    return WikiNotFound(
        f"Which wiki this request is about cannot be told: {reason}.",
        hint="A farm can say so itself: set WIKIHOLT_OTTERWIKI_RESOLVER.",
    )


# Wikis that requests are about are registered when they are first seen.


_log = logging.getLogger(__name__)

_DEFAULT_WIKI_SETTINGS = {"anchors": "otterwiki", "url": "/{path}"}
_GENERIC_DIRECTORY_NAMES = ("repository", "repo", "wiki", "data", "pages")
"""Names of directories that say nothing about the wiki in them."""


class WikiRegistrar:
    """The wikis of one service by their repositories; safe to use from many threads."""

    def __init__(self, service: WikiService, hide: str | None) -> None:
        """`hide` are the patterns of pages that no search shall find, or None to leave them as they are."""
        self._service = service
        self._hide = hide
        self._ids: dict[str, str] = {}

    def is_known(self, location: WikiLocation) -> bool:
        return location.path in self._ids

    def get_or_register(self, location: WikiLocation) -> Wiki:
        """The wiki whose repository lies there, registered if it is not; raises WikiholtError."""
        known = self._ids.get(location.path)
        if known is not None:
            with suppress(WikiNotFound):  # it was removed: who uses it has it registered again
                wiki = self._service.registry.get_by_id(known)
                if not self._service.discard_replaced(wiki):
                    return wiki
        wiki = self._apply_hide(self._find_or_add(location))
        self._ids[location.path] = wiki.id
        return wiki

    def _find_or_add(self, location: WikiLocation) -> Wiki:
        for slug in _propose_slugs(location):
            wiki = self._get_or_add(slug, location)
            if wiki.source == location.path and self._service.discard_replaced(wiki):
                wiki = self._get_or_add(slug, location)  # the same path and slug, but a new wiki
            if wiki.source == location.path:
                return wiki
        raise WikiExists(
            "The name that this wiki is to have belongs to another repository.",
            hint="Have the resolver give it another slug, or remove the other one with `wikiholt remove`.",
        )

    def _get_or_add(self, slug: str, location: WikiLocation) -> Wiki:
        with suppress(WikiNotFound):
            return self._service.registry.get(slug)
        try:
            added = self._service.add(slug, location.path, _DEFAULT_WIKI_SETTINGS)
        except WikiExists:  # another worker was faster
            return self._service.registry.get(slug)
        _log.info("the wiki %s is taken up", slug)
        return added

    def _apply_hide(self, wiki: Wiki) -> Wiki:
        if self._hide is None or wiki.settings.get("hide", "") == self._hide:
            return wiki
        try:
            return self._service.configure(wiki.slug, {"hide": self._hide})
        except WikiholtError as error:
            _log.error("pages are not hidden as WIKIHOLT_OTTERWIKI_HIDE says: %s (%s)", error.message, error.hint)
            return wiki


def _propose_slugs(location: WikiLocation) -> list[str]:
    """What the wiki may be called, the best first."""
    if location.slug:
        return [location.slug]
    path = Path(location.path)
    telling = (name for name in reversed(path.parts[1:]) if name.lower() not in _GENERIC_DIRECTORY_NAMES)
    name = next(telling, path.name)
    return [propose_slug(name), propose_slug(f"{name[:50]}-{sha256(location.path.encode()).hexdigest()[:8]}")]
