"""`wikiholt import`."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from wikiholt.app.importer.chroma_source import ChromaDirectory, ChromaServer, ImportedCollection
from wikiholt.app.importer.faiss_source import FaissDirectory
from wikiholt.app.importer.import_report import ImportReport, ModelAgreement, WikiImport
from wikiholt.app.importer.importer import Importer, ImportOptions
from wikiholt.app.importer.postgres_source import PostgresTable
from wikiholt.app.importer.shared_index import OwnershipRules, SharedIndex
from wikiholt.app.settings.definitions import Settings
from wikiholt.errors import InvalidImport, InvalidSetting, SyncFailed
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.interfaces.cli.wiki_commands import print_error, print_result, should_show_progress
from wikiholt.interfaces.schemas.admin_schemas import build_import_document
from wikiholt.wikis.service import WikiService

_MAX_SHOWN = 20
_REASON_TEXTS = {
    "no-page": "of no page that is there",
    "left-out": "left out, as was asked for",
    "wrong-dimensions": "with vectors of another length than the model's",
    "unusable-vector": "with a vector that is none",
}


def run_import(service: WikiService, arguments: Namespace, settings: Settings) -> int:
    """Import, or say what that would do; refused, with nothing changed, while it is unclear whose something is."""
    options = ImportOptions(_parse_rules(arguments), tuple(arguments.wiki), max(1, arguments.sample), arguments.dry_run)
    shown = should_show_progress(arguments)
    importer = Importer(service, settings.data, options, lambda slug: show_sync_progress(slug, visible=shown))
    report = importer.run(_make_opener(arguments, settings))
    print_result(arguments, build_import_document(report), _format_report(report))
    if report.unclear:
        refusal = InvalidImport(
            "whose these are is not known, and nothing was imported",
            hint="say --owner 'PATTERN=SLUG' for pages, --tenant NAME=SLUG for tenants; - for SLUG leaves them out",
        )
        print_error(refusal)
        return refusal.exit_code
    return SyncFailed.exit_code if report.failed else 0


def _make_opener(arguments: Namespace, settings: Settings) -> Callable[[Path], SharedIndex]:
    location, patience = str(arguments.location), min(max(1.0, arguments.timeout), 86_400.0)
    if arguments.kind == "faiss":
        return lambda _: FaissDirectory(Path(location))
    if arguments.kind == "postgres":
        return lambda _: PostgresTable(
            location, arguments.table, dict(_parse_pairs(arguments.column, "--column")), patience
        )
    which = ImportedCollection(arguments.collection, arguments.chroma_tenant, arguments.chroma_database)
    if location.startswith(("http://", "https://")):
        return lambda _: ChromaServer(location, which, settings.chroma_token, patience)
    return lambda place: ChromaDirectory(Path(location), place, which, patience)


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


def _format_report(report: ImportReport) -> list[str]:
    style = output.TerminalStyle.from_stream(sys.stdout)
    lines = [style.format_bold(output.to_safe_line(report.source)), f"  {output.format_count(report.rows, 'row')} read"]
    for why, count in report.dropped.counts.items():
        some = ", ".join(output.to_safe_line(each) for each in report.dropped.examples[why])
        lines.append(f"  {count:,} dropped, {_REASON_TEXTS.get(why, why)}: {some}{' …' if count > 10 else ''}")
    lines += [_format_agreement(each) for each in report.agreements]
    for page, wikis in list(report.unclear.pages.items())[:_MAX_SHOWN]:
        lines.append(f"  {style.format_error('?')} {output.to_safe_line(page)}: a page of {', '.join(wikis)}")
    for tenant, count in list(report.unclear.tenants.items())[:_MAX_SHOWN]:
        lines.append(
            f"  {style.format_error('?')} tenant {output.to_safe_line(tenant)!r}: no wiki; {output.format_count(count, 'row')}"
        )
    more = len(report.unclear.pages) + len(report.unclear.tenants) - 2 * _MAX_SHOWN
    lines += [f"  … and {more} more; --json has all"] if more > 0 else []
    lines += [_format_wiki(each, report.dry_run) for each in report.wikis]
    lines += [
        f"{style.format_error('✗')} {slug}: {output.to_safe_line(why)}" for slug, (_, why) in report.failed.items()
    ]
    return lines


def _format_agreement(agreement: ModelAgreement) -> str:
    named = f" of {output.to_safe_line(agreement.model)}" if agreement.model else ""
    if agreement.agrees:
        return (
            f"  {output.format_count(agreement.sampled, 'vector')}{named} embedded anew: all the same; they are reused"
        )
    if agreement.least is None:
        return f"  no vector{named} is reused: {agreement.reason}"
    return (
        f"  {output.format_count(agreement.sampled, 'vector')}{named} embedded anew: down to {agreement.least:.4f} alike;"
        f" none is reused: {agreement.reason}"
    )


def _format_wiki(result: WikiImport, dry_run: bool) -> str:
    held = f"{output.format_count(result.pages, 'page')}, {output.format_count(result.chunks, 'chunk')}"
    if dry_run:
        plan = f"{result.rows:,} rows, {result.matched:,} texts matched, {result.indexed:,} indexed already"
        return f"{result.slug}: {held}; {plan}; {result.to_embed:,} to embed, about {output.format_duration(result.seconds)}"
    assert result.proof is not None
    mark = output.TerminalStyle.from_stream(sys.stdout).format_success("✓")
    work = f"{result.reused:,} vectors reused, {result.embedded:,} embedded in {output.format_duration(result.seconds)}"
    proved = f"{result.proof.pages:,} pages and {result.proof.chunks:,} chunks, those of {result.proof.revision[:10]} and no other"
    odd = f", {output.format_count(result.proof.problems, 'problem')}" if result.proof.problems else ""
    return f"{mark} {result.slug}: {work}; proved: {proved}{odd}"
