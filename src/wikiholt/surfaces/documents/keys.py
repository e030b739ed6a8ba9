"""Keys as documents. The token is in one of them, and only when the key has just been made."""

from datetime import UTC, datetime

from typing_extensions import TypedDict

from wikiholt.model import Key, Wiki
from wikiholt.surfaces.documents.moments import format_date


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


def build_key_document(key: Key, wiki: Wiki | None) -> KeyDocument:
    return {
        "id": key.id,
        "wiki": wiki.slug if wiki else None,
        "scope": str(key.scope),
        "label": key.label,
        "created_at": format_date(key.created_at),
        "expires_at": format_date(key.expires_at),
        "expired": key.expires_at is not None and key.expires_at <= datetime.now(UTC),
    }


def build_new_key_document(key: Key, wiki: Wiki | None, token: str) -> NewKeyDocument:
    return {**build_key_document(key, wiki), "token": token}
