"""Shared Chroma collections, in a directory or on a server.

A directory is copied first, because opening it writes to it, and read by a child process. A server is read by its REST
API, without the chromadb package.
"""

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from urllib.parse import urlsplit

import numpy as np

from wikiholt.app.importer.shared_index import SharedRow, SharedRows, parse_json, parse_row_id
from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaHttpClient,
    ChromaUnavailable,
    build_token_headers,
    get_host_header,
)
from wikiholt.caches.chroma.hosts import ChromaServerHost
from wikiholt.caches.chroma.rest_api import ChromaApi, CollectionInfo
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidImport, MissingDependency, StorageError, make_extra_hint

RETRY_HINT = "`wikiholt sync` builds the same indexes from git, without the old vectors"
_DATABASE_FILE = "chroma.sqlite3"


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
    """A Chroma directory, copied to `work_directory`. The child is killed after `timeout_s` seconds without output."""

    directory: Path
    work_directory: Path
    target: ImportedCollection = field(default_factory=ImportedCollection)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.target.collection} of Chroma in {self.directory}"

    def iter_rows(self) -> SharedRows:
        copy = self._copy_directory()
        seen = 0
        expected: int | None = None
        metadata: Mapping[str, object] = {}
        with closing(self._read_child(copy)) as documents:
            for document in documents:
                if "collections" in document:
                    require_collection(self.target.collection, document["collections"])
                elif "count" in document:
                    expected, metadata = _to_int(document["count"]), _to_mapping(document.get("metadata"))
                elif "ids" in document:
                    vectors = _unpack_vectors(document)
                    for row in parse_batch(document, vectors, metadata, self.target.owner_field):
                        seen += 1
                        yield row
        if expected != seen:
            raise InvalidImport(
                f"Chroma counts {expected} rows but returned {seen}: the directory is damaged", hint=RETRY_HINT
            )

    def _copy_directory(self) -> Path:
        if not (self.directory / _DATABASE_FILE).is_file():
            raise InvalidImport(
                f"there is no {_DATABASE_FILE} in {self.directory}", hint="use the CHROMADB_PATH of the old wiki"
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

    def _read_child(self, copy: Path) -> Generator[Mapping[str, object], None, None]:
        """The documents that the child writes. Raises unless the last one says that it is done."""
        command = [sys.executable, "-m", f"{__package__}.chroma_child", str(copy)]
        command += [self.target.tenant, self.target.database, self.target.collection]
        environment = {**os.environ, "ANONYMIZED_TELEMETRY": "False", "HOME": str(self.work_directory)}
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        timed_out = False

        def kill() -> None:
            nonlocal timed_out
            timed_out = True
            child.kill()

        try:
            assert child.stdout is not None
            while True:
                timer = Timer(self.timeout_s, kill)
                timer.start()
                try:
                    line = child.stdout.readline()
                finally:
                    timer.cancel()
                document = _parse_line(line)
                if document is None:
                    raise _build_exit_error(child.wait(), timed_out, self.timeout_s)
                if document.get("done"):
                    return
                yield document
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def require_collection(name: str, names: object) -> None:
    """Raise InvalidImport unless the collection exists; the message lists the existing ones."""
    existing = [item for item in names if isinstance(item, str)] if isinstance(names, list) else []
    if name not in existing:
        listed = ", ".join(existing[:20]) or "none, the database may be damaged"
        raise InvalidImport(
            f"there is no collection {name!r}; collections: {listed}", hint="name one with --collection"
        )


def parse_batch(
    document: Mapping[str, object],
    vectors: Sequence[FloatArray],
    collection_metadata: Mapping[str, object],
    owner_field: str = "",
) -> Iterator[SharedRow]:
    """The rows of a batch, which has parallel lists of ids, texts and metadata.

    With `owner_field`, that field of the metadata is the tenant; a row without it has the empty one.
    """
    ids, texts, metadatas = (document.get(name) for name in ("ids", "texts", "metadatas"))
    if not isinstance(ids, list) or not isinstance(texts, list) or not isinstance(metadatas, list):
        raise InvalidImport("the response of Chroma is malformed", hint=RETRY_HINT)
    if not len(ids) == len(texts) == len(metadatas) == len(vectors):
        raise InvalidImport(
            "Chroma returned rows without a text or a vector: the directory is damaged", hint=RETRY_HINT
        )
    model = collection_metadata.get("model")
    for row_id, text, metadata, vector in zip(ids, texts, metadatas, vectors, strict=True):
        page, index = parse_row_id(str(row_id), metadata)
        tenant = str(_to_mapping(metadata).get(owner_field) or "") if owner_field else None
        yield SharedRow(page, text or "", vector, tenant, index, model if isinstance(model, str) else "")


def _list_ignored(directory: str, names: list[str]) -> list[str]:
    """Names not to copy: links and special files."""
    paths = {name: Path(directory, name) for name in names}
    return [name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())]


def _parse_line(line: bytes) -> Mapping[str, object] | None:
    """Parse a line of the child. None if the child ended, or ended within a line."""
    if not line.endswith(b"\n"):
        return None
    document = _to_mapping(parse_json(line))
    if "missing" in document:
        raise MissingDependency(
            f"reading a Chroma directory requires chromadb ({document['missing']})",
            hint=make_extra_hint("chroma"),
        )
    if "error" in document:
        raise InvalidImport(f"Chroma cannot read it: {document['error']}: {document.get('about', '')}", hint=RETRY_HINT)
    return document


def _build_exit_error(code: int, timed_out: bool, timeout_s: float) -> InvalidImport:
    if timed_out:
        return InvalidImport(
            f"Chroma did not respond for {timeout_s:g} s and was stopped: the directory is damaged", hint=RETRY_HINT
        )
    reason = f"signal {-code}" if code < 0 else f"code {code}"
    return InvalidImport(f"Chroma crashed while reading the directory ({reason}): it is damaged", hint=RETRY_HINT)


def _unpack_vectors(document: Mapping[str, object]) -> Sequence[FloatArray]:
    dimensions = _to_int(document.get("dimensions"))
    flat = np.frombuffer(base64.b64decode(str(document.get("vectors", ""))), np.float32)
    return list(flat.reshape(-1, dimensions)) if dimensions else []


def _to_int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _to_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


# A Chroma server.


_BATCH_ROWS = 500
_HTTP_PORT = 80


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
            api = ChromaApi(client, self.target.tenant, self.target.database, self.timeout_s, path_prefix=prefix)
            try:
                yield from self._iter_rows(api)
            except ChromaUnavailable as error:
                raise InvalidImport(
                    f"the Chroma server failed: {error.message}",
                    hint="check the address, and that the server is running",
                ) from error
            except ChromaError as error:
                raise _build_refused_error(error.http_status) from error

    def _iter_rows(self, api: ChromaApi) -> SharedRows:
        collection = self._find_collection(api)
        rows = api.open_rows(collection)
        count = rows.count()
        seen = 0
        while True:
            batch = rows.get_batch(_BATCH_ROWS, seen, ["documents", "metadatas", "embeddings"])
            vectors = _parse_vectors(batch.get("embeddings"))
            document = {**batch, "texts": batch.get("documents")}
            yield from parse_batch(document, vectors, collection.metadata, self.target.owner_field)
            seen += len(vectors)
            if len(vectors) < _BATCH_ROWS:
                break
        if seen != count:
            raise InvalidImport(
                f"Chroma counts {count} rows but returned {seen}",
                hint="stop the programs that write to it and try again",
            )

    def _find_collection(self, api: ChromaApi) -> CollectionInfo:
        collections: dict[str, CollectionInfo] = {}
        for collection in api.iter_collections():
            if collection.name in collections:
                break  # the server ignores the offset
            collections[collection.name] = collection
        require_collection(self.target.collection, sorted(collections))
        return collections[self.target.collection]


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
