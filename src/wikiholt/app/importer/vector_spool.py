"""The vectors of a shared index while it is being imported: on disk, by wiki and by the hash of their text.

One import at a time works in a data directory; what a killed one left is cleared by the next.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import cast

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.errors import Busy, StorageError
from wikiholt.indexing.pipeline import hash_text


@contextmanager
def open_work_directory(data: Path) -> Iterator[Path]:
    """An empty directory for one import, gone afterwards; raises Busy while another import has it."""
    place = data / "importing"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"there is no place to work in ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another import is at work in this data directory", hint="wait for it to finish") from None
        _clear_directory(place)
        try:
            yield place
        finally:
            _clear_directory(place)
    finally:
        os.close(lock)


def _clear_directory(directory: Path) -> None:
    for left in directory.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif left.name != "lock":
            left.unlink()


class VectorSpool:
    """Safe to use from many threads. Nothing in it outlives the import, so nothing is synchronised to the disk."""

    def __init__(self, file: Path) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("CREATE TABLE vectors (wiki TEXT, hash BLOB, model TEXT, vector BLOB)")
        self._connection.execute("CREATE UNIQUE INDEX by_text ON vectors (wiki, hash)")

    def add(self, rows: Iterable[tuple[str, bytes, str, FloatArray]]) -> None:
        """Keep vectors by wiki, hash and model; of a text that comes twice in a wiki, the first stays."""
        try:
            with self._lock:
                self._connection.execute("BEGIN")
                self._connection.executemany(
                    "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)",
                    ((wiki, digest, model, vector.tobytes()) for wiki, digest, model, vector in rows),
                )
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"the vectors cannot be kept ({error})", hint="check free disk space") from error

    def get_wiki_vectors(self, slug: str) -> "WikiVectors":
        return WikiVectors(self, slug)

    def select(self, wiki: str, hashes: Sequence[bytes]) -> list[tuple[bytes, str, bytes]]:
        """Hash, model and vector of those that are there."""
        with self._lock:
            found = (self._select_one(wiki, digest) for digest in hashes)
            return [row for row in found if row is not None]

    def _select_one(self, wiki: str, digest: bytes) -> tuple[bytes, str, bytes] | None:
        asked = self._connection.execute(
            "SELECT hash, model, vector FROM vectors WHERE wiki = ? AND hash = ?", (wiki, digest)
        )
        return cast(tuple[bytes, str, bytes] | None, asked.fetchone())

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class WikiVectors:
    """One wiki's vectors of the shared index; knows no other's."""

    def __init__(self, spool: VectorSpool, slug: str) -> None:
        self._spool = spool
        self._slug = slug

    def find_models(self, hashes: Sequence[bytes]) -> Mapping[bytes, str]:
        """Those of the hashes that have a vector, with what made it."""
        return {digest: model for digest, model, _ in self._spool.select(self._slug, hashes)}

    def find_vectors(self, hashes: Sequence[bytes], models: frozenset[str]) -> Mapping[bytes, FloatArray]:
        """The vectors of those hashes that one of these models made."""
        return {
            digest: np.frombuffer(vector, np.float32)
            for digest, model, vector in self._spool.select(self._slug, hashes)
            if model in models
        }


# A model that knows some texts already: their vectors come from a shared index, all others from the model itself.


class ReusingEmbedder:
    """An Embedder for one wiki, with the same vectors as the one behind it; only they may come sooner."""

    def __init__(self, embedder: Embedder, known_vectors: WikiVectors, trusted_models: frozenset[str]) -> None:
        """`models` are those whose vectors proved to be the embedder's own."""
        self._embedder = embedder
        self._known_vectors = known_vectors
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
        known = self._known_vectors.find_vectors(hashes, self._trusted_models) if self._trusted_models else {}
        fresh = [text for text, digest in zip(texts, hashes, strict=True) if digest not in known]
        made = iter(self._embedder.embed_passages(fresh) if fresh else ())
        rows = [known[digest] if digest in known else next(made) for digest in hashes]
        with self._lock:
            self.reused += len(texts) - len(fresh)
            self.embedded += len(fresh)
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def embed_query(self, text: str) -> FloatArray:
        return self._embedder.embed_query(text)

    def run_self_test(self) -> None:
        self._embedder.run_self_test()
