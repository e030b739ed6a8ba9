"""Which kind of cache a wiki gets."""

import importlib.util
from pathlib import Path
from typing import Literal

from wikiholt.errors import InvalidSetting
from wikiholt.ports import WikiIndex
from wikiholt.vectors.derived import DerivedCache
from wikiholt.vectors.exact import ExactCache
from wikiholt.vectors.faiss import FaissCache

Kind = Literal["auto", "exact", "faiss"]
KINDS: tuple[Kind, ...] = ("auto", "exact", "faiss")

CROSSOVER = 600_000
"""From here on the exact cache takes more than ten milliseconds; below, FAISS saves few of them. See the bench.

A wiki that grows past it changes its kind of cache when it is opened again.
"""


def faiss_installed() -> bool:
    return importlib.util.find_spec("faiss") is not None


def kind_for(kind: str, rows: int, crossover: int = CROSSOVER) -> tuple[Kind, str]:
    """The kind of cache for so many rows, and a note for the operator where the choice was not free."""
    if kind not in KINDS:
        raise InvalidSetting(f"There is no vector cache {kind!r}.", hint=f"choose one of {', '.join(KINDS)}")
    if kind != "auto":
        return ("exact" if kind == "exact" else "faiss"), ""
    if rows <= crossover:
        return "exact", ""
    if faiss_installed():
        return "faiss", ""
    return "exact", f'{rows:,} chunks would be searched faster with FAISS: pip install "wikiholt[faiss]"'


def cache_for(
    kind: str, index: WikiIndex, directory: Path, *, crossover: int = CROSSOVER, background: bool = True
) -> tuple[DerivedCache, str]:
    """A cache for this index as large as it is now, and the note that belongs to the choice (often empty)."""
    chosen, note = kind_for(kind, index.state().chunks, crossover)
    make = FaissCache if chosen == "faiss" else ExactCache
    return make(index, directory, background=background), note
