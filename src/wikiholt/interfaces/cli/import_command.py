"""`wikiholt import` builds one index per wiki from an index that several wikis shared; `import-pages` writes pages,
from lines of JSON or the export of another program."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from wikiholt.api.importer.chroma_source import ChromaDirectory, ChromaServer, ImportedCollection
from wikiholt.api.importer.document_importer import (
    IMPORT_AUTHOR,
    DocumentImporter,
    DocumentImportOptions,
    DocumentImportReport,
)
from wikiholt.api.importer.export_importer import write_export
from wikiholt.api.importer.faiss_source import FaissDirectory
from wikiholt.api.importer.importer import Importer, ImportOptions, ImportReport, WikiImport
from wikiholt.api.importer.postgres_source import PostgresTable
from wikiholt.api.importer.reuse import ModelAgreement
from wikiholt.api.importer.shared_index import OwnershipRules, SharedIndex, UnclearOwnership
from wikiholt.api.operations.bulk_lines import BulkResultDocument, write_lines
from wikiholt.api.settings.definitions import Settings
from wikiholt.documents.exports.detection import open_export
from wikiholt.errors import InvalidImport, InvalidPage, InvalidSetting, SyncFailed
from wikiholt.interfaces.cli.command import (
    CommandContext,
    Subparsers,
    add_command,
    add_group,
    add_quiet,
    add_repeatable,
    add_slug,
    print_error,
)
from wikiholt.interfaces.cli.output import (
    TerminalStyle,
    format_count,
    format_duration,
    format_json,
    show_sync_progress,
    to_safe_line,
)
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult, BulkOutcome

_MAX_SHOWN = 20
_REASON_TEXTS = {
    "no-page": "of pages that do not exist",
    "left-out": "excluded by --owner or --tenant",
    "wrong-dimensions": "with vectors of another size than the model's",
    "unusable-vector": "with an invalid vector",
}


def add_arguments(commands: Subparsers) -> None:
    pages = add_command(commands, "import-pages", run_import_pages)
    add_slug(pages)
    pages.add_argument(
        "file", metavar="FILE", help='an export, or lines of {"path": …, "content": …} (-: from standard input)'
    )
    add_repeatable(pages, "--namespace", metavar="NAME", text="also this namespace of a MediaWiki dump; repeatable")
    pages.add_argument("--message", default="", metavar="TEXT", help="message of the commits")
    kinds = add_group(commands, "import", "kind")
    chroma = add_command(kinds, "chroma", run_import, text="import a Chroma collection")
    chroma.add_argument("location", metavar="DIR_OR_URL", help="its directory, or the URL of the server")
    chroma.add_argument("--collection", default="otterwiki_pages", metavar="NAME", help="default: otterwiki_pages")
    chroma.add_argument("--chroma-tenant", default="default_tenant", metavar="NAME", help="default: default_tenant")
    chroma.add_argument(
        "--chroma-database", default="default_database", metavar="NAME", help="default: default_database"
    )
    faiss = add_command(kinds, "faiss", run_import, text="import a FAISS directory of otterwiki-semantic-search")
    faiss.add_argument("location", metavar="DIR", help="one index, or a directory of indexes named by wiki")
    postgres = add_command(kinds, "postgres", run_import, text="import a PostgreSQL table")
    postgres.add_argument("location", metavar="ADDRESS", help="a connection string: postgresql://…")
    postgres.add_argument("--table", default="chunks", metavar="NAME", help="default: chunks")
    add_repeatable(postgres, "--column", metavar="NAME=COLUMN", text="name of a column; repeatable")
    chroma.add_argument("--tenant-field", default="", metavar="NAME", help="metadata field that names the tenant")
    for parser in (chroma, faiss, postgres):
        parser.add_argument("--documents", action="store_true", help="write the texts as pages, one wiki per tenant")
        parser.add_argument("--create", action="store_true", help="with --documents: create the wikis of new tenants")
        parser.add_argument("--join", action="store_true", help="with --documents: join the rows of a page, in order")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be done and its duration")
        add_repeatable(parser, "--wiki", metavar="SLUG", text="only this wiki; repeatable")
        add_repeatable(parser, "--owner", metavar="PATTERN=SLUG", text="the wiki of these pages; repeatable")
        add_repeatable(parser, "--tenant", metavar="NAME=SLUG", text="the wiki of a tenant; repeatable")
        parser.add_argument("--sample", type=int, default=64, metavar="N", help="vectors to verify (default: 64)")
        parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="read timeout (default: 120)")
        add_quiet(parser)


def run_import(context: CommandContext) -> int:
    """Import, or show what an import would do. Refused, with nothing changed, while the owner of a row is unclear."""
    arguments, settings = context.arguments, context.settings
    if arguments.documents:
        return _import_documents(context)
    if arguments.create or arguments.join:
        raise InvalidSetting("--create and --join need --documents.", hint="Add --documents.")
    options = ImportOptions(_parse_rules(arguments), tuple(arguments.wiki), max(1, arguments.sample), arguments.dry_run)
    visible = context.show_progress
    importer = Importer(context.service, settings.data, options, lambda slug: show_sync_progress(slug, visible=visible))
    report = importer.run(_make_opener(arguments, settings))
    context.print_result(_build_document(report), _format_report(report, context.style))
    if report.unclear:
        return _print_refusal(arguments, "")
    return SyncFailed.exit_code if report.failed else 0


def _print_refusal(arguments: Namespace, more: str) -> int:
    refusal = InvalidImport(
        "the owner of these rows is unknown; nothing was imported",
        hint=f"use --owner 'PATTERN=SLUG' for pages, --tenant NAME=SLUG for tenants{more}; - as SLUG excludes them",
    )
    print_error(refusal, arguments)
    return refusal.exit_code


def _import_documents(context: CommandContext) -> int:
    """Write the texts as pages, or show what would be written. Refused while the owner of a row is unclear."""
    arguments, visible = context.arguments, context.show_progress
    if arguments.wiki:
        raise InvalidSetting("--wiki cannot be combined with --documents.", hint="Exclude tenants: --tenant NAME=-.")
    options = DocumentImportOptions(_parse_rules(arguments), arguments.create, arguments.join, arguments.dry_run)
    importer = DocumentImporter(
        context.service, context.settings.data, options, lambda slug: show_sync_progress(slug, visible=visible)
    )
    report = importer.run(_make_opener(arguments, context.settings))
    context.print_result(_build_document(report), _format_document_report(report, context.style))
    if report.unclear:
        return _print_refusal(context.arguments, ", --create for new ones")
    if any(wiki.error for wiki in report.wikis):
        return SyncFailed.exit_code
    return InvalidImport.exit_code if any(wiki.failed for wiki in report.wikis) else 0


def _format_document_report(report: DocumentImportReport, style: TerminalStyle) -> list[str]:
    lines = [style.format_bold(to_safe_line(report.source)), f"  {format_count(report.rows, 'row')} read"]
    lines += [f"  {report.excluded:,} excluded by --owner or --tenant"] if report.excluded else []
    lines += _format_unclear(report.unclear, style)
    for wiki in report.wikis:
        new = ", new" if wiki.is_new else ""
        done = ", ".join(f"{count:,} {outcome}" for outcome, count in wiki.outcomes.items())
        mark = style.format_error("✗") if wiki.failed or wiki.error else style.format_success("✓")
        lines.append(
            f"{mark} {wiki.slug}{new}: {format_count(wiki.rows, 'row')}" + (f"; pages: {done}" if done else "")
        )
        lines += [f"    {to_safe_line(page)}: {to_safe_line(reason)}" for page, reason in wiki.failed.items()]
        lines += [f"    {to_safe_line(wiki.error[1])}"] if wiki.error else []
    return lines


def _make_opener(arguments: Namespace, settings: Settings) -> Callable[[Path], SharedIndex]:
    location, timeout_s = str(arguments.location), min(max(1.0, arguments.timeout), 86_400.0)
    if arguments.kind == "faiss":
        return lambda _: FaissDirectory(Path(location))
    if arguments.kind == "postgres":
        return lambda _: PostgresTable(
            location,
            arguments.table,
            dict(_parse_pairs(arguments.column, "--column")),
            timeout_s,
            needs_vectors=not arguments.documents,
        )
    target = ImportedCollection(
        arguments.collection, arguments.chroma_tenant, arguments.chroma_database, arguments.tenant_field
    )
    if location.startswith(("http://", "https://")):
        return lambda _: ChromaServer(location, target, settings.chroma_token, timeout_s)
    return lambda work_directory: ChromaDirectory(Path(location), work_directory, target, timeout_s)


def _parse_rules(arguments: Namespace) -> OwnershipRules:
    return OwnershipRules(
        tuple(_parse_pairs(arguments.owner, "--owner")), dict(_parse_pairs(arguments.tenant, "--tenant"))
    )


def _parse_pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise InvalidSetting(f"{option} {text!r} has no name or no value", hint=f"write {option} NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _format_report(report: ImportReport, style: TerminalStyle) -> list[str]:
    lines = [style.format_bold(to_safe_line(report.source)), f"  {format_count(report.rows, 'row')} read"]
    for reason, count in report.dropped.counts.items():
        examples = ", ".join(map(to_safe_line, report.dropped.examples[reason]))
        lines.append(
            f"  {count:,} dropped, {_REASON_TEXTS.get(reason, reason)}: {examples}{' …' if count > 10 else ''}"
        )
    lines += map(_format_agreement, report.agreements)
    lines += _format_unclear(report.unclear, style)
    lines += [_format_wiki(result, style, dry_run=report.dry_run) for result in report.wikis]
    lines += [
        f"{style.format_error('✗')} {slug}: {to_safe_line(reason)}" for slug, (_, reason) in report.failed.items()
    ]
    return lines


def _format_unclear(unclear: UnclearOwnership, style: TerminalStyle) -> list[str]:
    lines = []
    for page, wikis in list(unclear.pages.items())[:_MAX_SHOWN]:
        owners = f"a page of {', '.join(wikis)}" if wikis else "no owner"
        lines.append(f"  {style.format_error('?')} {to_safe_line(page)}: {owners}")
    for tenant, count in list(unclear.tenants.items())[:_MAX_SHOWN]:
        rows = format_count(count, "row")
        lines.append(f"  {style.format_error('?')} tenant {to_safe_line(tenant)!r}: no wiki; {rows}")
    more = len(unclear.pages) + len(unclear.tenants) - 2 * _MAX_SHOWN
    return [*lines, f"  … and {more} more; see --json"] if more > 0 else lines


def _format_agreement(agreement: ModelAgreement) -> str:
    model = f" of {to_safe_line(agreement.model)}" if agreement.model else ""
    if agreement.least is None:
        return f"  no vector{model} is reused: {agreement.reason}"
    sampled = f"{format_count(agreement.sampled, 'vector')}{model} verified"
    if agreement.agrees:
        return f"  {sampled}: all equal; they are reused"
    return f"  {sampled}: lowest cosine {agreement.least:.4f}; none is reused: {agreement.reason}"


def _format_wiki(result: WikiImport, style: TerminalStyle, *, dry_run: bool) -> str:
    if dry_run:
        size = f"{format_count(result.pages, 'page')}, {format_count(result.chunks, 'chunk')}"
        plan = f"{result.rows:,} rows, {result.matched:,} texts matched, {result.indexed:,} already indexed"
        return f"{result.slug}: {size}; {plan}; {result.to_embed:,} to embed, about {format_duration(result.seconds)}"
    assert result.proof is not None
    proof = result.proof
    work = f"{result.reused:,} vectors reused, {result.embedded:,} embedded in {format_duration(result.seconds)}"
    verified = f"exactly the {proof.pages:,} pages and {proof.chunks:,} chunks of {proof.revision[:10]}"
    problems = f", {format_count(proof.problems, 'problem')}" if proof.problems else ""
    return f"{style.format_success('✓')} {result.slug}: {work}; verified: {verified}{problems}"


def _build_document(value: object) -> Any:
    """The fields of a report as JSON has them; `proof` is null in a dry run."""
    if is_dataclass(value):
        return {field.name: _build_document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _build_document(item) for name, item in value.items()}
    return [_build_document(item) for item in value] if isinstance(value, list | tuple) else value


# Pages from NDJSON and from exports.


def run_import_pages(context: CommandContext) -> int:
    """Write the pages, report each one that fails, and exit with 2 if any did. With --json, one result per line."""
    arguments = context.arguments
    handle = context.service.get_handle(arguments.slug)

    def write(batch: Sequence[BulkLine]) -> Sequence[BulkLineResult]:
        return handle.pages.write_many(batch, IMPORT_AUTHOR, arguments.message)

    counts: Counter[str] = Counter()
    is_input = arguments.file == "-"
    try:
        export = None if is_input else open_export(Path(arguments.file), arguments.namespace)
        if export is not None:
            for document in write_export(export, write):
                counts[document["result"]] += 1
                _print_result(document, as_json=arguments.json, is_line=False)
        else:
            with nullcontext(sys.stdin.buffer) if is_input else Path(arguments.file).open("rb") as stream:
                for document in write_lines(stream, write):
                    counts[document["result"]] += 1
                    _print_result(document, as_json=arguments.json, is_line=True)
    except IsADirectoryError as error:
        raise InvalidImport(
            f"{arguments.file} is a directory",
            hint="to search its pages: `wikiholt add`; to import them: make a zip of it",
        ) from error
    except OSError as error:
        raise InvalidImport(
            f"{arguments.file} cannot be read ({error.strerror})", hint="check its path; what precedes this is written"
        ) from error
    notes = list(export.get_notes()) if export is not None else []
    settings = {} if export is None else {k: v for k, v in export.settings.items() if k not in handle.wiki.settings}
    if settings:
        context.service.configure(arguments.slug, settings)
        notes.append("settings of the wiki: " + ", ".join(f"{name}={value}" for name, value in settings.items()))
    if not arguments.json:
        results = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in BulkOutcome if counts[outcome])
        total = format_count(counts.total(), "line") if export is None else f"{export.format}, {counts.total():,} files"
        lines = [f"{arguments.slug}: {total}: {results or 'nothing to do'}.", *(f"  {to_safe_line(n)}" for n in notes)]
        if any(counts[outcome] for outcome in (BulkOutcome.CREATED, BulkOutcome.UPDATED, BulkOutcome.DELETED)):
            lines.append(context.complete(f"Next: wikiholt sync {arguments.slug}"))
        sys.stdout.write("\n".join([*lines, ""]))
    return InvalidPage.exit_code if counts[BulkOutcome.FAILED] else 0


def _print_result(document: BulkResultDocument, *, as_json: bool, is_line: bool) -> None:
    error = document["error"]
    if as_json:
        sys.stdout.write(format_json(document, indent=None) + "\n")
        sys.stdout.flush()
    elif error is not None:
        path = to_safe_line(document["path"] or "")
        name = (f"line {document['line']}" + (f" ({path})" if path else "")) if is_line else path
        sys.stderr.write(f"{name}: {error['code']}: {to_safe_line(error['message'])}\n")
