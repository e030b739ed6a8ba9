"""What an import found and did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Rows that no index gets, by the reason, with some of their pages."""

    counts: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class UnclearOwnership:
    """What the operator has to say before anything is imported."""

    pages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pages that several wikis have, with those wikis."""
    tenants: Mapping[str, int] = field(default_factory=dict)
    """Tenants that are no wiki here, with how many rows they have."""

    def __bool__(self) -> bool:
        return bool(self.pages or self.tenants)


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """What embedding a random sample anew says of the vectors that one model is told to have made."""

    model: str
    sampled: int
    least: float | None
    """The least cosine between a vector of the sample and our own."""
    agrees: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImportProof:
    """That an index holds the pages and chunks of its wiki at HEAD, and nothing else."""

    revision: str
    pages: int
    chunks: int
    problems: int
    foreign: int = 0
    """Pages whose blob is not in the wiki's tree; an import with any has failed."""


@dataclass(frozen=True, slots=True)
class WikiImport:
    """One wiki: what it has at HEAD, what of that is known already, and where the rest comes from."""

    slug: str
    pages: int = 0
    chunks: int = 0
    rows: int = 0
    """Rows of the shared index that are this wiki's."""
    indexed: int = 0
    """Texts whose vectors its index has already."""
    matched: int = 0
    """Texts whose vectors the shared index has."""
    to_embed: int = 0
    seconds: float = 0.0
    """An estimate before, what it took after."""
    reused: int = 0
    embedded: int = 0
    proof: ImportProof | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The whole of it; `failed` holds wikis that could not be imported, with the error's code and message."""

    source: str
    rows: int
    dropped: DroppedRows
    unclear: UnclearOwnership
    agreements: tuple[ModelAgreement, ...] = ()
    wikis: tuple[WikiImport, ...] = ()
    failed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    dry_run: bool = False
