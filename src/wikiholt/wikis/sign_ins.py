"""Browsers that are signed in: each has a random token in a cookie, of which only a digest is stored.

Sign-ins are beside the registry, not in it: they change often, and a restored backup must not sign anyone in again. A
sign-in with a key is valid only while the key is.
"""

import hashlib
import json
import logging
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from wikiholt.domain.wiki import Key, Person, PersonOrigin
from wikiholt.errors import Busy, StorageError
from wikiholt.regular_files import is_irregular, make_quarantine_name
from wikiholt.wikis.registry_schema import RegistryConnection

_log = logging.getLogger(__name__)

MAX_SIGN_INS_PER_CLIENT = 50
"""The most browsers that are signed in with one key or as one person. The oldest sign-in ends first."""
SIGN_INS_FILE = "sign-ins.sqlite"
_TOKEN_BYTES = 32
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SignInDatabase(Protocol):
    """Stores the table `sign_ins`. Safe to use from many threads and processes."""

    def read_connection(self) -> AbstractContextManager[RegistryConnection | None]:
        """A connection for reading; None if nobody has signed in yet."""
        ...

    def write_transaction(self) -> AbstractContextManager[RegistryConnection]:
        """One write transaction, which commits unless the block raises."""
        ...


@dataclass(frozen=True, slots=True)
class SignIn:
    """A signed-in browser: `client` is the id of a key, unless there is a person."""

    client: str
    person: Person | None
    expires_at: datetime


class SignInStore:
    """All sign-ins. Changes by other processes take effect immediately."""

    def __init__(self, database: SignInDatabase) -> None:
        self._database = database

    def create(self, client: Key | Person, lifetime: timedelta) -> tuple[SignIn, str]:
        """Sign a browser in. Returns the sign-in with its token, which is not stored. Deletes expired sign-ins."""
        now = datetime.now(UTC)
        person = client if isinstance(client, Person) else None
        sign_in, token = SignIn(client.id, person, now + lifetime), secrets.token_urlsafe(_TOKEN_BYTES)
        row = _hash_token(token), client.id, _dump_person(person), _format_time(now), _format_time(sign_in.expires_at)
        with self._database.write_transaction() as connection:
            connection.execute("DELETE FROM sign_ins WHERE expires_at <= ?", (_format_time(now),))
            others = connection.execute(
                "SELECT digest FROM sign_ins WHERE client = ? ORDER BY created_at DESC, digest", (client.id,)
            ).fetchall()
            for (digest,) in others[MAX_SIGN_INS_PER_CLIENT - 1 :]:
                connection.execute("DELETE FROM sign_ins WHERE digest = ?", (digest,))
            connection.execute("INSERT INTO sign_ins VALUES (?, ?, ?, ?, ?)", row)
        return sign_in, token

    def find(self, token: str) -> SignIn | None:
        """The sign-in of this token; None if it is unknown, ended or expired."""
        with self._database.read_connection() as connection:
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
            with self._database.write_transaction() as connection:
                connection.execute("DELETE FROM sign_ins WHERE digest = ?", (_hash_token(token),))


class SignInFile:
    """A `SignInDatabase` in one SQLite file, opened for each use. A damaged file is set aside: people sign in again."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection | None]:
        if not self._path.exists():
            yield None
            return
        with self._translate_errors(), closing(self._open()) as connection:
            has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sign_ins'").fetchone()
            yield connection if has_table else None

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translate_errors():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(0o600)
            with closing(self._open()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS sign_ins (digest TEXT PRIMARY KEY NOT NULL, client TEXT NOT NULL,"
                    " person TEXT NOT NULL, created_at TEXT NOT NULL, expires_at TEXT NOT NULL) WITHOUT ROWID"
                )
                yield connection
                connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if is_irregular(self._path):
            raise sqlite3.DatabaseError("it is not a regular file")
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        # Names and groups of persons must not stay in the file.
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF
            if code in _BUSY_CODES:
                raise Busy("Another process is writing the sign-ins.", hint="Try again in a moment.") from error
            if code in _DAMAGE_CODES:
                self._quarantine(str(error))
            raise _make_storage_error(self._path, str(error)) from error
        except OSError as error:
            raise _make_storage_error(self._path, error.strerror or str(error)) from error

    def _quarantine(self, reason: str) -> None:
        _log.warning("the sign-ins in %s are damaged (%s); everyone must sign in again", self._path, reason)
        with suppress(FileNotFoundError):
            self._path.rename(self._path.with_name(make_quarantine_name(self._path.name)))


def _make_storage_error(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"The sign-ins in {path} cannot be read or written: {reason}.",
        hint="Check free space, and that the user who runs wikiholt may write to the directory.",
    )


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
