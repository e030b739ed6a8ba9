"""Candidates for tests of the ranking, one value for each page or passage."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from wikiholt.search.ranking import Candidates, TitleMatch, make_candidates


class Row(NamedTuple):
    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    share: float | None = None
    title: TitleMatch = TitleMatch()
    page_cosine: float | None = None
    likelihood: float | None = None


def make_rows(rows: Sequence[Row]) -> Candidates:
    """Candidates as a search finds them, before they are ranked."""

    def get_column(name: str, missing: float) -> list[float]:
        values = (getattr(row, name) for row in rows)
        return [missing if value is None else value for value in values]

    return make_candidates(
        [row.page_id for row in rows],
        chunk_id=get_column("chunk_id", 0),
        distance=get_column("distance", math.inf),
        is_near=[row.distance is not None for row in rows],
        overlap=[row.title.overlap for row in rows],
        title_share=[row.title.share for row in rows],
        chunks=[row.title.chunks for row in rows],
        **{name: get_column(name, math.nan) for name in ("share", "page_cosine", "likelihood")},
    )
