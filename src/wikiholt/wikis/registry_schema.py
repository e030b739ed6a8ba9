"""The tables of the registry, and of what clients hold for a time. Each row of the registry has a checksum."""

import hashlib
from collections.abc import Sequence

from wikiholt.wikis.small_store import StoreTables

RESTORE_HINT = "`wikiholt restore --registry` puts the newest good backup in its place."
RECOVERY_HINT = (
    f"{RESTORE_HINT} Without a backup, `wikiholt restore --registry --empty` starts a new one, closed to all."
)

RegistryRow = Sequence[str | None]
RegistryRows = dict[str, list[RegistryRow]]
"""Rows by table, without their checksums."""

TABLE_COLUMNS = {
    "wikis": ("id", "slug", "source", "settings", "created_at", "repository"),
    "hosts": ("host", "wiki_id"),
    "keys": ("id", "wiki_id", "scope", "label", "created_at", "expires_at", "digest"),
    "revoked": ("kind", "value"),
}
"""The tables of a backup. `revoked` has the entries of the list of revoked keys that this registry knows."""
CREATE_STATE = "CREATE TABLE state (name text PRIMARY KEY NOT NULL, value text NOT NULL)"
"""Its row `version` changes with every change of the registry."""
CREATE_REVOKED = (
    "CREATE TABLE revoked (kind text NOT NULL, value text NOT NULL, row_check text NOT NULL, PRIMARY KEY (kind, value))"
)
REGISTRY_TABLES = StoreTables(
    "registry",
    0x57484C52,
    3,
    (
        "CREATE TABLE wikis (id text PRIMARY KEY NOT NULL, slug text NOT NULL UNIQUE, source text NOT NULL,"
        " settings text NOT NULL, created_at text NOT NULL, repository text NOT NULL, row_check text NOT NULL)",
        "CREATE TABLE hosts (host text PRIMARY KEY NOT NULL, wiki_id text NOT NULL, row_check text NOT NULL)",
        "CREATE INDEX hosts_of_a_wiki ON hosts (wiki_id)",
        "CREATE TABLE keys (id text PRIMARY KEY NOT NULL, wiki_id text, scope text NOT NULL, label text NOT NULL,"
        " created_at text NOT NULL, expires_at text, digest text NOT NULL, row_check text NOT NULL)",
        "CREATE INDEX keys_of_a_wiki ON keys (wiki_id)",
        CREATE_REVOKED,
        CREATE_STATE,
    ),
    RECOVERY_HINT,
)

CREATE_SIGN_INS = (
    "CREATE TABLE sign_ins (digest text PRIMARY KEY NOT NULL, client text NOT NULL, person text NOT NULL,"
    " created_at text NOT NULL, expires_at text NOT NULL)"
)
CREATE_GRANTS = "CREATE TABLE grants (name text PRIMARY KEY NOT NULL, value text NOT NULL)"
SESSION_TABLES = StoreTables(
    "file of sign-ins", 0x57484C53, 1, (CREATE_SIGN_INS, CREATE_GRANTS), "Everyone must sign in again."
)
"""Sign-ins and what agents were granted. They are in no backup: a restore must sign nobody in."""

_SEPARATOR, _NULL = "\x1f", "\x1e"


def compute_row_check(table: str, row: RegistryRow) -> str:
    """The checksum of a row: a flipped bit must not give a key to another wiki."""
    text = _SEPARATOR.join((table, *(_NULL if value is None else value for value in row)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def get_value(table: str, row: RegistryRow, column: str) -> str | None:
    """The value of a column of a row, by name."""
    return row[TABLE_COLUMNS[table].index(column)]
