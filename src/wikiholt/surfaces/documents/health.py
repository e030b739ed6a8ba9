"""Health of an index, and what building one anew would take, as documents."""

from typing import Literal

from typing_extensions import TypedDict

from wikiholt.model import ReindexEstimate, IndexHealth
from wikiholt.surfaces.documents.moments import format_date


class IndexHealthDocument(TypedDict):
    """Whether an index is whole: `broken` once damage is noticed, `healing` until another index has taken its place.

    `checked_at` is when every byte was last read and found right.
    """

    condition: Literal["ok", "healing", "broken"]
    reason: str | None
    since: str | None
    checked_at: str | None


class ReindexEstimateDocument(TypedDict):
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


def build_health_document(health: IndexHealth) -> IndexHealthDocument:
    return {
        "condition": health.condition.value,
        "reason": health.reason or None,
        "since": format_date(health.since),
        "checked_at": format_date(health.checked_at),
    }


def build_estimate_document(estimate: ReindexEstimate) -> ReindexEstimateDocument:
    return {
        "pages": estimate.pages,
        "chunks": estimate.chunks,
        "chunks_to_embed": estimate.chunks_to_embed,
        "reusable_vectors": estimate.reusable_vectors,
        "seconds": estimate.seconds,
        "seconds_reusing": estimate.seconds_reusing,
        "disk_bytes": estimate.disk_bytes,
        "disk_free": estimate.disk_free,
        "exact": estimate.exact,
    }
