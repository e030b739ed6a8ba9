"""The wikis of the farm: what a visitor may see of them, and what its operator does with them."""

import re
from typing import Annotated, NotRequired

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.errors import InvalidSource, SourceError
from wikiholt.settings import WikiSettings
from wikiholt.surfaces.documents import WikiDocument, build_wiki_document
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import Count, NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.sending import LazyBody, StrictBody, read_body
from wikiholt.surfaces.http.visits import RequestContextDep

wikis_router = APIRouter(prefix="/api/v1", tags=["wikis"])

SlugPath = Annotated[str, Path(max_length=200, description="The wiki's slug.")]
NoQuery = Annotated[NoParams, parse_query(NoParams)]
_SettingText = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]
_SettingTexts = Annotated[dict[str, _SettingText], Field(max_length=50)]


class WikiListParams(NoParams):
    """Some of the wikis, by slug."""

    limit: Count = Field(1000, ge=1, le=10_000, description="How many at most.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class NewWiki(StrictBody):
    """A wiki to register: the path or URL of its repository, and settings of its own."""

    slug: str = Field(max_length=200)
    source: str = Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")
    settings: _SettingTexts = Field(default_factory=dict)


class WikiChanges(StrictBody):
    """Settings to change; an empty text unsets one, those not named stay."""

    settings: _SettingTexts


RawNewWiki = Annotated[LazyBody[NewWiki], read_body(NewWiki)]
RawWikiChanges = Annotated[LazyBody[WikiChanges], read_body(WikiChanges)]


class VisibleWikiDocument(TypedDict):
    """A wiki as a visitor sees it; source and settings are the operator's to see."""

    slug: str
    created_at: NotRequired[str]
    source: NotRequired[str]
    settings: NotRequired[dict[str, str]]


class WikisDocument(TypedDict):
    """The wikis a visitor may see; `total` is how many there are."""

    wikis: list[VisibleWikiDocument]
    total: int


class RemovedWikiDocument(TypedDict):
    """What was removed with a wiki: files of its index, ids of its keys, host names."""

    wiki: str
    removed: list[str]
    keys: list[str]
    hosts: list[str]


@wikis_router.get("/wikis", response_model=WikisDocument, responses=describe_error_responses())
def list_wikis(context: RequestContextDep, params: Annotated[WikiListParams, parse_query(WikiListParams)]) -> Response:
    """List the wikis this visitor may see."""
    found, operator = context.list_visible_wikis()
    some = found[params.offset : params.offset + params.limit]
    shown = [build_wiki_document(wiki) if operator else {"slug": wiki.slug} for wiki in some]
    return make_json_response({"wikis": shown, "total": len(found)})


@wikis_router.post("/wikis", status_code=201, response_model=WikiDocument, responses=describe_error_responses(409, 413))
def add_wiki(request: Request, context: RequestContextDep, raw_body: RawNewWiki, _: NoQuery) -> Response:
    """Register a wiki, for the operator; its repository is tried first."""
    farm, body = context.require_operator(), raw_body.read()
    WikiSettings.parse(body.settings)
    try:
        wiki = farm.service.add(body.slug, _check_source(body.source), body.settings)
    except SourceError as error:
        # The operator named it: that it cannot be used is theirs to read, in full.
        raise InvalidSource(error.message, hint=error.hint) from error
    farm.scheduler.touch(wiki.id)
    location = f"{request.scope.get('root_path', '')}/api/v1/wikis/{wiki.slug}"
    return make_json_response(build_wiki_document(wiki), 201, {"Location": location})


@wikis_router.get("/wikis/{slug}", response_model=WikiDocument, responses=describe_error_responses(404))
def read_wiki(context: RequestContextDep, slug: SlugPath, _: NoQuery) -> Response:
    """Show a wiki's source and settings, for the operator; secrets are not shown."""
    return make_json_response(build_wiki_document(context.require_operator().service.registry.get(slug)))


@wikis_router.patch("/wikis/{slug}", response_model=WikiDocument, responses=describe_error_responses(404, 409, 413))
def change_wiki(context: RequestContextDep, slug: SlugPath, raw_body: RawWikiChanges, _: NoQuery) -> Response:
    """Change settings of a wiki, for the operator."""
    farm, body = context.require_operator(), raw_body.read()
    WikiSettings.parse(body.settings)
    wiki = farm.service.configure(slug, body.settings)
    farm.scheduler.notify_changed(wiki.id)
    return make_json_response(build_wiki_document(wiki))


@wikis_router.delete("/wikis/{slug}", response_model=RemovedWikiDocument, responses=describe_error_responses(404, 409))
def remove_wiki(context: RequestContextDep, slug: SlugPath, _: NoQuery) -> Response:
    """Remove a wiki's index, keys and registration, for the operator; its repository is never touched."""
    gone = context.require_operator().service.remove(slug)
    document = {
        "wiki": gone.wiki.slug,
        "removed": list(gone.files),
        "keys": [key.id for key in gone.keys],
        "hosts": list(gone.hosts),
    }
    return make_json_response(document)


def _check_source(source: str) -> str:
    """The source; a path that begins nowhere would mean whatever directory the service happens to run in."""
    if source.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s]+:", source):
        return source
    raise InvalidSource("The source is no absolute path and no URL.", hint="Write the path from / on.")
