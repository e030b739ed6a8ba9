"""What a search page shows before any script runs: the same document that the API gives, put into words and marks."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError

from wikiholt.errors import InvalidQuery, WikiholtError
from wikiholt.model import Scope, Snippet, Span, SearchInterface
from wikiholt.surfaces.documents import SearchResultDocument, HitDocument, build_result_document
from wikiholt.surfaces.http.parameters import SearchParams
from wikiholt.surfaces.http.problems import get_public_message
from wikiholt.surfaces.otterwiki.host import PluginRuntime
from wikiholt.surfaces.otterwiki.naming import get_request_paths
from wikiholt.surfaces.web.plain import render_snippet

_log = logging.getLogger(__name__)
_SERVER_ERROR_STATUS = 500
_TIME_UNITS_S = (
    ("year", 31_536_000),
    ("month", 2_592_000),
    ("week", 604_800),
    ("day", 86_400),
    ("hour", 3600),
    ("minute", 60),
)


@dataclass(frozen=True, slots=True)
class SearchPageContent:
    """An answer, or what is wrong, or neither where nothing is asked for."""

    answer: SearchResultDocument | None = None
    problem: str = ""
    hint: str = ""

    @property
    def first_weak(self) -> int:
        """The place of the hit before which it is said that what follows is less certain; 0 where none is."""
        hits = self.answer["results"] if self.answer else []
        return next((place for place, hit in enumerate(hits) if hit["confidence"] == "low"), 0)


def build_search_content(runtime: PluginRuntime, params: Mapping[str, Any]) -> SearchPageContent:
    """What is found for the parameters of an address; never raises what a reader can cause."""
    if not params.get("q", "").strip():
        return SearchPageContent()
    try:
        request = _parse_params(params).to_request()
        opened = replace(runtime.get_current_wiki().open_session(Scope.READ), path_style=get_request_paths())
        with opened.use_handle() as handle:
            asked = replace(request, where=opened.to_git_filter(request.where))
            answer = handle.search(asked, interface=SearchInterface.OTTERWIKI)
        return SearchPageContent(build_result_document(answer, opened.path_style))
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says so and the wiki's own search is a click away
        return _build_error_content(error)


def _build_error_content(error: Exception) -> SearchPageContent:
    """What a reader is told: their own mistakes in full, and of ours only what that means for them."""
    if isinstance(error, InvalidQuery) or (isinstance(error, WikiholtError) and error.status >= _SERVER_ERROR_STATUS):
        message, hint = get_public_message(error)
        return SearchPageContent(problem=message, hint=hint)
    known = isinstance(error, WikiholtError)
    _log.error("search is not possible: %s", error, exc_info=None if known else error)
    return SearchPageContent(
        problem="Search is not set up rightly in this wiki.", hint="Whoever runs it finds the reason in its log."
    )


def render_hit_snippet(hit: HitDocument) -> Markup:
    """The snippet as HTML with its matches and the closest sentence marked."""
    matches = tuple(Span(start, end) for start, end in hit["matches"])
    found = Snippet(hit["snippet"], matches, Span(*hit["sentence"]) if hit["sentence"] else None)
    return Markup(render_snippet(found))  # noqa: S704 - escaped there


def format_age(date: str) -> str:
    """How long ago a moment was, roughly."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds()
    for unit, size in _TIME_UNITS_S:
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _parse_params(params: Mapping[str, Any]) -> SearchParams:
    try:
        return SearchParams.model_validate(dict(params))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the search"
        raise InvalidQuery(f"{where}: {fault['msg']}", hint="Change the address, or search anew.") from None
