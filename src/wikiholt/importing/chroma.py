"""A shared collection in a directory of Chroma's: copied, for opening it writes to it, and read by a child process."""

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

import numpy as np

from wikiholt.errors import InvalidImport, MissingExtra, StorageRefused
from wikiholt.importing.shared import SharedRow, SharedRows, page_of, parsed
from wikiholt.model import Floats

AGAIN = "`wikiholt sync` makes the same indexes from git alone, without the old vectors"
_DATABASE = "chroma.sqlite3"


@dataclass(frozen=True, slots=True)
class Named:
    """A collection by its name, in the tenant and database that Chroma has for it."""

    collection: str = "otterwiki_pages"
    tenant: str = "default_tenant"
    database: str = "default_database"


@dataclass(frozen=True, slots=True)
class ChromaDirectory:
    """`place` is where the copy goes; the child may be silent for `patience` seconds, then it is ended."""

    directory: Path
    place: Path
    which: Named = field(default_factory=Named)
    patience: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.which.collection} of Chroma in {self.directory}"

    def rows(self) -> SharedRows:
        copy = self._copied()
        seen = 0
        expected: int | None = None
        told: Mapping[str, object] = {}
        with closing(self._told(copy)) as documents:
            for document in documents:
                if "collections" in document:
                    require(self.which.collection, document["collections"])
                elif "count" in document:
                    expected, told = _int(document["count"]), _mapping(document.get("metadata"))
                elif "ids" in document:
                    for row in batch(document, _unpacked(document), told):
                        seen += 1
                        yield row
        if expected != seen:
            raise InvalidImport(f"Chroma counts {expected} rows and gave {seen}: the directory is damaged", hint=AGAIN)

    def _copied(self) -> Path:
        if not (self.directory / _DATABASE).is_file():
            raise InvalidImport(
                f"there is no {_DATABASE} in {self.directory}", hint="give CHROMADB_PATH of the old wiki"
            )
        copy = self.place / "chroma"
        try:
            needed = sum(file.stat().st_size for file in self.directory.rglob("*") if file.is_file())
            free = shutil.disk_usage(self.place).free
            if needed > free:
                raise StorageRefused(
                    f"a copy of it takes {needed:,} bytes, and {free:,} are free",
                    hint="make room; a crash of Chroma's may have left a file whose size makes no sense",
                )
            shutil.copytree(self.directory, copy, ignore=_only_files)
        except (OSError, shutil.Error) as error:
            raise InvalidImport(f"{self.directory} cannot be copied ({error})", hint="check its permissions") from error
        return copy

    def _told(self, copy: Path) -> Generator[Mapping[str, object], None, None]:
        """What the child says, line by line; raises unless it says that it is done."""
        command = [sys.executable, "-m", f"{__package__}.chroma_child", str(copy)]
        command += [self.which.tenant, self.which.database, self.which.collection]
        environment = {**os.environ, "ANONYMIZED_TELEMETRY": "False", "HOME": str(self.place)}
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        late = False

        def end() -> None:
            nonlocal late
            late = True
            child.kill()

        try:
            assert child.stdout is not None
            while True:
                timer = Timer(self.patience, end)
                timer.start()
                try:
                    line = child.stdout.readline()
                finally:
                    timer.cancel()
                document = _understood(line)
                if document is None:
                    raise _ended(child.wait(), late, self.patience)
                if document.get("done"):
                    return
                yield document
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def require(name: str, names: object) -> None:
    """Raise unless there is a collection of that name, and say which there are."""
    listed = [each for each in names if isinstance(each, str)] if isinstance(names, list) else []
    if name not in listed:
        there = ", ".join(listed[:20]) or "none at all, which may mean that the database is damaged"
        raise InvalidImport(f"there is no collection {name!r}; there is: {there}", hint="name one with --collection")


def batch(document: Mapping[str, object], vectors: Sequence[Floats], told: Mapping[str, object]) -> Iterator[SharedRow]:
    """Rows as Chroma gives them: ids, texts and metadata side by side. `told` is the collection's own metadata."""
    ids, texts, metadatas = (document.get(name) for name in ("ids", "texts", "metadatas"))
    if not isinstance(ids, list) or not isinstance(texts, list) or not isinstance(metadatas, list):
        raise InvalidImport("Chroma's answer makes no sense", hint=AGAIN)
    if not len(ids) == len(texts) == len(metadatas) == len(vectors):
        raise InvalidImport("Chroma gave rows without a text or a vector: the directory is damaged", hint=AGAIN)
    model = told.get("model")
    for row_id, text, metadata, vector in zip(ids, texts, metadatas, vectors, strict=True):
        page, index = page_of(str(row_id), metadata)
        yield SharedRow(page, text or "", vector, None, index, model if isinstance(model, str) else "")


def _only_files(place: str, names: list[str]) -> list[str]:
    """What is not copied: links and whatever else is neither file nor directory."""
    paths = {name: Path(place, name) for name in names}
    return [name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())]


def _understood(line: bytes) -> Mapping[str, object] | None:
    """A line of the child's; None where it ended, or ended in the middle of one."""
    if not line.endswith(b"\n"):
        return None
    document = _mapping(parsed(line))
    if "missing" in document:
        raise MissingExtra(
            f"reading a directory of Chroma's needs chromadb ({document['missing']})",
            hint="pip install 'wikiholt[chroma]'",
        )
    if "error" in document:
        raise InvalidImport(f"Chroma cannot read it: {document['error']}: {document.get('about', '')}", hint=AGAIN)
    return document


def _ended(code: int, late: bool, patience: float) -> InvalidImport:
    if late:
        return InvalidImport(f"Chroma said nothing for {patience:g} s and was ended: it is damaged", hint=AGAIN)
    how = f"signal {-code}" if code < 0 else f"code {code}"
    return InvalidImport(f"Chroma crashed while reading it ({how}): it is damaged", hint=AGAIN)


def _unpacked(document: Mapping[str, object]) -> Sequence[Floats]:
    dimensions = _int(document.get("dimensions"))
    flat = np.frombuffer(base64.b64decode(str(document.get("vectors", ""))), np.float32)
    return list(flat.reshape(-1, dimensions)) if dimensions else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
