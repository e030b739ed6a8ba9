"""`wikiholt import`."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from wikiholt.errors import InvalidImport, InvalidSetting, SyncFailed
from wikiholt.importing import Agreement, Importer, ImportReport, Options, Rules, Shared, WikiImport
from wikiholt.importing.chroma import ChromaDirectory, Named
from wikiholt.importing.chroma_server import ChromaServer
from wikiholt.importing.faiss import FaissDirectory
from wikiholt.importing.postgres import PostgresTable
from wikiholt.service import Service
from wikiholt.settings import Settings
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import complain, show, shows_progress
from wikiholt.surfaces.cli.progress import watched
from wikiholt.surfaces.documents.imports import import_document

_SHOWN = 20
_WHY = {
    "no-page": "of no page that is there",
    "left-out": "left out, as was asked for",
    "wrong-dimensions": "with vectors of another length than the model's",
    "unusable-vector": "with a vector that is none",
}


def import_(service: Service, arguments: Namespace, settings: Settings) -> int:
    """Import, or say what that would do; refused, with nothing changed, while it is unclear whose something is."""
    options = Options(_rules(arguments), tuple(arguments.wiki), max(1, arguments.sample), arguments.dry_run)
    shown = shows_progress(arguments)
    importer = Importer(service, settings.data, options, lambda slug: watched(slug, shown=shown))
    report = importer.run(_opener(arguments, settings))
    show(arguments, import_document(report), _lines(report))
    if report.unclear:
        refusal = InvalidImport(
            "whose these are is not known, and nothing was imported",
            hint="say --owner 'PATTERN=SLUG' for pages, --tenant NAME=SLUG for tenants; - for SLUG leaves them out",
        )
        complain(refusal)
        return refusal.exit_code
    return SyncFailed.exit_code if report.failed else 0


def _opener(arguments: Namespace, settings: Settings) -> Callable[[Path], Shared]:
    location, patience = str(arguments.location), min(max(1.0, arguments.timeout), 86_400.0)
    if arguments.kind == "faiss":
        return lambda _: FaissDirectory(Path(location))
    if arguments.kind == "postgres":
        return lambda _: PostgresTable(location, arguments.table, dict(_pairs(arguments.column, "--column")), patience)
    which = Named(arguments.collection, arguments.chroma_tenant, arguments.chroma_database)
    if location.startswith(("http://", "https://")):
        return lambda _: ChromaServer(location, which, settings.chroma_token, patience)
    return lambda place: ChromaDirectory(Path(location), place, which, patience)


def _rules(arguments: Namespace) -> Rules:
    return Rules(tuple(_pairs(arguments.owner, "--owner")), dict(_pairs(arguments.tenant, "--tenant")))


def _pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise InvalidSetting(f"{option} {text!r} has no name or no value", hint=f"write {option} NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _lines(report: ImportReport) -> list[str]:
    style = output.Style.of(sys.stdout)
    lines = [style.bold(output.line(report.source)), f"  {output.counted(report.rows, 'row')} read"]
    for why, count in report.dropped.counts.items():
        some = ", ".join(output.line(each) for each in report.dropped.examples[why])
        lines.append(f"  {count:,} dropped, {_WHY.get(why, why)}: {some}{' …' if count > 10 else ''}")
    lines += [_agreement_line(each) for each in report.agreements]
    for page, wikis in list(report.unclear.pages.items())[:_SHOWN]:
        lines.append(f"  {style.bad('?')} {output.line(page)}: a page of {', '.join(wikis)}")
    for tenant, count in list(report.unclear.tenants.items())[:_SHOWN]:
        lines.append(f"  {style.bad('?')} tenant {output.line(tenant)!r}: no wiki; {output.counted(count, 'row')}")
    more = len(report.unclear.pages) + len(report.unclear.tenants) - 2 * _SHOWN
    lines += [f"  … and {more} more; --json has all"] if more > 0 else []
    lines += [_wiki_line(each, report.dry_run) for each in report.wikis]
    lines += [f"{style.bad('✗')} {slug}: {output.line(why)}" for slug, (_, why) in report.failed.items()]
    return lines


def _agreement_line(found: Agreement) -> str:
    named = f" of {output.line(found.model)}" if found.model else ""
    if found.agrees:
        return f"  {output.counted(found.sampled, 'vector')}{named} embedded anew: all the same; they are reused"
    if found.least is None:
        return f"  no vector{named} is reused: {found.reason}"
    return (
        f"  {output.counted(found.sampled, 'vector')}{named} embedded anew: down to {found.least:.4f} alike;"
        f" none is reused: {found.reason}"
    )


def _wiki_line(done: WikiImport, dry_run: bool) -> str:
    held = f"{output.counted(done.pages, 'page')}, {output.counted(done.chunks, 'chunk')}"
    if dry_run:
        plan = f"{done.rows:,} rows, {done.matched:,} texts matched, {done.indexed:,} indexed already"
        return f"{done.slug}: {held}; {plan}; {done.to_embed:,} to embed, about {output.duration(done.seconds)}"
    assert done.proof is not None
    mark = output.Style.of(sys.stdout).good("✓")
    work = f"{done.reused:,} vectors reused, {done.embedded:,} embedded in {output.duration(done.seconds)}"
    proved = (
        f"{done.proof.pages:,} pages and {done.proof.chunks:,} chunks, those of {done.proof.revision[:10]} and no other"
    )
    odd = f", {output.counted(done.proof.problems, 'problem')}" if done.proof.problems else ""
    return f"{mark} {done.slug}: {work}; proved: {proved}{odd}"
