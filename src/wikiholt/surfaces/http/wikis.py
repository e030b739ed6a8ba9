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
from wikiholt.surfaces.documents import WikiDocument, wiki_document
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.parameters import Count, Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.sending import Sent, Strict, sent
from wikiholt.surfaces.http.visits import Who

router = APIRouter(prefix="/api/v1", tags=["wikis"])

Slug = Annotated[str, Path(max_length=200, description="The wiki's slug.")]
NoQuery = Annotated[Nothing, taken(Nothing)]
_Setting = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]
_Settings = Annotated[dict[str, _Setting], Field(max_length=50)]


class SomeWikis(Nothing):
    """Some of the wikis, by slug."""

    limit: Count = Field(1000, ge=1, le=10_000, description="How many at most.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class NewWiki(Strict):
    """A wiki to register: the path or URL of its repository, and settings of its own."""

    slug: str = Field(max_length=200)
    source: str = Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")
    settings: _Settings = Field(default_factory=dict)


class ChangedWiki(Strict):
    """Settings to change; an empty text unsets one, those not named stay."""

    settings: _Settings


NewWikiBody = Annotated[Sent[NewWiki], sent(NewWiki)]
ChangedWikiBody = Annotated[Sent[ChangedWiki], sent(ChangedWiki)]


class SeenWikiDocument(TypedDict):
    """A wiki as a visitor sees it; source and settings are the operator's to see."""

    slug: str
    created_at: NotRequired[str]
    source: NotRequired[str]
    settings: NotRequired[dict[str, str]]


class WikisDocument(TypedDict):
    """The wikis a visitor may see; `total` is how many there are."""

    wikis: list[SeenWikiDocument]
    total: int


class RemovedDocument(TypedDict):
    """What was removed with a wiki: files of its index, ids of its keys, host names."""

    wiki: str
    removed: list[str]
    keys: list[str]
    hosts: list[str]


@router.get("/wikis", response_model=WikisDocument, responses=declared())
def list_wikis(who: Who, asked: Annotated[SomeWikis, taken(SomeWikis)]) -> Response:
    """List the wikis this visitor may see."""
    found, operator = who.visible()
    some = found[asked.offset : asked.offset + asked.limit]
    shown = [wiki_document(wiki) if operator else {"slug": wiki.slug} for wiki in some]
    return json_response({"wikis": shown, "total": len(found)})


@router.post("/wikis", status_code=201, response_model=WikiDocument, responses=declared(409, 413))
def add_wiki(request: Request, who: Who, sent_body: NewWikiBody, _: NoQuery) -> Response:
    """Register a wiki, for the operator; its repository is tried first."""
    farm, body = who.farm(), sent_body.read()
    WikiSettings.parse(body.settings)
    try:
        wiki = farm.service.add(body.slug, _located(body.source), body.settings)
    except SourceError as error:
        # The operator named it: that it cannot be used is theirs to read, in full.
        raise InvalidSource(error.message, hint=error.hint) from error
    farm.keeper.asked(wiki.id)
    location = f"{request.scope.get('root_path', '')}/api/v1/wikis/{wiki.slug}"
    return json_response(wiki_document(wiki), 201, {"Location": location})


@router.get("/wikis/{slug}", response_model=WikiDocument, responses=declared(404))
def read_wiki(who: Who, slug: Slug, _: NoQuery) -> Response:
    """Show a wiki's source and settings, for the operator; secrets are not shown."""
    return json_response(wiki_document(who.farm().service.registry.get(slug)))


@router.patch("/wikis/{slug}", response_model=WikiDocument, responses=declared(404, 409, 413))
def change_wiki(who: Who, slug: Slug, sent_body: ChangedWikiBody, _: NoQuery) -> Response:
    """Change settings of a wiki, for the operator."""
    farm, body = who.farm(), sent_body.read()
    WikiSettings.parse(body.settings)
    wiki = farm.service.configure(slug, body.settings)
    farm.keeper.wake(wiki.id)
    return json_response(wiki_document(wiki))


@router.delete("/wikis/{slug}", response_model=RemovedDocument, responses=declared(404, 409))
def remove_wiki(who: Who, slug: Slug, _: NoQuery) -> Response:
    """Remove a wiki's index, keys and registration, for the operator; its repository is never touched."""
    gone = who.farm().service.remove(slug)
    document = {
        "wiki": gone.wiki.slug,
        "removed": list(gone.files),
        "keys": [key.id for key in gone.keys],
        "hosts": list(gone.hosts),
    }
    return json_response(document)


def _located(source: str) -> str:
    """The source; a path that begins nowhere would mean whatever directory the service happens to run in."""
    if source.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s]+:", source):
        return source
    raise InvalidSource("The source is no absolute path and no URL.", hint="Write the path from / on.")
