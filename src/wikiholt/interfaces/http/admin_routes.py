"""Routes that manage keys and wikis.

An operator key manages all of them; an admin key manages the keys of its wiki.
"""

import re
from typing import Annotated, NotRequired

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.api.documents.admin_documents import (
    KeyDocument,
    NewKeyDocument,
    RemovedWikiDocument,
    SettingDocument,
    WikiDocument,
    build_key_document,
    build_new_key_document,
    build_removed_document,
    build_setting_document,
    build_wiki_document,
)
from wikiholt.api.operations.parameters import Count, Flag, Parameters
from wikiholt.api.settings.definitions import WIKI_SETTINGS, WikiSettings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Conflict, Forbidden, InvalidSource, SourceError
from wikiholt.interfaces.http.problem_details import describe_route
from wikiholt.interfaces.http.query_params import NoQuery, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import NO_STORE, make_json_response
from wikiholt.interfaces.http.write_request import LazyBody, StrictBody, read_body

router = APIRouter(prefix="/api/v1", tags=["keys"])


class NewKey(StrictBody):
    """A key to create. An operator names its wiki, or none to create an operator key."""

    wiki: str | None = Field(None, max_length=200)
    scope: Annotated[Scope, Field(strict=False)] | None = None
    label: str = Field("", max_length=200)
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = None


class KeysDocument(TypedDict):
    """Keys, oldest first."""

    keys: list[KeyDocument]
    total: int


@router.get("/keys", **describe_route(KeysDocument))
def list_keys(context: RequestContextDep, _: NoQuery) -> Response:
    """List keys, without their secrets."""
    registry, only = context.authorize_key_admin()
    keys = registry.keys.list(only.id if only else None)
    wikis = {wiki.id: wiki for wiki in ([only] if only else registry.list_wikis())}
    documents = [build_key_document(key, wikis.get(key.wiki_id or "")) for key in keys]
    return make_json_response({"keys": documents, "total": len(documents)}, headers=NO_STORE)


@router.post("/keys", status_code=201, **describe_route(NewKeyDocument, 404, 413))
def create_key(
    context: RequestContextDep, raw_body: Annotated[LazyBody[NewKey], read_body(NewKey)], _: NoQuery
) -> Response:
    """Create a key; only this response contains its token."""
    (registry, only), body = context.authorize_key_admin(), raw_body.read()
    if only is not None and body.wiki not in (None, only.slug):
        raise Forbidden("This key cannot create keys of another wiki.", hint="Name the wiki of the key, or none.")
    wiki = only or (registry.get(body.wiki) if body.wiki is not None else None)
    scope = body.scope or (Scope.READ if wiki else Scope.ADMIN)
    key, token = registry.keys.create(wiki.id if wiki else None, scope, body.label, body.expires_at)
    return make_json_response(build_new_key_document(key, wiki, token), 201, NO_STORE)


@router.delete("/keys/{key_id}", **describe_route(KeyDocument, 404))
def revoke_key(
    context: RequestContextDep,
    key_id: Annotated[str, Path(max_length=200, description="The id of the key, not its token.")],
    _: NoQuery,
) -> Response:
    """Revoke a key immediately and permanently."""
    registry, only = context.authorize_key_admin()
    key = registry.keys.revoke(key_id, wiki_id=only.id if only else None)
    wiki = only or next((wiki for wiki in registry.list_wikis() if wiki.id == key.wiki_id), None)
    return make_json_response(build_key_document(key, wiki), headers=NO_STORE)


# Wikis: clients list those that they may see, the operator manages all


wikis_router = APIRouter(prefix="/api/v1", tags=["wikis"])

SlugPath = Annotated[str, Path(max_length=200, description="The slug of the wiki.")]
_SettingText = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]
_SettingTexts = Annotated[dict[str, _SettingText], Field(max_length=50)]


class WikiListParams(Parameters):
    """Paging of the list of wikis, which is sorted by slug."""

    limit: Count = Field(1000, ge=1, le=10_000, description="Maximum number of entries.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class RemoveParams(Parameters):
    """Confirms the loss of pages."""

    delete_pages: Flag = Field(False, description="Also delete the pages of a wiki that has no other source.")


class NewWiki(StrictBody):
    """A wiki to register: the path or URL of its repository, and its settings.

    Without a source, Wikiholt creates and keeps an empty repository.
    """

    slug: str = Field(max_length=200)
    source: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")] | None = None
    settings: _SettingTexts = Field(default_factory=dict)


class WikiChanges(StrictBody):
    """Settings to change; an empty text removes a setting, others stay unchanged."""

    settings: _SettingTexts


RawNewWiki = Annotated[LazyBody[NewWiki], read_body(NewWiki)]
RawWikiChanges = Annotated[LazyBody[WikiChanges], read_body(WikiChanges)]


class VisibleWikiDocument(TypedDict):
    """A wiki; only the operator sees the source and the settings."""

    slug: str
    created_at: NotRequired[str]
    source: NotRequired[str]
    settings: NotRequired[dict[str, str]]


class WikisDocument(TypedDict):
    """The wikis that the client may see; `total` is their number on all pages."""

    wikis: list[VisibleWikiDocument]
    total: int


class SettingsDocument(TypedDict):
    """The settings that a wiki can have."""

    settings: list[SettingDocument]


@wikis_router.get("/settings", **describe_route(SettingsDocument))
def list_settings(context: RequestContextDep, _: NoQuery) -> Response:
    """List the settings that a wiki can have, with their defaults; requires an operator key."""
    context.require_operator()
    return make_json_response({"settings": [build_setting_document(setting) for setting in WIKI_SETTINGS.values()]})


@wikis_router.get("/wikis", **describe_route(WikisDocument))
def list_wikis(context: RequestContextDep, params: Annotated[WikiListParams, parse_query(WikiListParams)]) -> Response:
    """List the wikis that the client may see."""
    wikis, is_operator = context.list_visible_wikis()
    documents = [
        build_wiki_document(wiki) if is_operator else {"slug": wiki.slug}
        for wiki in wikis[params.offset : params.offset + params.limit]
    ]
    return make_json_response({"wikis": documents, "total": len(wikis)})


@wikis_router.post("/wikis", status_code=201, **describe_route(WikiDocument, 409, 413))
def add_wiki(request: Request, context: RequestContextDep, raw_body: RawNewWiki, _: NoQuery) -> Response:
    """Register a wiki after checking its repository, or create one without a source; requires an operator key."""
    application, body = context.require_operator(), raw_body.read()
    WikiSettings.parse(body.settings)
    try:
        if body.source is None:
            wiki = application.service.create(body.slug, body.settings)
        else:
            wiki = application.service.add(body.slug, _check_source(body.source), body.settings)
    except SourceError as error:
        # The operator may see the full reason, which can contain paths.
        raise InvalidSource(error.message, hint=error.hint) from error
    application.scheduler.touch(wiki.id)
    location = f"{request.scope.get('root_path', '')}/api/v1/wikis/{wiki.slug}"
    return make_json_response(build_wiki_document(wiki), 201, {"Location": location})


@wikis_router.get("/wikis/{slug}", **describe_route(WikiDocument, 404))
def read_wiki(context: RequestContextDep, slug: SlugPath, _: NoQuery) -> Response:
    """Show the source and settings of a wiki without secrets; requires an operator key."""
    return make_json_response(build_wiki_document(context.require_operator().service.registry.get(slug)))


@wikis_router.patch(
    "/wikis/{slug}", operation_id="change_wiki_api_v1_wikis__slug__patch", **describe_route(WikiDocument, 404, 409, 413)
)
def update_wiki(context: RequestContextDep, slug: SlugPath, raw_body: RawWikiChanges, _: NoQuery) -> Response:
    """Change settings of a wiki; requires an operator key."""
    application, body = context.require_operator(), raw_body.read()
    WikiSettings.parse(body.settings)
    wiki = application.service.configure(slug, body.settings)
    application.scheduler.notify_changed(wiki.id)
    return make_json_response(build_wiki_document(wiki))


@wikis_router.delete("/wikis/{slug}", **describe_route(RemovedWikiDocument, 404, 409))
def remove_wiki(
    context: RequestContextDep, slug: SlugPath, params: Annotated[RemoveParams, parse_query(RemoveParams)]
) -> Response:
    """Remove the index, keys and registration of a wiki; requires an operator key.

    Its repository stays, unless it was created without a source: then `delete_pages` must be set.
    """
    service = context.require_operator().service
    wiki = service.registry.get(slug)
    if wiki.is_managed and not params.delete_pages:
        raise Conflict("This would delete the only copy of the pages.", hint="Send delete_pages=true to delete them.")
    removed = service.remove(slug, wiki.id)
    return make_json_response(build_removed_document(removed))


def _check_source(source: str) -> str:
    """Refuse a relative path, which would depend on the working directory of the service."""
    if source.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s]+:", source):
        return source
    raise InvalidSource("The source is neither an absolute path nor a URL.", hint="Write a path that starts with /.")
