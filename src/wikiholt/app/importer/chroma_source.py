"""Shared Chroma collections, in a directory or on a server.

A directory is copied first, because opening it writes to it, and read through a child process, because Chroma may crash
or hang. A server needs no chromadb package here.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from wikiholt.app.importer.shared_index import SharedRow, SharedRows, parse_row_id
from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaHttpClient,
    ChromaMetrics,
    ChromaUnavailable,
    build_token_headers,
    get_host_header,
)
from wikiholt.caches.chroma.embedded_chroma import DATABASE_FILE
from wikiholt.caches.chroma.hosts import ChildProcess, ChromaServerHost
from wikiholt.caches.chroma.rest_api import ChromaApi, CollectionInfo
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidImport, StorageError

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
    """A Chroma directory, copied to `work_directory`. The child is killed if it does not respond for `timeout_s`."""

    directory: Path
    work_directory: Path
    target: ImportedCollection = field(default_factory=ImportedCollection)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.target.collection} of Chroma in {self.directory}"

    def iter_rows(self) -> SharedRows:
        child = ChildProcess(self._copy_directory(), ChromaMetrics(), as_is=True, start_timeout_s=self.timeout_s)
        try:
            child.start()
            with closing(ChromaHttpClient(child.connect, {}, "localhost")) as client:
                yield from _iter_rows(client, self.target, self.timeout_s)
        except (ChromaUnavailable, ChromaError) as error:
            raise InvalidImport(
                f"Chroma cannot read the directory, which may be damaged: {error.message}", hint=RETRY_HINT
            ) from error
        finally:
            child.stop()

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
        except (OSError, shutil.Error) as error:
            raise InvalidImport(f"{self.directory} cannot be copied ({error})", hint="check its permissions") from error
        return copy


def parse_batch(
    document: Mapping[str, object],
    vectors: Sequence[FloatArray],
    collection_metadata: Mapping[str, object],
    owner_field: str = "",
) -> Iterator[SharedRow]:
    """The rows of a batch, which has parallel lists of ids, documents and metadata.

    With `owner_field`, that field of the metadata is the tenant; a row without it has the empty one.
    """
    ids, texts, metadatas = (document.get(name) for name in ("ids", "documents", "metadatas"))
    if not isinstance(ids, list) or not isinstance(texts, list) or not isinstance(metadatas, list):
        raise InvalidImport("the response of Chroma is malformed", hint=RETRY_HINT)
    if not len(ids) == len(texts) == len(metadatas) == len(vectors):
        raise InvalidImport(
            "Chroma returned rows without a text or a vector: the directory is damaged", hint=RETRY_HINT
        )
    model = collection_metadata.get("model")
    for row_id, text, metadata, vector in zip(ids, texts, metadatas, vectors, strict=True):
        page, index = parse_row_id(str(row_id), metadata)
        owner = metadata.get(owner_field) if isinstance(metadata, dict) else None
        tenant = str(owner or "") if owner_field else None
        yield SharedRow(page, text or "", vector, tenant, index, model if isinstance(model, str) else "")


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
            host = ChromaServerHost(self.url, default_port=_HTTP_PORT)
        except ValueError as error:
            raise InvalidImport(f"the address of Chroma is invalid ({error})", hint="check the address") from error
        headers = build_token_headers(self.token)
        with closing(ChromaHttpClient(host.connect, headers, get_host_header(self.url))) as client:
            prefix = urlsplit(self.url).path.rstrip("/")
            try:
                yield from _iter_rows(client, self.target, self.timeout_s, prefix)
            except ChromaUnavailable as error:
                raise InvalidImport(
                    f"the Chroma server failed: {error.message}",
                    hint="check the address, and that the server is running",
                ) from error
            except ChromaError as error:
                raise _build_refused_error(error.http_status) from error


def _iter_rows(
    client: ChromaHttpClient, target: ImportedCollection, timeout_s: float, path_prefix: str = ""
) -> SharedRows:
    """Every row of the collection. Raises InvalidImport, ChromaUnavailable and ChromaError."""
    api = ChromaApi(client, target.tenant, target.database, timeout_s, path_prefix=path_prefix)
    collection = _find_collection(api, target.collection)
    rows = api.open_rows(collection)
    count = rows.count()
    seen = 0
    while True:
        batch = rows.get_batch(_BATCH_ROWS, seen, ["documents", "metadatas", "embeddings"])
        vectors = _parse_vectors(batch.get("embeddings"))
        yield from parse_batch(batch, vectors, collection.metadata, target.owner_field)
        seen += len(vectors)
        if len(vectors) < _BATCH_ROWS:
            break
    if seen != count:
        raise InvalidImport(
            f"Chroma counts {count} rows but returned {seen}: it is damaged, or a program is writing to it",
            hint=f"stop the programs that write to it and try again; {RETRY_HINT}",
        )


def _find_collection(api: ChromaApi, name: str) -> CollectionInfo:
    """The collection. Raises InvalidImport, with the names of the existing ones, if there is none."""
    collections: dict[str, CollectionInfo] = {}
    for collection in api.iter_collections():
        if collection.name in collections:
            break  # the server ignores the offset
        collections[collection.name] = collection
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
        return _build_response_error()
    return InvalidImport(f"Chroma returned status {status}", hint=RETRY_HINT)


def _parse_vectors(embeddings: object) -> Sequence[FloatArray]:
    if not isinstance(embeddings, list):
        raise _build_response_error()
    try:
        return [np.array(vector, np.float32) for vector in embeddings]
    except (TypeError, ValueError) as error:
        raise _build_response_error() from error


def _build_response_error() -> InvalidImport:
    return InvalidImport("the server is not Chroma, or of an unsupported version", hint="check the address")
