"""Imports the documents of a shared table as pages: each tenant becomes one wiki whose repository Wikiholt keeps.

All rows are read and their owners resolved before anything is written. It can be repeated after an interruption: pages
that are already written are unchanged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wikiholt.api.importer.importer import (
    ImportProof,
    ProgressOpener,
    ignore_progress,
    read_rows,
    verify_index,
)
from wikiholt.api.importer.shared_index import (
    IGNORE,
    MAX_EXAMPLES,
    OwnershipRules,
    SharedIndex,
    SharedRow,
    UnclearOwnership,
)
from wikiholt.api.importer.spool import RowSpool, open_work_directory
from wikiholt.domain.git import Author
from wikiholt.domain.slugs import validate_slug
from wikiholt.errors import InvalidImport, InvalidSlug, WikiholtError
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkOutcome, iter_batches
from wikiholt.wikis.service import WikiService

IMPORT_AUTHOR = Author("Wikiholt", "import@wikiholt.invalid")


@dataclass(frozen=True, slots=True)
class DocumentImportOptions:
    """The options of an import of documents."""

    rules: OwnershipRules = field(default_factory=OwnershipRules)
    create: bool = False
    """Create the wiki of a tenant that has none."""
    join: bool = False
    """Join the rows of a page in the order of their index; without it, a page must be one row."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DocumentImport:
    """One wiki: what happened to its pages. `failed` maps pages to the reason, with a few examples."""

    slug: str
    is_new: bool
    rows: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    proof: ImportProof | None = None
    error: tuple[str, str] | None = None
    """The code and message of the error that stopped this wiki; the others are imported."""


@dataclass(frozen=True, slots=True)
class DocumentImportReport:
    """The result of an import of documents. If the owner of a row is unclear, nothing was written."""

    source: str
    rows: int
    excluded: int
    unclear: UnclearOwnership
    wikis: tuple[DocumentImport, ...] = ()
    dry_run: bool = False


class DocumentImporter:
    """Imports documents into the managed wikis of one service."""

    def __init__(
        self,
        service: WikiService,
        data: Path,
        options: DocumentImportOptions,
        open_progress: ProgressOpener = ignore_progress,
    ) -> None:
        self._service = service
        self._data = data
        self._options = options
        self._open_progress = open_progress

    def run(self, open_shared_index: Callable[[Path], SharedIndex]) -> DocumentImportReport:
        """Import, unless the owner of a row is unclear. Raises InvalidImport, and then nothing was written."""
        wikis = {wiki.slug: wiki for wiki in self._service.list_wikis()}
        owners = _OwnerMap(self._options, frozenset(wikis))
        with open_work_directory(self._data) as directory, closing(RowSpool(directory / "rows.sqlite")) as spool:
            shared = open_shared_index(directory)
            for rows in read_rows(shared, owners.assign):
                spool.add_documents(rows)
            counts = spool.count_rows()
            for slug in counts:
                if slug in wikis and not wikis[slug].is_managed:
                    raise InvalidImport(
                        f"the pages of {slug} come from its own repository",
                        hint="name a wiki that `wikiholt create` made: --tenant NAME=SLUG",
                    )
            results = [DocumentImport(slug, slug not in wikis, count) for slug, count in counts.items()]
            if not owners.unclear and not self._options.dry_run:
                results = [self._import_wiki(planned, spool) for planned in results]
        return DocumentImportReport(
            shared.name, owners.rows, owners.excluded, owners.unclear, tuple(results), self._options.dry_run
        )

    def _import_wiki(self, planned: DocumentImport, spool: RowSpool) -> DocumentImport:
        slug, outcomes, failed = planned.slug, Counter[str](), dict[str, str]()
        proof, fault = None, None
        try:
            if planned.is_new:
                self._service.create(slug, {})
            handle = self._service.get_handle(slug)
            for batch in iter_batches(spool.iter_pages(slug), lambda page: sum(map(len, page[1]))):
                faults = {page: reason for page, texts in batch if (reason := self._find_fault(texts))}
                lines = [BulkLine(0, page, "\n\n".join(texts)) for page, texts in batch if page not in faults]
                results = handle.pages.write_many(lines, IMPORT_AUTHOR)
                outcomes.update(result.outcome for result in results)
                outcomes[BulkOutcome.FAILED] += len(faults)
                faults |= {result.path: result.error.message for result in results if result.error is not None}
                failed |= dict(islice(faults.items(), MAX_EXAMPLES - len(failed)))
            with self._open_progress(slug) as progress:
                handle.sync(progress)
            proof = verify_index(self._service, handle.wiki)
        except WikiholtError as error:
            fault = (error.code, error.message)
        return DocumentImport(slug, planned.is_new, planned.rows, dict(+outcomes), failed, proof, fault)

    def _find_fault(self, texts: Sequence[str]) -> str:
        """The reason why these rows cannot be a page; empty if they can."""
        if len(texts) > 1 and not self._options.join:
            return _AMBIGUOUS
        return "" if any(text.strip() for text in texts) else _NO_TEXT


_AMBIGUOUS = "it has several rows: they are chunks, or the table has several versions of it"
_NO_TEXT = "it has no text: the source stores only vectors, or the page is empty"


class _OwnerMap:
    """Assigns rows to wikis, and counts those without an owner. Two tenants never share a wiki."""

    def __init__(self, options: DocumentImportOptions, slugs: frozenset[str]) -> None:
        self._options = options
        self._slugs = slugs
        self._tenants: dict[str, str] = {}
        """The tenant of each wiki that has a row; empty for rows without one."""
        self.unclear = UnclearOwnership()
        self.rows = 0
        self.excluded = 0
        for slug in options.rules.list_slugs():
            if slug not in slugs and not options.create:
                raise InvalidImport(f"there is no wiki {slug!r}", hint="create it, or use --create")

    def assign(self, row: SharedRow) -> str | None:
        """The wiki of a row; None if it is excluded or its owner is unclear."""
        self.rows += 1
        owner = self._options.rules.find_wiki(row.tenant, row.page, self._slugs)
        if owner is None and row.tenant and self._options.create and _is_slug(row.tenant):
            owner = row.tenant
        if owner is None:
            self.unclear.add(row)
            return None
        if owner == IGNORE:
            self.excluded += 1
            return None
        validate_slug(owner)
        tenant = row.tenant or ""
        other = self._tenants.setdefault(owner, tenant)
        if other != tenant:
            raise InvalidImport(
                f"the tenants {other!r} and {tenant!r} would share the wiki {owner}",
                hint="name a wiki for each: --tenant NAME=SLUG",
            )
        return owner


def _is_slug(text: str) -> bool:
    try:
        validate_slug(text)
    except InvalidSlug:
        return False
    return True
