"""The vectors of an index of schema 5, which had them in a table. They are taken over when the index is built again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wikiholt.domain.index import FloatArray, IndexState, Recipe
from wikiholt.errors import IndexCorrupt, IndexForeign
from wikiholt.index import rows
from wikiholt.index.sqlite.connections import open_connection, select_in_batches, translate_errors

_SCHEMA = 5
_LENGTH_TOLERANCE = 1e-3


class OlderIndex:
    """A `KeptIndex` of schema 5. Not safe to use from several threads."""

    def __init__(self, file: Path, wiki_id: str) -> None:
        """Raises IndexForeign for an index of another wiki, and IndexCorrupt for another schema."""
        self._db = open_connection(file)
        try:
            with translate_errors():
                sql = "SELECT schema, generation, fingerprint, dimensions, pipeline FROM state"
                schema, generation, *recipe = self._db.execute(sql).fetchone() or (0, 0, "", 0, "")
                owner = self._db.execute("SELECT wiki_id FROM owner").fetchone()
            if schema != _SCHEMA:
                raise IndexCorrupt("the index has another schema", hint="run `wikiholt sync` to build it again")
            if owner != (wiki_id,):
                raise IndexForeign("the index belongs to another wiki", hint="run `wikiholt sync` to build its own")
        except BaseException:
            self.close()
            raise
        self._generation: int = generation
        self._recipe = Recipe(*recipe)

    def get_state(self) -> IndexState:
        """The recipe. The rest is unknown."""
        return IndexState(self._generation, 0, self._recipe, None, None, 0, 0, 0)

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        sql = f"SELECT hash, vector FROM vectors WHERE substr(hash, 1, {rows.HASH_PREFIX_BYTES}) IN ({{0}})"
        prefixes = sorted({digest[: rows.HASH_PREFIX_BYTES] for digest in hashes})
        with translate_errors():
            found: dict[bytes, bytes] = {row[0]: row[1] for row in select_in_batches(self._db, sql, prefixes)}
        known = [digest for digest in found if digest in set(hashes)]
        vectors = rows.decode_vectors([found[digest] for digest in known], self._recipe.dimensions)
        lengths = np.vecdot(vectors, vectors)
        return {
            digest: vector
            for digest, vector, length in zip(known, vectors, lengths, strict=True)
            if abs(length - 1) <= _LENGTH_TOLERANCE
        }

    def close(self) -> None:
        self._db.close()
