"""Wikis that requests are about are registered when they are first seen."""

import logging
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from wikiholt.errors import WikiExists, WikiholtError, WikiNotFound
from wikiholt.model import Wiki
from wikiholt.registry.slugs import propose_slug
from wikiholt.service import Service
from wikiholt.surfaces.otterwiki.resolving import Place

_LOG = logging.getLogger(__name__)

_SETTINGS = {"anchors": "otterwiki", "url": "/{path}"}
_GENERAL = ("repository", "repo", "wiki", "data", "pages")
"""Names of directories that say nothing about the wiki in them."""


class Enrolment:
    """The wikis of one service by their repositories; safe to use from many threads."""

    def __init__(self, service: Service, hide: str | None) -> None:
        """`hide` are the patterns of pages that no search shall find, or None to leave them as they are."""
        self._service = service
        self._hide = hide
        self._ids: dict[str, str] = {}

    def knows(self, place: Place) -> bool:
        return place.path in self._ids

    def wiki(self, place: Place) -> Wiki:
        """The wiki whose repository lies there, registered if it is not; raises WikiholtError."""
        known = self._ids.get(place.path)
        if known is not None:
            with suppress(WikiNotFound):  # it was removed: who uses it has it registered again
                wiki = self._service.registry.by_id(known)
                if not self._service.discard_replaced(wiki):
                    return wiki
        wiki = self._hiding(self._found(place))
        self._ids[place.path] = wiki.id
        return wiki

    def _found(self, place: Place) -> Wiki:
        for slug in _slugs(place):
            wiki = self._named(slug, place)
            if wiki.source == place.path and self._service.discard_replaced(wiki):
                wiki = self._named(slug, place)  # the same path and slug, but a new wiki
            if wiki.source == place.path:
                return wiki
        raise WikiExists(
            "The name that this wiki is to have belongs to another repository.",
            hint="Have the resolver give it another slug, or remove the other one with `wikiholt remove`.",
        )

    def _named(self, slug: str, place: Place) -> Wiki:
        with suppress(WikiNotFound):
            return self._service.registry.get(slug)
        try:
            added = self._service.add(slug, place.path, _SETTINGS)
        except WikiExists:  # another worker was faster
            return self._service.registry.get(slug)
        _LOG.info("the wiki %s is taken up", slug)
        return added

    def _hiding(self, wiki: Wiki) -> Wiki:
        if self._hide is None or wiki.settings.get("hide", "") == self._hide:
            return wiki
        try:
            return self._service.configure(wiki.slug, {"hide": self._hide})
        except WikiholtError as error:
            _LOG.error("pages are not hidden as WIKIHOLT_OTTERWIKI_HIDE says: %s (%s)", error.message, error.hint)
            return wiki


def _slugs(place: Place) -> list[str]:
    """What the wiki may be called, the best first."""
    if place.slug:
        return [place.slug]
    path = Path(place.path)
    telling = (name for name in reversed(path.parts[1:]) if name.lower() not in _GENERAL)
    name = next(telling, path.name)
    return [propose_slug(name), propose_slug(f"{name[:50]}-{sha256(place.path.encode()).hexdigest()[:8]}")]
