"""The default vector cache: every row scanned while there are few, sketches of every row when there are many."""

from pathlib import Path

from wikiholt.ports import WikiIndex
from wikiholt.vectors.derived import FileVectorCache
from wikiholt.vectors.sketch import QuantizedEngine


class ExactVectorCache(FileVectorCache):
    """Nearest chunks by exact scores, of which sketches may miss one in a hundred; needs nothing but numpy."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        *,
        background: bool = True,
        inline_build_rows: int = 20_000,
        engine: QuantizedEngine | None = None,
    ) -> None:
        super().__init__(index, directory, engine or QuantizedEngine(), background=background, inline_build_rows=inline_build_rows)
