"""Temporary storage for the rows of a shared index during an import, and whether and how their vectors are reused.

Only one import at a time can run in a data directory. The next import deletes the files of a killed one.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import SystemRandom
from threading import Lock

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.errors import Busy, StorageError
from wikiholt.indexing.pipeline import hash_text

_LOCK_FILE = "lock"


@contextmanager
def open_work_directory(data: Path) -> Iterator[Path]:
    """An empty directory for one import, deleted afterwards. Raises Busy while another import runs."""
    directory = data / "importing"
    try:
        lock = _lock_directory(directory)
    except OSError as error:
        raise StorageError(
            f"the work directory cannot be created ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        _clear_directory(directory)
        try:
            yield directory
        finally:
            _clear_directory(directory)
            (directory / _LOCK_FILE).unlink(missing_ok=True)
            with suppress(OSError):  # the next import has begun to use it
                directory.rmdir()
    finally:
        os.close(lock)


def _lock_directory(directory: Path) -> int:
    """Create and lock the directory, and return the open lock file. Raises Busy and OSError."""
    while True:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # an import that has just ended removed the directory
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Busy("another import is running in this data directory", hint="wait for it to finish") from None
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # an import that has just ended removed the file


def _clear_directory(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK_FILE:
            path.unlink()


class _Spool:
    """One table in a temporary file. Safe to use from many threads. Nothing is synced to disk."""

    def __init__(self, file: Path) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")

    @contextmanager
    def _begin(self, content: str) -> Iterator[sqlite3.Connection]:
        """The connection in a transaction, which is committed at the end of the block. Raises StorageError."""
        try:
            with self._lock:
                self._connection.execute("BEGIN")
                yield self._connection
                self._connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise StorageError(f"the {content} cannot be stored ({error})", hint="check free disk space") from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class DocumentSpool(_Spool):
    """The texts of a shared index, by wiki and page."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._connection.execute("CREATE TABLE rows (wiki TEXT, page TEXT, number INTEGER, text TEXT)")

    def add(self, rows: Iterable[tuple[str, str, int | None, str]]) -> None:
        with self._begin("documents") as connection:
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)

    def count_rows(self) -> Mapping[str, int]:
        """The number of rows of each wiki, by slug."""
        return dict(self._connection.execute("SELECT wiki, count(*) FROM rows GROUP BY wiki ORDER BY wiki"))

    def iter_pages(self, slug: str) -> Iterator[tuple[str, list[str]]]:
        """The pages of one wiki with the texts of their rows, in order."""
        rows = self._connection.execute(
            "SELECT page, text FROM rows WHERE wiki = ? ORDER BY page, number, rowid", (slug,)
        )
        for page, group in groupby(rows, key=lambda row: str(row[0])):
            yield page, [text for _, text in group]


class VectorSpool(_Spool):
    """The vectors of a shared index, by wiki and text hash."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._connection.execute("CREATE TABLE vectors (wiki TEXT, hash BLOB, model TEXT, vector BLOB)")
        self._connection.execute("CREATE UNIQUE INDEX by_text ON vectors (wiki, hash)")

    def add(self, rows: Iterable[tuple[str, bytes, str, FloatArray]]) -> None:
        """Add rows of wiki, hash, model and vector. The first vector of a text in a wiki is kept."""
        values = ((wiki, digest, model, vector.tobytes()) for wiki, digest, model, vector in rows)
        with self._begin("vectors") as connection:
            connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)", values)

    def find(self, wiki: str, hashes: Sequence[bytes]) -> Mapping[bytes, tuple[str, FloatArray]]:
        """The model and the vector by hash, for the hashes that this wiki has."""
        found: dict[bytes, tuple[str, FloatArray]] = {}
        with self._lock:
            for digest in hashes:
                for model, vector in self._connection.execute(
                    "SELECT model, vector FROM vectors WHERE wiki = ? AND hash = ?", (wiki, digest)
                ):
                    found[digest] = model, np.frombuffer(vector, np.float32)
        return found


@dataclass(slots=True)
class VectorSamples:
    """A uniform random sample (reservoir sampling) of the matched texts and vectors of each model."""

    size: int
    samples: dict[str, list[tuple[str, FloatArray]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    new_texts: list[str] = field(default_factory=list)
    """Some of the texts to embed."""
    _random: SystemRandom = field(default_factory=SystemRandom)

    def draw(self, model: str, text: str, vector: FloatArray) -> None:
        """Add the next matched text to the sample of its model, or not, by chance."""
        self.seen[model] = self.seen.get(model, 0) + 1
        slot = self._random.randrange(self.seen[model])
        sample = self.samples.setdefault(model, [])
        if len(sample) < self.size:
            sample.append((text, vector))
        elif slot < self.size:
            sample[slot] = (text, vector)


MIN_SAME_COSINE = 0.9999
"""The lowest cosine of equal vectors. Between int8 and fp32 of one model it was as low as 0.9959."""
_MIN_NEAR_COSINE = 0.98
"""Above this it is probably the same model at another precision."""


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """Whether the vectors of one model equal ours, by embedding a random sample again."""

    model: str
    sampled: int
    least: float | None
    """The lowest cosine between a vector of the sample and our own."""
    agrees: bool
    reason: str = ""


def check_agreement(model: str, sample: Sequence[tuple[str, FloatArray]], embedder: Embedder) -> ModelAgreement:
    """Embed the sample again. One different vector is enough to reuse none."""
    if not sample:
        return ModelAgreement(model, 0, None, agrees=False, reason="no text matches a text that Wikiholt would embed")
    ours = embedder.embed_passages([text for text, _ in sample])
    theirs = np.stack([vector for _, vector in sample])
    lowest = float(np.min(np.sum(ours * theirs, axis=1)))
    if lowest >= MIN_SAME_COSINE:
        return ModelAgreement(model, len(sample), lowest, agrees=True)
    if lowest >= _MIN_NEAR_COSINE:
        reason = f"they are close but not equal: probably another precision than {embedder.precision or 'this'}"
    else:
        reason = "they are from another model, or damaged"
    return ModelAgreement(model, len(sample), lowest, agrees=False, reason=reason)


class ReusingEmbedder:
    """An Embedder for one wiki that takes known vectors from the shared index and computes the others."""

    def __init__(self, embedder: Embedder, spool: VectorSpool, slug: str, trusted_models: frozenset[str]) -> None:
        """`trusted_models` are those whose vectors equal the embedder's."""
        self._embedder = embedder
        self._spool = spool
        self._slug = slug
        self._trusted_models = trusted_models
        self._lock = Lock()
        self.reused = 0
        self.embedded = 0

    @property
    def fingerprint(self) -> str:
        return self._embedder.fingerprint

    @property
    def model(self) -> str:
        return self._embedder.model

    @property
    def precision(self) -> str:
        return self._embedder.precision

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def scale(self) -> CosineScale:
        return self._embedder.scale

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self._embedder.get_token_spans(text)

    def is_known_word(self, word: str) -> bool:
        return self._embedder.is_known_word(word)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        hashes = [hash_text(text) for text in texts]
        found = self._spool.find(self._slug, hashes) if self._trusted_models else {}
        known = {digest: vector for digest, (model, vector) in found.items() if model in self._trusted_models}
        new_texts = [text for text, digest in zip(texts, hashes, strict=True) if digest not in known]
        computed = iter(self._embedder.embed_passages(new_texts) if new_texts else ())
        rows = [known[digest] if digest in known else next(computed) for digest in hashes]
        with self._lock:
            self.reused += len(texts) - len(new_texts)
            self.embedded += len(new_texts)
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def embed_query(self, text: str) -> FloatArray:
        return self._embedder.embed_query(text)

    def run_self_test(self) -> None:
        self._embedder.run_self_test()
