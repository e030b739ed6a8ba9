"""API keys. The registry stores a digest; the token itself is shown only once."""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from wikiholt.domain.wiki import Key, Scope
from wikiholt.errors import IndexCorrupt, InvalidSetting, KeyNotFound, WikiNotFound
from wikiholt.wikis.registry_schema import (
    KEYED_MARK,
    RESTORE_HINT,
    TABLE_COLUMNS,
    RegistryConnection,
    RegistryDatabase,
    get_value,
    has_mark,
)

MAX_LABEL_CHARS = 200
_ID_CHARS, _SECRET_CHARS = 12, 40
"""60 random bits identify a key, 200 keep it secret: neither can be guessed."""
_TOKEN_PATTERN = re.compile(rf"wh_([a-z2-7]{{{_ID_CHARS}}})_[a-z2-7]{{{_SECRET_CHARS}}}")
_KEY_COLUMNS = ", ".join(TABLE_COLUMNS["keys"])
_EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


class KeyStore:
    """All keys of a registry. Changes by other processes take effect immediately."""

    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def create(
        self, wiki_id: str | None, scope: Scope, label: str = "", expires_at: datetime | None = None
    ) -> tuple[Key, str]:
        """Create a key of one wiki, or with None an operator's key. Returns it with its token, which is not stored."""
        now = datetime.now(UTC)
        _validate_key(wiki_id, scope, label, expires_at, now)
        key = Key(_make_random_text(_ID_CHARS), wiki_id, scope, label, now, expires_at)
        token = f"wh_{key.id}_{_make_random_text(_SECRET_CHARS)}"
        with self._database.write_transaction() as transaction:
            if wiki_id is not None and not _has_row(transaction.connection, "wikis", wiki_id):
                raise WikiNotFound("The wiki no longer exists.", hint="`wikiholt list` shows all wikis.")
            transaction.insert("keys", (*_to_columns(key), _hash_token(token)))
            if not has_mark(transaction.connection, KEYED_MARK):
                transaction.insert("marks", (KEYED_MARK, now.isoformat()))
        return key, token

    def list(self, wiki_id: str | None = None) -> list[Key]:
        """The keys of one wiki, or with None all keys, oldest first."""
        where, values = ("", ()) if wiki_id is None else ("WHERE wiki_id = ?", (wiki_id,))
        with self._database.read_connection() as connection:
            if connection is None:
                return []
            query = f"SELECT {_KEY_COLUMNS} FROM keys {where} ORDER BY created_at, id"  # noqa: S608
            return [parse_key(row) for row in connection.execute(query, values)]

    def revoke(self, key_id: str, *, wiki_id: str | None = None) -> Key:
        """Revoke a key; with `wiki_id`, only if it is that wiki's. Raises KeyNotFound."""
        with self._database.write_transaction() as transaction:
            key, _ = _find_key(transaction.connection, key_id) or (None, "")
            if key is None or wiki_id not in (None, key.wiki_id):
                shown = key_id if len(key_id) <= 2 * _ID_CHARS else key_id[: 2 * _ID_CHARS] + "…"
                raise KeyNotFound(f"There is no key {shown!r}.", hint="`wikiholt key list` shows all keys.")
            transaction.delete("keys", "id", key_id)
        return key

    def find_by_token(self, token: str) -> Key | None:
        """The key of this token; None if it is unknown, revoked or expired."""
        match = _TOKEN_PATTERN.fullmatch(token)
        if match is None:
            return None
        with self._database.read_connection() as connection:
            found = _find_key(connection, match[1]) if connection else None
        # An unknown key is compared too, so that the response time reveals nothing.
        key, digest = found or (None, _EMPTY_DIGEST)
        if not hmac.compare_digest(_hash_token(token), digest) or key is None:
            return None
        return None if key.is_expired() else key

    def find_valid(self, key_id: str) -> Key | None:
        """The key of this id; None if it is unknown, revoked or expired. The caller has authenticated the client."""
        with self._database.read_connection() as connection:
            key, _ = (_find_key(connection, key_id) if connection else None) or (None, "")
        return None if key is None or key.is_expired() else key

    def has_any(self) -> bool:
        """Whether there is any key, including expired ones."""
        with self._database.read_connection() as connection:
            return bool(connection and connection.execute("SELECT 1 FROM keys LIMIT 1").fetchone())

    def has_ever_had_any(self) -> bool:
        """Whether a key was ever created. Revoking the last one, or removing its wiki, must not open other wikis."""
        with self._database.read_connection() as connection:
            return bool(connection and has_mark(connection, KEYED_MARK))


def _validate_key(wiki_id: str | None, scope: Scope, label: str, expires_at: datetime | None, now: datetime) -> None:
    if wiki_id is None and scope is not Scope.ADMIN:
        raise InvalidSetting(
            f"An operator's key cannot be limited to {scope}.", hint="Omit the scope, or create a key of one wiki."
        )
    if len(label) > MAX_LABEL_CHARS or not label.isprintable():
        raise InvalidSetting(
            "The key's label is not valid.", hint=f"Use up to {MAX_LABEL_CHARS} printable characters on one line."
        )
    if expires_at is not None and not _is_future(expires_at, now):
        raise InvalidSetting("The expiry time is past or has no time zone.", hint="Use a time in the future.")


def _is_future(when: datetime, now: datetime) -> bool:
    try:
        return when.tzinfo is not None and when.astimezone(UTC) > now
    except OverflowError:  # the last day of the calendar in a western time zone
        return False


def _make_random_text(count: int) -> str:
    return base64.b32encode(secrets.token_bytes(count)).decode().lower()[:count]


def _hash_token(token: str) -> str:
    # The secret is long and random: a slow hash would add only time.
    return hashlib.sha256(token.encode()).hexdigest()


def _has_row(connection: RegistryConnection, table: str, row_id: str) -> bool:
    return connection.execute(f"SELECT 1 FROM {table} WHERE id = ?", (row_id,)).fetchone() is not None  # noqa: S608


def _find_key(connection: RegistryConnection, key_id: str) -> tuple[Key, str] | None:
    if not key_id.isascii() or "\0" in key_id:
        return None
    row = connection.execute(f"SELECT {_KEY_COLUMNS} FROM keys WHERE id = ?", (key_id,)).fetchone()  # noqa: S608
    return (parse_key(row), str(get_value("keys", row, "digest"))) if row else None


def _to_columns(key: Key) -> tuple[str | None, ...]:
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    return key.id, key.wiki_id, str(key.scope), key.label, key.created_at.isoformat(), expires_at


def parse_key(row: Sequence[str]) -> Key:
    """Convert a row of the table `keys`. Raises IndexCorrupt."""
    key_id, wiki_id, scope, label, created_at, expires_at, _ = row
    try:
        expiry = datetime.fromisoformat(expires_at) if expires_at else None
        return Key(key_id, wiki_id, Scope(scope), label, datetime.fromisoformat(created_at), expiry)
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("A key in the registry is not valid.", hint=RESTORE_HINT) from error
