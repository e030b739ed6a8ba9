"""Keys: an operator manages all of them, an admin's key of one wiki that wiki's."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.errors import Forbidden
from wikiholt.model import Scope
from wikiholt.surfaces.documents import KeyDocument, NewKeyDocument, build_key_document, build_new_key_document
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.sending import LazyBody, StrictBody, read_body
from wikiholt.surfaces.http.visits import RequestContextDep

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
def create_key(context: RequestContextDep, raw_body: Annotated[LazyBody[NewKey], read_body(NewKey)], _: NoQuery) -> Response:
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
    context: RequestContextDep, key_id: Annotated[str, Path(max_length=200, description="The key's id, not its token.")], _: NoQuery
) -> Response:
    """Revoke a key; from now on it opens nothing."""
    ring = context.get_key_admin()
    key = ring.registry.keys.revoke(key_id, wiki_id=ring.wiki.id if ring.wiki else None)
    wiki = ring.wiki or next((wiki for wiki in ring.registry.list_wikis() if wiki.id == key.wiki_id), None)
    return make_json_response(build_key_document(key, wiki), headers=_NO_STORE)
