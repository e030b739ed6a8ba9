"""Keys: an operator manages all of them, an admin's key of one wiki that wiki's."""

import re
from typing import Annotated, NotRequired

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.app.settings.definitions import WikiSettings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Forbidden, InvalidSource, SourceError
from wikiholt.interfaces.http.problem_details import describe_error_responses
from wikiholt.interfaces.http.query_params import Count, NoParams, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import make_json_response
from wikiholt.interfaces.http.write_request import LazyBody, StrictBody, read_body
from wikiholt.interfaces.schemas.admin_schemas import (
    KeyDocument,
    NewKeyDocument,
    WikiDocument,
    build_key_document,
    build_new_key_document,
    build_wiki_document,
)

router = APIRouter(prefix="/api/v1", tags=["keys"])

NoQuery = Annotated[NoParams, parse_query(NoParams)]
_NO_STORE = {"Cache-Control": "no-store"}


class NewKey(StrictBody):
    """A key to make; an operator names the wiki it shall open, or none for another operator's key."""

    wiki: str | None = Field(None, max_length=200)
    scope: Annotated[Scope, Field(strict=False)] | None = None
    label: str = Field("", max_length=200)
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = None


class KeysDocument(TypedDict):
    """Keys, oldest first."""

    keys: list[KeyDocument]
    total: int


@router.get("/keys", response_model=KeysDocument, responses=describe_error_responses())
def list_keys(context: RequestContextDep, _: NoQuery) -> Response:
    """List keys, without their secrets."""
    ring = context.get_key_admin()
    found = ring.registry.keys.list(ring.wiki.id if ring.wiki else None)
    wikis = {wiki.id: wiki for wiki in ([ring.wiki] if ring.wiki else ring.registry.list_wikis())}
    shown = [build_key_document(key, wikis.get(key.wiki_id or "")) for key in found]
    return make_json_response({"keys": shown, "total": len(shown)}, headers=_NO_STORE)


@router.post("/keys", status_code=201, response_model=NewKeyDocument, responses=describe_error_responses(404, 413))
def create_key(
    context: RequestContextDep, raw_body: Annotated[LazyBody[NewKey], read_body(NewKey)], _: NoQuery
) -> Response:
    """Make a key; its token is in this answer and nowhere else."""
    ring, body = context.get_key_admin(), raw_body.read()
    if ring.wiki is not None and body.wiki not in (None, ring.wiki.slug):
        raise Forbidden("This is about another wiki.", hint="A key opens one wiki; name that one, or none.")
    wiki = ring.wiki or (ring.registry.get(body.wiki) if body.wiki is not None else None)
    scope = body.scope or (Scope.READ if wiki else Scope.ADMIN)
    key, token = ring.registry.keys.create(wiki.id if wiki else None, scope, body.label, body.expires_at)
    return make_json_response(build_new_key_document(key, wiki, token), 201, _NO_STORE)


@router.delete("/keys/{key_id}", response_model=KeyDocument, responses=describe_error_responses(404))
def revoke_key(
    context: RequestContextDep,
    key_id: Annotated[str, Path(max_length=200, description="The key's id, not its token.")],
    _: NoQuery,
) -> Response:
    """Revoke a key; from now on it opens nothing."""
    ring = context.get_key_admin()
    key = ring.registry.keys.revoke(key_id, wiki_id=ring.wiki.id if ring.wiki else None)
    wiki = ring.wiki or next((wiki for wiki in ring.registry.list_wikis() if wiki.id == key.wiki_id), None)
    return make_json_response(build_key_document(key, wiki), headers=_NO_STORE)


# The wikis of the farm: what a visitor may see of them, and what its operator does with them.


wikis_router = APIRouter(prefix="/api/v1", tags=["wikis"])

SlugPath = Annotated[str, Path(max_length=200, description="The wiki's slug.")]
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
