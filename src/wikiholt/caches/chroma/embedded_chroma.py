"""Chroma's engine behind a part of its own REST interface, and its directory. Only for the child process: it may crash.

The engine's bindings are called directly. Importing all of chromadb takes a second and a hundred megabytes, includes
telemetry, and makes the same calls. The bindings would do so to create an error, unless they find its class.
"""

import base64
import contextlib
import fcntl
import importlib
import json
import os
import resource
import shutil
import sqlite3
import struct
import sys
import time
import types
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_STATUS_BY_ERROR = {
    "NotFoundError": 404,
    "UniqueConstraintError": 409,
    "InvalidArgumentError": 400,
    "ValueError": 400,
    "TypeError": 501,  # bindings of another version; nothing is damaged
    "AttributeError": 501,
}
StatusAndBody = tuple[int, object]
_NOT_FOUND: StatusAndBody = (404, {"error": "NotFoundError", "message": "no such address"})

DATABASE_FILE = "chroma.sqlite3"
SOCKET_FILE, LOCK_FILE, MARKER_FILE, RESET_FILE = "wikiholt.sock", "wikiholt.lock", "wikiholt.json", "wikiholt.renew"
QUARANTINE_DIRECTORY = "wikiholt-aside"


class EmbeddedChroma:
    """A Chroma directory opened in this process. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        _provide_error_classes()
        rust: Any = importlib.import_module("chromadb_rust_bindings")
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._rust = rust.Bindings(
            allow_reset=False,
            sqlite_db_config=rust.SqliteDBConfig(
                url=str(directory / DATABASE_FILE),
                hash_type=rust.MigrationHash.MD5,
                migration_mode=rust.MigrationMode.Apply,
            ),
            persist_path=str(directory),
            hnsw_cache_size=max(16, files // 5),  # five files per index, as Chroma assumes
        )

    def handle(self, method: str, path: Sequence[str], query: Mapping[str, str], body: Any) -> StatusAndBody:
        """Execute a request. Errors of Chroma become replies; a Rust panic is not an Exception and propagates."""
        try:
            return self._handle(method, path, query, body)
        except Exception as error:  # noqa: BLE001 - reported to the client
            kind = type(error).__name__
            status = 409 if "already exists" in str(error) else _STATUS_BY_ERROR.get(kind, 500)
            return status, {"error": kind, "message": str(error)[:500]}

    def remove_orphaned_segments(self, *, vacuum: bool) -> None:
        """Remove segment directories without a collection and, with `vacuum`, free pages of the database.

        Chroma does neither.
        """
        address = f"{(self._directory / DATABASE_FILE).absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5, isolation_level=None)) as database:
            segment_ids = {segment_id for (segment_id,) in database.execute("SELECT id FROM segments")}
            for path in self._directory.iterdir():
                if is_segment_directory(path) and path.name not in segment_ids:
                    shutil.rmtree(path, ignore_errors=True)
            if vacuum:
                database.execute("VACUUM")

    def _handle(self, method: str, path: Sequence[str], query: Mapping[str, str], body: Any) -> StatusAndBody:
        match method, list(path):
            case "GET", ["heartbeat"]:
                return 200, {"nanosecond heartbeat": self._rust.heartbeat()}
            case "GET", ["version"]:
                return 200, self._rust.get_version()
            case _, ["tenants", tenant, "databases", database, "collections", *rest] if len(rest) < 2:
                return self._handle_collections(method, rest, (tenant, database), query, body)
            case _, ["tenants", tenant, "databases", database, "collections", collection, operation]:
                return self._handle_rows(operation, collection, (tenant, database), body)
        return self._handle_databases(method, path, body)

    def _handle_databases(self, method: str, path: Sequence[str], body: Any) -> StatusAndBody:
        match method, list(path):
            case "GET", ["tenants", tenant]:
                return 200, {"name": self._rust.get_tenant(tenant).name}
            case "POST", ["tenants"]:
                self._rust.create_tenant(body["name"])
                return 200, {}
            case "GET", ["tenants", tenant, "databases", database]:
                return 200, {"name": self._rust.get_database(database, tenant).name}
            case "POST", ["tenants", tenant, "databases"]:
                self._rust.create_database(body["name"], tenant)
                return 200, {}
        return _NOT_FOUND

    def _handle_collections(
        self, method: str, rest: Sequence[str], database_path: tuple[str, str], query: Mapping[str, str], body: Any
    ) -> StatusAndBody:
        match method, list(rest):
            case "GET", []:
                listed = self._rust.list_collections(int(query["limit"]), int(query["offset"]), *database_path)
                return 200, [_to_document(collection) for collection in listed]
            case "GET", [name]:
                return 200, _to_document(self._rust.get_collection(name, *database_path))
            case "POST", []:
                created = self._rust.create_collection(
                    body["name"], json.dumps(body["configuration"]), None, body["metadata"], False, *database_path
                )
                return 200, _to_document(created)
            case "PUT", [collection]:
                self._rust.update_collection(collection, body["new_name"], body["new_metadata"], None)
                return 200, {}
            case "DELETE", [name]:
                self._rust.delete_collection(name, *database_path)
                with contextlib.suppress(sqlite3.Error, OSError):
                    self.remove_orphaned_segments(vacuum=False)
                return 200, {}
        return _NOT_FOUND

    def _handle_rows(self, operation: str, collection: str, database_path: tuple[str, str], body: Any) -> StatusAndBody:
        if operation == "count":
            return 200, self._rust.count(collection, *database_path)
        if operation == "upsert":
            vectors = [_decode_vector(text) for text in body["embeddings"]]
            self._rust.upsert(
                collection, body["ids"], vectors, body["metadatas"], body["documents"], None, *database_path
            )
            return 200, {}
        if operation == "delete":
            where = json.dumps(body["where"]) if body.get("where") else None
            self._rust.delete(collection, body.get("ids"), where, None, None, *database_path)
            return 200, {}
        if operation == "get":
            rows = self._rust.get(
                collection, None, None, body["limit"], body["offset"], None, body["include"], *database_path
            )
            columns = {"metadatas": rows.metadatas, "documents": rows.documents, "embeddings": rows.embeddings}
            return 200, {"ids": rows.ids, **columns}
        if operation == "query":
            vectors = body["query_embeddings"]
            nearest = self._rust.query(
                collection, None, vectors, body["n_results"], None, None, body["include"], *database_path
            )
            return 200, {"ids": nearest.ids, "metadatas": nearest.metadatas}
        return _NOT_FOUND


def _provide_error_classes() -> None:
    """Provide `chromadb.errors`, in which every name is a class of errors; only their names are used."""
    errors = types.ModuleType("chromadb.errors")

    def __getattr__(name: str) -> type[Exception]:  # noqa: N807 - called for names that a module does not have
        created = type(name, (Exception,), {})
        setattr(errors, name, created)
        return created

    errors.__getattr__ = __getattr__  # type: ignore[method-assign]
    sys.modules.update({"chromadb": types.ModuleType("chromadb"), "chromadb.errors": errors})


def is_segment_directory(directory: Path) -> bool:
    """Whether this is the directory of a Chroma segment."""
    try:
        return directory.is_dir() and str(uuid.UUID(directory.name)) == directory.name
    except ValueError:
        return False


def _to_document(collection: Any) -> dict[str, object]:
    return {
        "id": str(collection.id),
        "name": collection.name,
        "dimension": collection.dimension,
        "metadata": collection.metadata,
    }


def _decode_vector(text: str) -> list[float]:
    packed = base64.b64decode(text)
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


class UnusableDirectory(Exception):
    """The directory cannot be used; `state` is the reason in one word."""

    def __init__(self, state: str, detail: str = "") -> None:
        super().__init__(state, detail)
        self.state = state
        self.detail = detail


def open_directory(directory: Path, *, reset: bool, as_is: bool) -> EmbeddedChroma:
    """Lock the directory until this process exits, and open it. Raises UnusableDirectory, OSError, and Rust panics.

    With `as_is`, it may be the directory of another program, and no file is moved aside.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UnusableDirectory("taken") from error
    if not as_is and _is_foreign(directory):
        raise UnusableDirectory("foreign")
    try:
        version = metadata.version("chromadb")
        if as_is:
            return EmbeddedChroma(directory)
        _quarantine_incompatible(directory, version, reset=reset)
        return _open_or_quarantine(directory, version)
    except ImportError as error:
        raise UnusableDirectory("uninstalled", str(error)) from error


def _is_foreign(directory: Path) -> bool:
    """Whether the directory has a database that Wikiholt did not create."""
    return (directory / DATABASE_FILE).exists() and not (directory / MARKER_FILE).exists()


def _quarantine_incompatible(directory: Path, version: str, *, reset: bool) -> None:
    """Move files aside that another version of Chroma wrote, or that are to be reset."""
    marker, reset_request = directory / MARKER_FILE, directory / RESET_FILE
    try:
        written_by = json.loads(marker.read_text("utf-8"))["chromadb"]
    except (OSError, ValueError, KeyError, TypeError):
        written_by = None
    if (directory / DATABASE_FILE).exists() and (reset or reset_request.exists() or written_by != version):
        quarantine_files(directory, "damaged" if written_by == version else f"written-by-{written_by or 'unknown'}")
    reset_request.unlink(missing_ok=True)
    if written_by != version:
        draft = marker.with_suffix(".draft")
        draft.write_text(json.dumps({"chromadb": version}), "utf-8")
        draft.replace(marker)


def _open_or_quarantine(directory: Path, version: str) -> EmbeddedChroma:
    try:
        return EmbeddedChroma(directory)
    except (ImportError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - the directory is a cache, so it can be moved aside
        quarantine_files(directory, "unreadable")
        _quarantine_incompatible(directory, version, reset=False)
        return EmbeddedChroma(directory)


def quarantine_files(directory: Path, reason: str) -> None:
    """Move the files of Chroma aside. Only the latest ones are kept."""
    shutil.rmtree(directory / QUARANTINE_DIRECTORY, ignore_errors=True)
    target = directory / QUARANTINE_DIRECTORY / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{reason}"
    target.mkdir(parents=True, mode=0o700)
    for entry in list(directory.iterdir()):
        if entry.name.startswith(DATABASE_FILE) or is_segment_directory(entry):
            entry.rename(target / entry.name)
