"""Wikis that requests are about are registered when they are first seen."""

import logging
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from wikiholt.errors import WikiExists, WikiholtError, WikiNotFound
from wikiholt.model import Wiki
from wikiholt.registry.slugs import propose_slug
from wikiholt.service import WikiService
from wikiholt.surfaces.otterwiki.resolving import WikiLocation

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
