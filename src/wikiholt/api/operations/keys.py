"""Keys: an operator key manages all of them; an admin key manages the keys of its wiki."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AwareDatetime, Field
from typing_extensions import TypedDict

from wikiholt.api.documents.admin_documents import (
    KeyDocument,
    NewKeyDocument,
    build_key_document,
    build_new_key_document,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import BodyParameters, Parameters
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.errors import Forbidden
from wikiholt.wikis.registry import Registry


@dataclass(frozen=True, slots=True)
class KeyAdmin:
    """The registry, and the only wiki whose keys the client may manage; None for all of them."""

    registry: Registry
    only: Wiki | None


class NewKey(BodyParameters):
    """A key to create. An operator names its wiki, or none to create an operator key."""

    wiki: str | None = Field(None, max_length=200)
    scope: Annotated[Scope, Field(strict=False)] | None = None
    label: str = Field("", max_length=200)
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = None


class KeyParameters(Parameters):
    """A key."""

    key_id: str = Field(max_length=200, description="The id of the key, not its token.")


class KeysDocument(TypedDict):
    """Keys, oldest first."""

    keys: list[KeyDocument]
    total: int


KEY_OPERATIONS = OperationTable("keys", caching=Caching.NEVER)


@KEY_OPERATIONS.add("GET /keys")
def list_keys(admin: KeyAdmin, _: Parameters) -> KeysDocument:
    """List keys, without their secrets."""
    keys = admin.registry.keys.list(admin.only.id if admin.only else None)
    wikis = {wiki.id: wiki for wiki in ([admin.only] if admin.only else admin.registry.list_wikis())}
    documents = [build_key_document(key, wikis.get(key.wiki_id or "")) for key in keys]
    return {"keys": documents, "total": len(documents)}


@KEY_OPERATIONS.add("POST /keys", errors=(404, 413), status=201)
def create_key(admin: KeyAdmin, parameters: NewKey) -> NewKeyDocument:
    """Create a key; only this response contains its token."""
    only, slug = admin.only, parameters.wiki
    if only is not None and slug not in (None, only.slug):
        raise Forbidden("This key cannot create keys of another wiki.", hint="Name the wiki of the key, or none.")
    wiki = only or (admin.registry.get(slug) if slug is not None else None)
    scope = parameters.scope or (Scope.READ if wiki else Scope.ADMIN)
    wiki_id = wiki.id if wiki else None
    key, token = admin.registry.keys.create(wiki_id, scope, parameters.label, parameters.expires_at)
    return build_new_key_document(key, wiki, token)


@KEY_OPERATIONS.add("DELETE /keys/{key_id}", errors=(404,))
def revoke_key(admin: KeyAdmin, parameters: KeyParameters) -> KeyDocument:
    """Revoke a key immediately and permanently."""
    only = admin.only
    key = admin.registry.keys.revoke(parameters.key_id, wiki_id=only.id if only else None)
    wiki = only or next((wiki for wiki in admin.registry.list_wikis() if wiki.id == key.wiki_id), None)
    return build_key_document(key, wiki)
