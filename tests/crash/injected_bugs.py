"""Bugs that are injected on purpose, to check that the crash test finds them."""

import os
from collections.abc import Callable
from contextlib import nullcontext

from wikiholt.index import backup_directory
from wikiholt.index.sqlite import index, index_writer, vector_file
from wikiholt.wikis import keys

_UNDO: list[Callable[[], None]] = []


def inject_bug(name: str) -> None:
    """Inject this bug into this process and the processes it starts. An empty name removes it."""
    while _UNDO:
        _UNDO.pop()()
    if name in BUGS:
        BUGS[name]()
    elif name:
        from tests.crash.postgres.postgres_bugs import POSTGRES_BUGS

        POSTGRES_BUGS[name]()


def replace_attribute(owner: object, name: str, value: object) -> None:
    original = getattr(owner, name)
    _UNDO.append(lambda: setattr(owner, name, original))
    setattr(owner, name, value)


def _half_a_page() -> None:
    """A writer that commits a page before its chunks, its words and its checksum."""
    original = index_writer._SqliteWriter._write_chunks

    def write_chunks(self: index_writer._SqliteWriter, page_id: int, entry: object) -> None:
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")
        original(self, page_id, entry)  # type: ignore[arg-type]

    replace_attribute(index_writer._SqliteWriter, "_write_chunks", write_chunks)


def _unsynced_backup() -> None:
    """A backup directory that renames a copy to its final name before its bytes are on the disk."""
    replace_attribute(backup_directory, "fsync_path", lambda _: None)
    replace_attribute(index, "fsync_path", lambda _: None)


def _unsynced_vectors() -> None:
    """A writer that commits before the vectors that it counts are on the disk."""

    class NoFsync:
        def __getattr__(self, name: str) -> object:
            return (lambda _: None) if name == "fsync" else getattr(os, name)

    replace_attribute(vector_file, "os", NoFsync())


def _key_not_stored() -> None:
    """A registry that returns a key and does not store it."""

    def create(self: keys.KeyStore, *arguments: object) -> object:
        store, self._store = self._store, _ForgetfulStore()  # type: ignore[assignment]
        try:
            return original(self, *arguments)  # type: ignore[arg-type]
        finally:
            self._store = store

    original = keys.KeyStore.create
    replace_attribute(keys.KeyStore, "create", create)


class _ForgetfulStore:
    def write(self) -> object:
        return nullcontext(_ForgetfulWriter())


class _ForgetfulWriter:
    def select(self, *_: object) -> list[object]:
        return [()]

    def has_fact(self, _: object) -> bool:
        return True

    def insert(self, *_: object) -> None:
        pass


BUGS = {
    "half a page": _half_a_page,
    "unsynced backup": _unsynced_backup,
    "unsynced vectors": _unsynced_vectors,
    "key not stored": _key_not_stored,
}
