"""Health of an index, and what building one anew would take, as documents."""

from typing import Literal

from typing_extensions import TypedDict

from wikiholt.model import Forecast, Health
from wikiholt.surfaces.documents.moments import moment


class HealthDocument(TypedDict):
    """Whether an index is whole: `broken` once damage is noticed, `healing` until another index has taken its place.

    `checked_at` is when every byte was last read and found right.
    """

    condition: Literal["ok", "healing", "broken"]
    reason: str | None
    since: str | None
    checked_at: str | None


class ForecastDocument(TypedDict):
    """What a reindexing would take; a sync after a change of settings embeds `reusable_vectors` fewer texts."""

    pages: int
    chunks: int
    chunks_to_embed: int
    reusable_vectors: int
    seconds: float
    seconds_reusing: float
    disk_bytes: int
    disk_free: int
    exact: bool


def health_document(health: Health) -> HealthDocument:
    return {
        "condition": health.condition.value,
        "reason": health.reason or None,
        "since": moment(health.since),
        "checked_at": moment(health.checked_at),
    }


def forecast_document(forecast: Forecast) -> ForecastDocument:
    return {
        "pages": forecast.pages,
        "chunks": forecast.chunks,
        "chunks_to_embed": forecast.chunks_to_embed,
        "reusable_vectors": forecast.reusable_vectors,
        "seconds": forecast.seconds,
        "seconds_reusing": forecast.seconds_reusing,
        "disk_bytes": forecast.disk_bytes,
        "disk_free": forecast.disk_free,
        "exact": forecast.exact,
    }
