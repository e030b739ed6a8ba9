"""What makes one kind of cache differ from another: how it guesses which rows are worth scoring exactly."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import FloatArray, IntArray

Array = NDArray[Any]


class CandidateFinder(Protocol):
    """Guesses the nearest rows. A guess is scored exactly afterwards, so it only has to miss none."""

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        """The positions of rows likely to hold the `limit` nearest; of `among` only if given, of `skip` never.

        `among` holds none of `skip` already.
        """


class CandidateEngine(Protocol):
    """Derives what its finder needs from the vectors, section by section, and makes the finder of the sections."""

    @property
    def kind(self) -> str:
        """The name of the kind of cache, which is also how its files end."""

    @property
    def scan_max_rows(self) -> int:
        """Up to how many rows every row is scored and no finder is made."""

    @property
    def verified_sections(self) -> tuple[str, ...]:
        """Sections that must be compared with their checksums before they are used."""

    def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
        """The sections of the finder, each in one or more consecutive parts."""

    def open_finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> CandidateFinder: ...


def to_float_array(section: memoryview, *shape: int) -> FloatArray:
    """A section read as an array of floats."""
    return np.frombuffer(section, np.float32).reshape(shape)
