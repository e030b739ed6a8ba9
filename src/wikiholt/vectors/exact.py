"""The default vector cache: every row scanned while there are few, sketches of every row when there are many."""

from pathlib import Path

from wikiholt.ports import WikiIndex
from wikiholt.vectors.derived import DerivedCache
from wikiholt.vectors.sketch import SketchEngine


class ExactCache(DerivedCache):
    """Nearest chunks by exact scores, of which sketches may miss one in a hundred; needs nothing but numpy."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        *,
        background: bool = True,
        build_at_once: int = 20_000,
        engine: SketchEngine | None = None,
    ) -> None:
        super().__init__(index, directory, engine or SketchEngine(), background=background, build_at_once=build_at_once)
