"""The report of an import."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Rows that were not imported, by reason, with examples of their pages."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, page: str, tenant: str | None) -> None:
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        name = page if tenant is None else f"{tenant}: {page}"
        if len(examples) < MAX_EXAMPLES and name not in examples:
            examples.append(name)


@dataclass(frozen=True, slots=True)
class UnclearOwnership:
    """Rows whose owner the operator must specify before anything is imported."""

    pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pages that several wikis have, with their wikis."""
    tenants: Counter[str] = field(default_factory=Counter)
    """Tenants that are not wikis here, with their number of rows."""

    def add(self, page: str, tenant: str | None, wikis: tuple[str, ...] = ()) -> None:
        if tenant is None:
            self.pages[page] = wikis
        else:
            self.tenants[tenant] += 1

    def __bool__(self) -> bool:
        return bool(self.pages or self.tenants)


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """Whether the vectors of one model equal ours, by embedding a random sample again."""

    model: str
    sampled: int
    least: float | None
    """The lowest cosine between a vector of the sample and our own."""
    agrees: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImportProof:
    """Proof that an index contains the pages and chunks of its wiki at HEAD, and nothing else."""

    revision: str
    pages: int
    chunks: int
    problems: int
    foreign: int = 0
    """Pages whose blob is not in the wiki's tree. An import with any has failed."""


@dataclass(frozen=True, slots=True)
class WikiImport:
    """One wiki: its size at HEAD, and where the vectors of its texts come from."""

    slug: str
    pages: int = 0
    chunks: int = 0
    rows: int = 0
    """Rows of the shared index that belong to this wiki."""
    indexed: int = 0
    """Texts whose vectors are already in its index."""
    matched: int = 0
    """Texts whose vectors are in the shared index."""
    to_embed: int = 0
    seconds: float = 0.0
    """Estimated with --dry-run, measured otherwise."""
    reused: int = 0
    embedded: int = 0
    proof: ImportProof | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import. `failed` maps wikis to the code and message of their error."""

    source: str
    rows: int
    dropped: DroppedRows
    unclear: UnclearOwnership
    agreements: tuple[ModelAgreement, ...] = ()
    wikis: tuple[WikiImport, ...] = ()
    failed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    dry_run: bool = False
