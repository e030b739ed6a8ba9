"""API keys. The registry stores a digest; the token itself is shown only once."""

import base64
import hashlib
import hmac
import re
import secrets
from datetime import UTC, datetime

from wikiholt.domain.wiki import Key, Scope
from wikiholt.errors import IndexCorrupt, InvalidSetting, KeyNotFound, WikiNotFound
from wikiholt.wikis.registry_schema import RESTORE_HINT, RegistryRow, get_value
from wikiholt.wikis.registry_store import RegistryReader, RegistryStore
from wikiholt.wikis.revoked_list import FIRST_KEY

MAX_LABEL_CHARS = 200
_ID_CHARS, _SECRET_CHARS = 12, 40
"""60 random bits identify a key, 200 keep it secret: neither can be guessed."""
_TOKEN_PATTERN = re.compile(rf"wh_([a-z2-7]{{{_ID_CHARS}}})_[a-z2-7]{{{_SECRET_CHARS}}}")
_EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


class KeyStore:
    """All keys of a registry. Changes by other processes take effect immediately."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store

    def create(
        self, wiki_id: str | None, scope: Scope, label: str = "", expires_at: datetime | None = None
    ) -> tuple[Key, str]:
        """Create a key of one wiki, or with None an operator's key. Returns it with its token, which is not stored."""
        now = datetime.now(UTC)
        _validate_key(wiki_id, scope, label, expires_at, now)
        key = Key(_make_random_text(_ID_CHARS), wiki_id, scope, label, now, expires_at)
        token = f"wh_{key.id}_{_make_random_text(_SECRET_CHARS)}"
        with self._store.write() as writer:
            if wiki_id is not None and not writer.select("wikis", "id", wiki_id):
                raise WikiNotFound("The wiki no longer exists.", hint="`wikiholt list` shows all wikis.")
            if not writer.has_fact(FIRST_KEY):
                writer.revoke([FIRST_KEY])
            writer.insert("keys", (*_to_columns(key), _hash_token(token)))
        return key, token

    def list(self, wiki_id: str | None = None) -> list[Key]:
        """The keys of one wiki, or with None all keys, oldest first."""
        with self._store.read() as reader:
            if reader is None:
                return []
            rows = reader.select("keys") if wiki_id is None else reader.select("keys", "wiki_id", wiki_id)
        return sorted(map(parse_key, rows), key=lambda key: (key.created_at, key.id))

    def revoke(self, key_id: str, *, wiki_id: str | None = None) -> Key:
        """Revoke a key forever; with `wiki_id`, only if it is that wiki's. Raises KeyNotFound."""
        with self._store.write() as writer:
            row = _find_row(writer, key_id)
            key = parse_key(row) if row else None
            if row is None or key is None or wiki_id not in (None, key.wiki_id):
                shown = key_id if len(key_id) <= 2 * _ID_CHARS else key_id[: 2 * _ID_CHARS] + "…"
                raise KeyNotFound(f"There is no key {shown!r}.", hint="`wikiholt key list` shows all keys.")
            writer.revoke_key(row)
        return key

    def find_by_token(self, token: str) -> Key | None:
        """The key of this token; None if it is unknown, revoked or expired."""
        match = _TOKEN_PATTERN.fullmatch(token)
        if match is None:
            return None
        row = self._find_row(match[1])
        # An unknown key is compared too, so that the response time reveals nothing.
        digest = str(get_value("keys", row, "digest")) if row else _EMPTY_DIGEST
        if not hmac.compare_digest(_hash_token(token), digest) or row is None:
            return None
        key = parse_key(row)
        return None if key.is_expired() else key

    def find_valid(self, key_id: str) -> Key | None:
        """The key of this id; None if it is unknown, revoked or expired. The caller has authenticated the client."""
        row = self._find_row(key_id)
        key = parse_key(row) if row else None
        return None if key is None or key.is_expired() else key

    def has_any(self) -> bool:
        """Whether there is any key, including expired ones."""
        with self._store.read() as reader:
            return reader is not None and bool(reader.select("keys", limit=1))

    def has_ever_had_any(self) -> bool:
        """Whether a key was ever created. Revoking the last one, or removing its wiki, must not open other wikis."""
        with self._store.read() as reader:
            return reader is not None and reader.has_fact(FIRST_KEY)

    def _find_row(self, key_id: str) -> RegistryRow | None:
        with self._store.read() as reader:
            return _find_row(reader, key_id) if reader else None


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


def _find_row(reader: RegistryReader, key_id: str) -> RegistryRow | None:
    if not key_id.isascii() or "\0" in key_id:
        return None
    return next(iter(reader.select("keys", "id", key_id)), None)


def _to_columns(key: Key) -> tuple[str | None, ...]:
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    return key.id, key.wiki_id, str(key.scope), key.label, key.created_at.isoformat(), expires_at


def parse_key(row: RegistryRow) -> Key:
    """Convert a row of the table `keys`. Raises IndexCorrupt."""
    key_id, wiki_id, scope, label, created_at, expires_at, _ = row
    try:
        if key_id is None or scope is None or label is None or created_at is None:
            raise ValueError(row)
        expiry = datetime.fromisoformat(expires_at) if expires_at else None
        return Key(key_id, wiki_id, Scope(scope), label, datetime.fromisoformat(created_at), expiry)
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("A key in the registry is not valid.", hint=RESTORE_HINT) from error
