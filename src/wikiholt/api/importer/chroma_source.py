"""Shared Chroma collections, in a directory or on a server.

A directory is copied first, because opening it writes to it, and read through Chroma's own server, because Chroma may
crash or hang. A server needs no chromadb package here.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from wikiholt.api.importer.shared_index import SharedRow, SharedRows, parse_row_id
from wikiholt.errors import InvalidImport, MissingDependency, StorageError, make_extra_hint
from wikiholt.index.chroma.client import (
    ChromaClient,
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionInfo,
    Connector,
    make_connector,
    make_reply_error,
)
from wikiholt.index.chroma.server import DATABASE_FILE, VERSION_FILE, OwnServer

RETRY_HINT = "`wikiholt sync` builds the same indexes from git, without the old vectors"
_BATCH_ROWS = 500
_HTTP_PORT = 80


@dataclass(frozen=True, slots=True)
class ImportedCollection:
    """A collection by its name, Chroma tenant and Chroma database."""

    collection: str = "otterwiki_pages"
    tenant: str = "default_tenant"
    database: str = "default_database"
    owner_field: str = ""
    """The field of a row's metadata that names its owner; empty if there is none."""


@dataclass(frozen=True, slots=True)
class ChromaDirectory:
    """A Chroma directory, copied to `work_directory`. The server is killed if it does not respond for `timeout_s`."""

    directory: Path
    work_directory: Path
    target: ImportedCollection = field(default_factory=ImportedCollection)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.target.collection} of Chroma in {self.directory}"

    def iter_rows(self) -> SharedRows:
        server = OwnServer(self._copy_directory(), ChromaMetrics(), self.timeout_s)
        try:
            server.start()
            yield from _iter_rows(server.connect, "http://localhost", self.target, self.timeout_s)
        except (ChromaUnavailable, ChromaError) as error:
            raise InvalidImport(
                f"Chroma cannot read the directory, which may be damaged: {error.message}", hint=RETRY_HINT
            ) from error
        finally:
            server.kill()
            server.close()

    def _copy_directory(self) -> Path:
        if not (self.directory / DATABASE_FILE).is_file():
            raise InvalidImport(
                f"there is no {DATABASE_FILE} in {self.directory}", hint="use the CHROMADB_PATH of the old wiki"
            )
        copy = self.work_directory / "chroma"
        try:
            needed = sum(file.stat().st_size for file in self.directory.rglob("*") if file.is_file())
            free = shutil.disk_usage(self.work_directory).free
            if needed > free:
                raise StorageError(
                    f"a copy needs {needed:,} bytes, but only {free:,} are free",
                    hint="free some space; a crash of Chroma may have left a file with a nonsensical size",
                )
            shutil.copytree(self.directory, copy, ignore=_list_ignored)
            (copy / VERSION_FILE).write_text(metadata.version("chromadb"), "utf-8")  # the copy is ours
        except metadata.PackageNotFoundError as error:
            raise MissingDependency("ChromaDB is not installed.", hint=make_extra_hint("chroma")) from error
        except (OSError, shutil.Error) as error:
            raise InvalidImport(f"{self.directory} cannot be copied ({error})", hint="check its permissions") from error
        return copy


def _list_ignored(directory: str, names: list[str]) -> list[str]:
    """Names not to copy: links and special files."""
    paths = {name: Path(directory, name) for name in names}
    return [name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())]


@dataclass(frozen=True, slots=True)
class ChromaServer:
    """A collection on a Chroma server; `timeout_s` applies to each request. Redirects are not followed."""

    url: str
    target: ImportedCollection = field(default_factory=ImportedCollection)
    token: str = field(default="", repr=False)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        address = urlsplit(self.url)
        return f"{self.target.collection} of Chroma at {address.hostname}:{address.port or _HTTP_PORT}"

    def iter_rows(self) -> SharedRows:
        try:
            yield from _iter_rows(
                make_connector(self.url, _HTTP_PORT), self.url, self.target, self.timeout_s, self.token
            )
        except ValueError as error:
            raise InvalidImport(f"the address of Chroma is invalid ({error})", hint="check the address") from error
        except ChromaUnavailable as error:
            raise InvalidImport(
                f"the Chroma server failed: {error.message}",
                hint="check the address, and that the server is running",
            ) from error
        except ChromaError as error:
            raise _build_refused_error(error.http_status) from error


def _iter_rows(
    connect: Connector, url: str, target: ImportedCollection, timeout_s: float, token: str = ""
) -> SharedRows:
    """Every row of the collection. Raises InvalidImport, ChromaUnavailable and ChromaError."""
    with closing(
        ChromaClient(connect, url, target.tenant, target.database, token=token, read_timeout_s=timeout_s)
    ) as client:
        collection = _find_collection(client, target.collection)
        records = client.open_records(collection)
        count, seen = records.count(), 0
        for batch in records.iter_batches(("documents", "metadatas", "embeddings"), _BATCH_ROWS):
            yield from _parse_batch(batch, collection, target.owner_field)
            seen += len(batch[0])
    if seen != count:
        raise InvalidImport(
            f"Chroma counts {count} rows but returned {seen}: it is damaged, or a program is writing to it",
            hint=f"stop the programs that write to it and try again; {RETRY_HINT}",
        )


def _parse_batch(batch: list[list[Any]], collection: CollectionInfo, owner_field: str) -> Iterator[SharedRow]:
    """The rows of a batch. With `owner_field`, that field is the tenant; a row without it has the empty one."""
    model = collection.metadata.get("model")
    for row_id, text, row_metadata, embedding in zip(*batch, strict=True):
        try:
            vector = np.array(embedding, np.float32)
        except (TypeError, ValueError) as error:
            raise make_reply_error() from error
        page, index = parse_row_id(str(row_id), row_metadata)
        owner = row_metadata.get(owner_field) if isinstance(row_metadata, dict) else None
        tenant = str(owner or "") if owner_field else None
        yield SharedRow(page, str(text or ""), vector, tenant, index, model if isinstance(model, str) else "")


def _find_collection(client: ChromaClient, name: str) -> CollectionInfo:
    """The collection. Raises InvalidImport, with the names of the existing ones, if there is none."""
    collections = {collection.name: collection for collection in client.iter_collections()}
    if name not in collections:
        listed = ", ".join(sorted(collections)[:20]) or "none, the database may be damaged"
        raise InvalidImport(
            f"there is no collection {name!r}; collections: {listed}", hint="name one with --collection"
        )
    return collections[name]


def _build_refused_error(status: int) -> InvalidImport:
    if status in (401, 403):
        return InvalidImport(f"Chroma requires another token ({status})", hint="set chroma.token")
    if status in (404, 405, 410):
        return InvalidImport(
            f"the server has no such tenant or database, or is older than Chroma 1.0 ({status})",
            hint="use --chroma-tenant and --chroma-database, or stop the server and import its directory",
        )
    if status == 0 or status // 100 == 2:
        return InvalidImport("the server is not Chroma, or of an unsupported version", hint="check the address")
    return InvalidImport(f"Chroma returned status {status}", hint=RETRY_HINT)
