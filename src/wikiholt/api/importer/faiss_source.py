"""A FAISS directory of otterwiki-semantic-search: flat vectors in `index.faiss`, texts in `embeddings.json`.

Both files are parsed here. FAISS is not needed, and nothing in the directory is ever executed.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.api.importer.shared_index import SharedRow, SharedRows, parse_row_id
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidImport

_INDEX_FILE, _TEXTS_FILE = "index.faiss", "embeddings.json"
_FLAT_MAGIC = (b"IxFI", b"IxF2", b"IxFl")
"""The first bytes of indexes that store vectors unmodified. All others compress them."""
_HEADER = struct.Struct("<4siqqq?iQ")
"""Kind, dimensions, number of vectors, two unused fields, trained, metric, number of floats that follow."""
_PICKLE_SUFFIXES = (".pkl", ".pickle")
_RETRY_HINT = "stop the programs that write to it and try again; `wikiholt sync` builds the same indexes from git"


@dataclass(frozen=True, slots=True)
class FaissDirectory:
    """One index, or a directory of indexes named by wiki."""

    directory: Path

    @property
    def name(self) -> str:
        return f"FAISS in {self.directory}"

    def iter_rows(self) -> SharedRows:
        for tenant, directory in self._find_indexes():
            yield from _read_rows(directory, tenant)

    def _find_indexes(self) -> Sequence[tuple[str | None, Path]]:
        """The directories of the indexes, each with its name as the tenant."""
        if not self.directory.is_dir():
            raise InvalidImport(
                f"there is no directory {self.directory}", hint="use the FAISS_INDEX_DIR of the old wiki"
            )
        if (self.directory / _INDEX_FILE).exists() or (self.directory / _TEXTS_FILE).exists():
            return [(None, self.directory)]
        directories = sorted(path for path in self.directory.iterdir() if (path / _INDEX_FILE).exists())
        if directories:
            return [(path.name, path) for path in directories]
        if any(file.suffix in _PICKLE_SUFFIXES for file in self.directory.rglob("*")):
            raise InvalidImport(
                "this directory contains pickles, and reading a pickle can execute code",
                hint="it is not from otterwiki-semantic-search; build the index from git with `wikiholt sync`",
            )
        raise InvalidImport(
            f"there is no {_INDEX_FILE} in {self.directory} or its subdirectories",
            hint="use the FAISS_INDEX_DIR of the old wiki, or a subdirectory of it",
        )


def _read_rows(directory: Path, tenant: str | None) -> Iterator[SharedRow]:
    vectors, entries = _open_vectors(directory / _INDEX_FILE), _read_entries(directory / _TEXTS_FILE)
    if len(vectors) != len(entries):
        raise InvalidImport(
            f"{directory}: {len(vectors)} vectors and {len(entries)} texts; they do not match",
            hint=_RETRY_HINT,
        )
    for entry, vector in zip(entries, vectors, strict=True):
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise InvalidImport(f"{directory / _TEXTS_FILE}: an entry has no text", hint=_RETRY_HINT)
        page, index = parse_row_id(str(entry.get("id", "")), entry.get("metadata"))
        yield SharedRow(page, entry["text"], np.array(vector, np.float32), tenant, index)


def _open_vectors(file: Path) -> FloatArray:
    """Memory-map the vectors."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            header = stream.read(_HEADER.size)
    except OSError as error:
        raise InvalidImport(f"{file} cannot be read ({error.strerror})", hint=_RETRY_HINT) from error
    if header[:4] not in _FLAT_MAGIC:
        raise InvalidImport(
            f"{file} is not a flat FAISS index, so it does not contain the original vectors",
            hint="build the index from git with `wikiholt sync`",
        )
    if len(header) < _HEADER.size:
        raise InvalidImport(f"{file} is truncated", hint=_RETRY_HINT)
    _, dimensions, count, _, _, _, metric, numbers = _HEADER.unpack(header)
    is_valid = 0 < dimensions <= 65536 and count >= 0 and metric in (0, 1) and numbers == count * dimensions
    if not is_valid or size < _HEADER.size + 4 * numbers:
        raise InvalidImport(f"{file} is damaged: its header does not match its size", hint=_RETRY_HINT)
    if not count:
        return np.empty((0, dimensions), np.float32)
    return np.memmap(file, np.float32, "r", _HEADER.size, (count, dimensions))


def _read_entries(file: Path) -> Sequence[object]:
    try:
        entries = json.loads(file.read_bytes())
    except OSError as error:
        raise InvalidImport(f"{file} cannot be read ({error.strerror})", hint=_RETRY_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InvalidImport(f"{file} is damaged: it is not JSON ({error})", hint=_RETRY_HINT) from error
    if not isinstance(entries, list):
        raise InvalidImport(f"{file} is not from otterwiki-semantic-search: it is not a list", hint=_RETRY_HINT)
    return entries
