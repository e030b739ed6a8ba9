"""The wiki of a request: found by the storage that Otterwiki uses in that request, registered, and its page paths.

A host of many wikis may replace Otterwiki's storage for each request, by module attributes or by a proxy object, or
provide a resolver function.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from flask import current_app, request
from otterwiki.util import titleSs

from wikiholt.domain.slugs import propose_slug
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSetting, WikiExists, WikiholtError, WikiNotFound
from wikiholt.text.dialect import AUTO, OTTERWIKI, OTTERWIKI_DIALECTS
from wikiholt.text.page_names import is_code, is_document, make_page_name
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.session import PathStyle

_STORAGE_MODULES = ("otterwiki.server", "otterwiki.wiki")
"""Modules whose storage serves a request: hosts replace the first, page views read the second."""


@dataclass(frozen=True, slots=True)
class WikiLocation:
    """A local repository, with the slug that the resolver function gave, if any."""

    path: str
    slug: str | None = None
    is_certain: bool = True
    """False if this may be no wiki; such a location is used only if it is registered."""


class WikiResolver:
    """Finds wikis by Otterwiki's storage, or by the function that `function_name` names as module:function."""

    def __init__(self, function_name: str) -> None:
        self._function_name = function_name
        self._function: Callable[..., Any] | None = None

    def resolve_request(self) -> WikiLocation:
        """The wiki of the current request. Raises WikiNotFound if it is ambiguous."""
        return self._call_function() if self._function_name else WikiLocation(_get_storage_path())

    def find_outside_request(self) -> list[WikiLocation]:
        """The wikis that code outside a request, such as a background pull, may have changed."""
        manager = getattr(sys.modules.get("otterwiki.repomgmt"), "repo_manager", None)
        paths = {_get_path(holder) for holder in (*map(sys.modules.get, _STORAGE_MODULES), manager)}
        # With a resolver function there may be no wiki at the path of Otterwiki's configuration.
        return [WikiLocation(path, is_certain=not self._function_name) for path in sorted(filter(None, paths))]

    def _call_function(self) -> WikiLocation:
        if self._function is None:
            self._function = _load_function(self._function_name)
        result = self._function(request)
        slug, path = result if isinstance(result, tuple) and len(result) == 2 else (None, result)
        if not path or not isinstance(path, str | os.PathLike) or not isinstance(slug, str | None):
            raise _build_unknown_wiki_error("the resolver returned no wiki")
        return WikiLocation(os.path.realpath(os.fspath(path)), slug or None)


def _get_storage_path() -> str:
    paths = {path for name in _STORAGE_MODULES if (path := _get_path(sys.modules.get(name))) is not None}
    if len(paths) != 1:
        raise _build_unknown_wiki_error(
            "Otterwiki's modules use different storages" if paths else "Otterwiki has no storage"
        )
    return paths.pop()


def _get_path(holder: Any) -> str | None:
    """The storage path of an Otterwiki module; None if it has no storage, or an unbound proxy."""
    try:
        return os.path.realpath(str(holder.storage.path))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _load_function(function_name: str) -> Callable[..., Any]:
    module, _, function = function_name.partition(":")
    try:
        resolver: Callable[..., Any] = getattr(importlib.import_module(module), function)
        if not callable(resolver):
            raise TypeError(f"{function} is not a function")
    except Exception as error:
        raise InvalidSetting(
            f"WIKIHOLT_OTTERWIKI_RESOLVER = {function_name!r} cannot be used: {type(error).__name__}: {error}.",
            hint="Name a function as module:function that takes the request and returns a repository's path.",
        ) from error
    return resolver


def _build_unknown_wiki_error(reason: str) -> WikiNotFound:
    return WikiNotFound(
        f"The wiki of this request is unknown: {reason}.",
        hint="Set WIKIHOLT_OTTERWIKI_RESOLVER to a function that returns it.",
    )


# Registration of wikis on their first request


_log = logging.getLogger(__name__)

_DEFAULT_WIKI_SETTINGS = {"anchors": "otterwiki", "url": "/{path}"}
_CHANGEABLE_DIALECTS = (AUTO, *(dialect.name for dialect in OTTERWIKI_DIALECTS))
_GENERIC_DIRECTORY_NAMES = ("repository", "repo", "wiki", "data", "pages")
"""Directory names that are not specific enough for a slug."""


class WikiRegistrar:
    """Maps repositories to the wikis of one service. Safe to use from many threads."""

    def __init__(self, service: WikiService, hide: str | None = None, dialect: str = OTTERWIKI.name) -> None:
        """`hide` applies to every wiki, the dialect only to those that have one of Otterwiki's."""
        self._service = service
        self._hide = hide
        self._dialect = dialect
        self._ids: dict[str, str] = {}

    def is_known(self, location: WikiLocation) -> bool:
        return location.path in self._ids

    def get_or_register(self, location: WikiLocation) -> Wiki:
        """Return the wiki at this location, and register it if needed. Raises WikiholtError."""
        wiki_id = self._ids.get(location.path)
        if wiki_id is not None:
            with suppress(WikiNotFound):  # the wiki was removed: register it again
                wiki = self._service.registry.get_by_id(wiki_id)
                if not self._service.discard_replaced(wiki):
                    return wiki
        wiki = self._apply_settings(self._find_or_add(location))
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
            "The slug of this wiki belongs to another repository.",
            hint="Return another slug from the resolver, or remove the other wiki with `wikiholt remove`.",
        )

    def _get_or_add(self, slug: str, location: WikiLocation) -> Wiki:
        with suppress(WikiNotFound):
            return self._service.registry.get(slug)
        try:
            # All at once: a sync may start as soon as the wiki is registered, and must not index what is hidden.
            settings = _DEFAULT_WIKI_SETTINGS | self._find_changes(_DEFAULT_WIKI_SETTINGS)
            added = self._service.add(slug, location.path, settings)
        except WikiExists:  # another worker registered it meanwhile
            return self._service.registry.get(slug)
        _log.info("registered wiki %s", slug)
        return added

    def _apply_settings(self, wiki: Wiki) -> Wiki:
        """Apply Otterwiki's settings to a registered wiki. Raises WikiholtError if pages cannot be hidden."""
        changes = self._find_changes(wiki.settings)
        try:
            return self._service.configure(wiki.slug, changes) if changes else wiki
        except WikiholtError as error:
            if "hide" in changes:
                raise
            _log.error("cannot apply the settings of Otterwiki to a wiki: %s (%s)", error.message, error.hint)
            return wiki

    def _find_changes(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of a wiki that differ from those of Otterwiki, with Otterwiki's values."""
        changes: dict[str, str] = {}
        if self._hide is not None and settings.get("hide", "") != self._hide:
            changes["hide"] = self._hide
        dialect = settings.get("dialect", AUTO)
        if {AUTO: OTTERWIKI.name}.get(dialect, dialect) != self._dialect and dialect in _CHANGEABLE_DIALECTS:
            changes["dialect"] = self._dialect
        return changes


def _propose_slugs(location: WikiLocation) -> list[str]:
    """Possible slugs, the best first."""
    if location.slug:
        return [location.slug]
    path = Path(location.path)
    specific_names = (name for name in reversed(path.parts[1:]) if name.lower() not in _GENERIC_DIRECTORY_NAMES)
    name = next(specific_names, path.name)
    return [propose_slug(name), propose_slug(f"{name[:50]}-{sha256(location.path.encode()).hexdigest()[:8]}")]


# Page paths: lower case in git and title case on the page, unless Otterwiki retains the case.


@dataclass(frozen=True, slots=True)
class OtterwikiPaths(PathStyle):
    """The path style of the wiki of one request."""

    retain_case: bool
    root: str = ""
    """The path below which the wiki is mounted, without a trailing slash."""
    underscore_as_space: bool = False
    """Whether titles show a space for an underscore (TREAT_UNDERSCORE_AS_SPACE_FOR_TITLES)."""

    def to_display_path(self, path: str) -> str:
        # Otterwiki did not create a name that is not lower case, and shows it unchanged.
        parts = (str(titleSs(part)) if part == part.lower() else part for part in path.split("/"))
        return path if self.retain_case else "/".join(parts)

    def to_display_title(self, name: str, path: str) -> str:
        """The name set in the page; for a name derived from the file name, the name that Otterwiki shows."""
        last = path.rpartition("/")[2]
        if name != make_page_name(last):
            return name
        title = self.to_display_path(last)
        return title.replace("_", " ") if self.underscore_as_space else title

    def to_git_path(self, path: str) -> str:
        clean = "/".join(part for part in path.split("/") if part)
        return clean if self.retain_case else clean.lower()

    def to_link_path(self, path: str) -> str | None:
        return self.to_display_path(path)

    def to_url(self, url: str) -> str:
        path, mark, anchor = url.partition("#")
        # Documents are attachments of a page. A page may be about Node.js; only source code has lines as anchor.
        if is_document(path) and (not is_code(path) or anchor.startswith("L")):
            folder, _, name = path.rpartition("/")
            url = f"{folder}/a/{name}{mark}{anchor}"
        return self.root + url if url.startswith("/") else url

    def to_git_prefix(self, prefix: str) -> str:
        clean = prefix.lstrip("/")
        return clean if self.retain_case else clean.lower()


def get_request_paths() -> OtterwikiPaths:
    """The path style of the current request."""
    config = current_app.config
    return OtterwikiPaths(
        bool(config.get("RETAIN_PAGE_NAME_CASE", False)),
        request.script_root,
        bool(config.get("TREAT_UNDERSCORE_AS_SPACE_FOR_TITLES", False)),
    )
