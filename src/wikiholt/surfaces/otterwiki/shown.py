"""What a search page shows before any script runs: the same document that the API gives, put into words and marks."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError

from wikiholt.errors import InvalidQuery, WikiholtError
from wikiholt.model import Scope, Snippet, Span, Surface
from wikiholt.surfaces.documents import AnswerDocument, HitDocument, answer_document
from wikiholt.surfaces.http.parameters import Asked
from wikiholt.surfaces.http.problems import told
from wikiholt.surfaces.otterwiki.host import Host
from wikiholt.surfaces.otterwiki.naming import names_here
from wikiholt.surfaces.web.plain import marked

_LOG = logging.getLogger(__name__)
_OURS = 500
_UNITS = (
    ("year", 31_536_000),
    ("month", 2_592_000),
    ("week", 604_800),
    ("day", 86_400),
    ("hour", 3600),
    ("minute", 60),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer, or what is wrong, or neither where nothing is asked for."""

    answer: AnswerDocument | None = None
    problem: str = ""
    hint: str = ""

    @property
    def first_weak(self) -> int:
        """The place of the hit before which it is said that what follows is less certain; 0 where none is."""
        hits = self.answer["results"] if self.answer else []
        return next((place for place, hit in enumerate(hits) if hit["confidence"] == "low"), 0)


def shown(host: Host, given: Mapping[str, Any]) -> Shown:
    """What is found for the parameters of an address; never raises what a reader can cause."""
    if not given.get("q", "").strip():
        return Shown()
    try:
        request = _asked(given).request()
        opened = replace(host.here().open(Scope.READ), names=names_here())
        with opened.answering() as handle:
            asked = replace(request, where=opened.narrowed(request.where))
            answer = handle.search(asked, surface=Surface.OTTERWIKI)
        return Shown(answer_document(answer, opened.names))
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says so and the wiki's own search is a click away
        return _failed(error)


def _failed(error: Exception) -> Shown:
    """What a reader is told: their own mistakes in full, and of ours only what that means for them."""
    if isinstance(error, InvalidQuery) or (isinstance(error, WikiholtError) and error.status >= _OURS):
        message, hint = told(error)
        return Shown(problem=message, hint=hint)
    known = isinstance(error, WikiholtError)
    _LOG.error("search is not possible: %s", error, exc_info=None if known else error)
    return Shown(
        problem="Search is not set up rightly in this wiki.", hint="Whoever runs it finds the reason in its log."
    )


def snippet(hit: HitDocument) -> Markup:
    """The snippet as HTML with its matches and the closest sentence marked."""
    matches = tuple(Span(start, end) for start, end in hit["matches"])
    found = Snippet(hit["snippet"], matches, Span(*hit["sentence"]) if hit["sentence"] else None)
    return Markup(marked(found))  # noqa: S704 - escaped there


def ago(moment: str) -> str:
    """How long ago a moment was, roughly."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    for unit, size in _UNITS:
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _asked(given: Mapping[str, Any]) -> Asked:
    try:
        return Asked.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the search"
        raise InvalidQuery(f"{where}: {fault['msg']}", hint="Change the address, or search anew.") from None
