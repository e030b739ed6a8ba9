"""Browsers that are signed in: each has a random token in a cookie, of which only a digest is stored.

Sign-ins are beside the registry, not in it: they change often, and a restored backup must not sign anyone in again. A
sign-in with a key is valid only while the key is.
"""

import hashlib
import json
import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wikiholt.domain.wiki import Key, Person, PersonOrigin
from wikiholt.errors import StorageError
from wikiholt.wikis.registry_schema import SESSION_TABLES
from wikiholt.wikis.small_store import SmallStore, SmallStoreFile

_log = logging.getLogger(__name__)

MAX_SIGN_INS_PER_CLIENT = 50
"""The most browsers that are signed in with one key or as one person. The oldest sign-in ends first."""
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class SignIn:
    """A signed-in browser: `client` is the id of a key, unless there is a person."""

    client: str
    person: Person | None
    expires_at: datetime


class SignInStore:
    """All sign-ins. Changes by other processes take effect immediately."""

    def __init__(self, store: SmallStore) -> None:
        self._store = store

    def create(self, client: Key | Person, lifetime: timedelta) -> tuple[SignIn, str]:
        """Sign a browser in. Returns the sign-in with its token, which is not stored. Deletes expired sign-ins."""
        now = datetime.now(UTC)
        person = client if isinstance(client, Person) else None
        sign_in, token = SignIn(client.id, person, now + lifetime), secrets.token_urlsafe(_TOKEN_BYTES)
        row = _hash_token(token), client.id, _dump_person(person), _format_time(now), _format_time(sign_in.expires_at)
        with self._store.write() as connection:
            connection.execute("DELETE FROM sign_ins WHERE expires_at <= ?", (_format_time(now),))
            others = connection.execute(
                "SELECT digest FROM sign_ins WHERE client = ? ORDER BY created_at DESC, digest", (client.id,)
            ).fetchall()
            for (digest,) in others[MAX_SIGN_INS_PER_CLIENT - 1 :]:
                connection.execute("DELETE FROM sign_ins WHERE digest = ?", (digest,))
            connection.execute(
                "INSERT INTO sign_ins (digest, client, person, created_at, expires_at) VALUES (?, ?, ?, ?, ?)", row
            )
        return sign_in, token

    def find(self, token: str) -> SignIn | None:
        """The sign-in of this token; None if it is unknown, ended or expired."""
        with self._store.read() as connection:
            if connection is None:
                return None
            row = connection.execute(
                "SELECT client, person, expires_at FROM sign_ins WHERE digest = ?", (_hash_token(token),)
            ).fetchone()
        if row is None:
            return None
        expires_at = datetime.fromisoformat(row[2])
        return SignIn(row[0], _parse_person(row[1]), expires_at) if expires_at > datetime.now(UTC) else None

    def end(self, token: str) -> None:
        """Sign the browser with this token out."""
        if self.find(token) is not None:
            with self._store.write() as connection:
                connection.execute("DELETE FROM sign_ins WHERE digest = ?", (_hash_token(token),))


class SessionFile(SmallStoreFile):
    """The file of sign-ins and grants. A damaged file is set aside: people sign in again."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SESSION_TABLES)

    def _make_damage_error(self, reason: str) -> StorageError:
        _log.warning("the sign-ins in %s are damaged (%s); everyone must sign in again", self.path, reason)
        self.set_aside()
        return self._make_storage_error(reason)


def _hash_token(token: str) -> str:
    # The token is long and random: a slow hash would add only time.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _format_time(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")


def _dump_person(person: Person | None) -> str:
    if person is None:
        return ""
    return json.dumps([person.origin, person.subject, person.name, person.email, *person.groups])


def _parse_person(text: str) -> Person | None:
    if not text:
        return None
    origin, subject, name, email, *groups = json.loads(text)
    return Person(PersonOrigin(origin), subject, name, email, tuple(groups))
