"""Keys as documents. The token is in one of them, and only when the key has just been made."""

from datetime import UTC, datetime

from typing_extensions import TypedDict

from wikiholt.model import Key, Wiki
from wikiholt.surfaces.documents.moments import moment


class KeyDocument(TypedDict):
    """A key without its secret; `wiki` is null for an operator's."""

    id: str
    wiki: str | None
    scope: str
    label: str
    created_at: str
    expires_at: str | None
    expired: bool


class NewKeyDocument(KeyDocument):
    """A key that has just been made, with its token, which is never shown again."""

    token: str


def key_document(key: Key, wiki: Wiki | None) -> KeyDocument:
    return {
        "id": key.id,
        "wiki": wiki.slug if wiki else None,
        "scope": str(key.scope),
        "label": key.label,
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "expired": key.expires_at is not None and key.expires_at <= datetime.now(UTC),
    }


def new_key_document(key: Key, wiki: Wiki | None, token: str) -> NewKeyDocument:
    return {**key_document(key, wiki), "token": token}
