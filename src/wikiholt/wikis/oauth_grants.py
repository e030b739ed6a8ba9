"""What the authorization server for agents stores beside the sign-ins: clients, codes and tokens.

Codes and tokens are stored as digests. A token belongs to a key and is worthless without it: revoking the key, or
removing its wiki, ends every token at once.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from wikiholt.domain.wiki import Key, Scope
from wikiholt.wikis.keys import KeyStore
from wikiholt.wikis.small_store import SmallStore, StoreConnection

ACCESS_TOKEN_PREFIX = "wha_"  # noqa: S105 - no secret
ACCESS_TOKEN_TTL_S = 3600
_REFRESH_TOKEN_PREFIX = "whr_"  # noqa: S105
_REFRESH_TOKEN_TTL_S = 90 * 86_400
_CODE_TTL_S = 300
_NEW_CLIENT_TTL_S = 3600
_CLIENT_TTL_S = 400 * 86_400
"""A client is kept this long after a person approved it for the last time."""
_MAX_NEW_CLIENTS = 1000
_MAX_NEW_CLIENTS_OF_NETWORK = 20
"""Anybody can register a client, so clients that nobody approved are few and expire soon. The oldest one is removed
for a new one: a person approves a client within minutes."""
_SECRET_BYTES = 32


class GrantKind(StrEnum):
    """A kind of secret."""

    CODE = "code"
    ACCESS = "access"
    REFRESH = "refresh"


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """What a person approved: a client may use a wiki with a scope, as the holder of a key."""

    client_id: str
    key_id: str
    wiki_id: str
    scope: str
    resource: str
    code_challenge: str = ""
    redirect_uri: str = ""


class OAuthGrants:
    """The clients, codes and tokens of a registry. Changes by other processes take effect immediately."""

    def __init__(self, store: SmallStore, keys: KeyStore) -> None:
        self._store = store
        self._keys = keys

    def add_client(self, client_id: str, metadata: Mapping[str, Any], network: str = "") -> None:
        """Store a client that nobody has approved yet, which was registered from this network."""
        with self._store.write() as connection:
            _delete_expired(connection)
            prefix = "new-client-"
            rows = [row for row in _read_rows(connection) if row[0].startswith(prefix)]
            clients = sorted(((json.loads(value), name) for name, value in rows), key=lambda row: row[0]["expires"])
            own = [name for document, name in clients if document.get("network") == network]
            surplus = {*own[: max(0, len(own) + 1 - _MAX_NEW_CLIENTS_OF_NETWORK)]}
            surplus |= {name for _, name in clients[: max(0, len(clients) + 1 - _MAX_NEW_CLIENTS)]}
            for name in surplus:
                _delete(connection, name)
            _insert(connection, prefix + client_id, _dump(metadata, _NEW_CLIENT_TTL_S, network))

    def find_client(self, client_id: str) -> Mapping[str, Any] | None:
        """The metadata of a client; None if it is unknown or has expired."""
        if not client_id.isascii() or not client_id.isprintable():
            return None
        with self._store.read() as connection:
            for kind in ("client-", "new-client-"):
                found = _find_value(connection, f"{kind}{client_id}") if connection else None
                if found is not None:
                    return found
        return None

    def approve(self, grant: OAuthGrant) -> str:
        """Store what a person approved and return the code for it."""
        code = secrets.token_urlsafe(_SECRET_BYTES)
        client = self.find_client(grant.client_id)
        with self._store.write() as connection:
            _delete_expired(connection)
            for kind in ("client-", "new-client-"):
                _delete(connection, f"{kind}{grant.client_id}")
            _insert(connection, f"client-{grant.client_id}", _dump(client or {}, _CLIENT_TTL_S))
            _insert(connection, _get_name(GrantKind.CODE, code), _dump(asdict(grant), _CODE_TTL_S))
        return code

    def find(self, kind: GrantKind, secret: str) -> OAuthGrant | None:
        """The grant of a code or token; None if it is unknown, used, expired, or its key is gone."""
        with self._store.read() as connection:
            value = _find_value(connection, _get_name(kind, secret)) if connection else None
        grant = OAuthGrant(**value) if value is not None else None
        return grant if grant is not None and self.find_key(grant) is not None else None

    def find_key(self, grant: OAuthGrant) -> Key | None:
        """The key behind a grant, unless it was revoked, has expired, or no longer covers the scope."""
        key = self._keys.find_valid(grant.key_id)
        if key is None:
            return None
        covers = key.wiki_id in (None, grant.wiki_id) and key.scope.allows(Scope(grant.scope))
        return key if covers else None

    def exchange(self, kind: GrantKind, secret: str, scope: str = "") -> tuple[str, str] | None:
        """Use a code or refresh token, which works once. Returns an access and a refresh token; None if it is used."""
        grant = self.find(kind, secret)
        if grant is None:
            return None
        access = ACCESS_TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        refresh = _REFRESH_TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        stored = asdict(grant) | {"code_challenge": "", "redirect_uri": ""}
        with self._store.write() as connection:
            if not _delete(connection, _get_name(kind, secret)):
                return None  # another request was faster
            narrowed = stored | {"scope": scope or grant.scope}
            _insert(connection, _get_name(GrantKind.ACCESS, access), _dump(narrowed, ACCESS_TOKEN_TTL_S))
            _insert(connection, _get_name(GrantKind.REFRESH, refresh), _dump(stored, _REFRESH_TOKEN_TTL_S))
        return access, refresh

    def revoke(self, secret: str) -> None:
        """Delete a token, if it exists."""
        with self._store.write() as connection:
            for kind in (GrantKind.ACCESS, GrantKind.REFRESH):
                _delete(connection, _get_name(kind, secret))


def _delete_expired(connection: StoreConnection) -> None:
    for name, value in _read_rows(connection):
        if json.loads(value)["expires"] <= time.time():
            _delete(connection, name)


def _insert(connection: StoreConnection, name: str, value: str) -> None:
    connection.execute("INSERT INTO grants (name, value) VALUES (?, ?)", (name, value))


def _delete(connection: StoreConnection, name: str) -> int:
    """Delete a row and return whether it was there, as a number."""
    return connection.execute("DELETE FROM grants WHERE name = ?", (name,)).rowcount


def _get_name(kind: GrantKind, secret: str) -> str:
    digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
    return f"{kind}-{digest}"


def _dump(value: Mapping[str, Any], ttl_s: float, network: str = "") -> str:
    return json.dumps({"expires": time.time() + ttl_s, "network": network, "value": dict(value)})


def _find_value(connection: StoreConnection, name: str) -> dict[str, Any] | None:
    row = connection.execute("SELECT value FROM grants WHERE name = ?", (name,)).fetchone()
    document = json.loads(row[0]) if row else None
    return document["value"] if document and document["expires"] > time.time() else None


def _read_rows(connection: StoreConnection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, value FROM grants").fetchall()
