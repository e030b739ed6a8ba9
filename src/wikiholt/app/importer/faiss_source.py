"""A FAISS directory of otterwiki-semantic-search: flat vectors in `index.faiss`, their texts in `embeddings.json`.

Both are read here, byte by byte: FAISS itself is not needed, and nothing in such a directory is ever executed.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.app.importer.shared_index import SharedRow, SharedRows, parse_json, parse_row_id
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidImport

_INDEX_FILE, _TEXTS_FILE = "index.faiss", "embeddings.json"
_FLAT_MAGIC = (b"IxFI", b"IxF2", b"IxFl")
"""What an index begins with that keeps its vectors as they are; any other has cut them down."""
_HEADER = struct.Struct("<4siqqq?iQ")
"""Kind, dimensions, vectors, two fields nobody uses, trained, metric, how many numbers follow."""
_PICKLE_SUFFIXES = (".pkl", ".pickle")
_RETRY_HINT = "stop whoever writes it and try again; `wikiholt sync` makes the same indexes from git alone"


@dataclass(frozen=True, slots=True)
class FaissDirectory:
    """One index, or a directory of them that are named by their wikis."""

    directory: Path

    @property
    def name(self) -> str:
        return f"FAISS in {self.directory}"

    def iter_rows(self) -> SharedRows:
        for tenant, place in self._find_indexes():
            yield from _read_rows(place, tenant)

    def _find_indexes(self) -> Sequence[tuple[str | None, Path]]:
        """Where the indexes are, each with the tenant its directory is named by."""
        if not self.directory.is_dir():
            raise InvalidImport(f"there is no directory {self.directory}", hint="give FAISS_INDEX_DIR of the old wiki")
        if (self.directory / _INDEX_FILE).exists() or (self.directory / _TEXTS_FILE).exists():
            return [(None, self.directory)]
        inner = sorted(place for place in self.directory.iterdir() if (place / _INDEX_FILE).exists())
        if inner:
            return [(place.name, place) for place in inner]
        if any(file.suffix in _PICKLE_SUFFIXES for file in self.directory.rglob("*")):
            raise InvalidImport(
                "this directory holds pickles, and reading a pickle runs what its writer put into it",
                hint="it is not of otterwiki-semantic-search; let `wikiholt sync` make the index from git",
            )
        raise InvalidImport(
            f"there is no {_INDEX_FILE} in {self.directory} nor in a directory in it",
            hint="give FAISS_INDEX_DIR of the old wiki, or a directory in it",
        )


def _read_rows(directory: Path, tenant: str | None) -> Iterator[SharedRow]:
    vectors, entries = _open_vectors(directory / _INDEX_FILE), _read_entries(directory / _TEXTS_FILE)
    if len(vectors) != len(entries):
        raise InvalidImport(
            f"{directory}: {len(vectors)} vectors and {len(entries)} texts; which is whose cannot be told",
            hint=_RETRY_HINT,
        )
    for entry, vector in zip(entries, vectors, strict=True):
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise InvalidImport(f"{directory / _TEXTS_FILE}: there is an entry without a text", hint=_RETRY_HINT)
        page, index = parse_row_id(str(entry.get("id", "")), entry.get("metadata"))
        yield SharedRow(page, entry["text"], np.array(vector, np.float32), tenant, index)


def _open_vectors(file: Path) -> FloatArray:
    """The vectors, mapped and not loaded."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(_HEADER.size)
    except OSError as error:
        raise InvalidImport(f"{file} cannot be read ({error.strerror})", hint=_RETRY_HINT) from error
    if head[:4] not in _FLAT_MAGIC:
        raise InvalidImport(
            f"{file} is no flat FAISS index, so the vectors in it are not those the model gave",
            hint="let `wikiholt sync` make the index from git",
        )
    if len(head) < _HEADER.size:
        raise InvalidImport(f"{file} ends in the middle", hint=_RETRY_HINT)
    _, dimensions, count, _, _, _, metric, numbers = _HEADER.unpack(head)
    sound = 0 < dimensions <= 65536 and count >= 0 and metric in (0, 1) and numbers == count * dimensions
    if not sound or size < _HEADER.size + 4 * numbers:
        raise InvalidImport(f"{file} is damaged: its head does not fit its size", hint=_RETRY_HINT)
    if not count:
        return np.empty((0, dimensions), np.float32)
    return np.memmap(file, np.float32, "r", _HEADER.size, (count, dimensions))


def _read_entries(file: Path) -> Sequence[object]:
    try:
        found = parse_json(file.read_bytes())
    except OSError as error:
        raise InvalidImport(f"{file} cannot be read ({error.strerror})", hint=_RETRY_HINT) from error
    except ValueError as error:
        raise InvalidImport(f"{file} is damaged: it is no JSON ({error})", hint=_RETRY_HINT) from error
    if not isinstance(found, list):
        raise InvalidImport(f"{file} is not of otterwiki-semantic-search: it holds no list", hint=_RETRY_HINT)
    return found
