"""What a sync did, and what building an index anew would take."""

from dataclasses import dataclass

from wikiholt.model.content import PageProblem


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    revision: str
    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks_embedded: int = 0
    chunks_reused: int = 0
    problems: tuple[PageProblem, ...] = ()
    seconds: float = 0.0
    rebuilt: bool = False


@dataclass(frozen=True, slots=True)
class ReindexEstimate:
    """What building an index anew would take, on this machine and with the settings of now.

    `chunks_to_embed` are chunks with a text of their own: equal texts are embedded once. `reusable_vectors` is how many
    of these the present index has a vector for, made by the same model: a sync after a change of settings takes them
    over, a reindexing makes them anew.
    """

    pages: int
    chunks: int
    chunks_to_embed: int
    reusable_vectors: int
    seconds: float
    """Of a reindexing, which takes over nothing."""
    seconds_reusing: float
    """Of a sync, which takes over what it can."""
    disk_bytes: int
    """What the new index and its caches would take beside the present one."""
    disk_free: int
    exact: bool
    """Whether every page was read; otherwise counts are those of a fair sample, extrapolated."""
