"""`wikiholt database` and `wikiholt upgrade`: the databases that hold indexes."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from wikiholt.app.backends import is_same_backend
from wikiholt.app.bootstrap import build_service
from wikiholt.app.settings.setting import check_store_address
from wikiholt.app.settings.definitions import Settings
from wikiholt.app.store_migration import MigrationOutcome, MigrationReport, StoreMigration, WikiMigration
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.domain.wiki import DatabaseStatus, Wiki
from wikiholt.errors import IndexUnavailable, InvalidInput, InvalidSetting, WikiholtError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.output import show_count_progress
from wikiholt.interfaces.cli.wiki_commands import print_error, print_result
from wikiholt.interfaces.schemas.admin_schemas import build_error_document
from wikiholt.wikis.service import WikiService


def run_database(service: WikiService, arguments: Namespace) -> int:
    """Add, list, open, close or remove databases, or sweep what belongs to no wiki."""
    held = get_database_admin(service)
    if arguments.action == "list":
        found = held.get_statuses()
        return print_result(arguments, {"databases": [asdict(each) for each in found]}, _format_databases(found))
    if arguments.action == "sweep":
        return _run_sweep(service, arguments)
    if arguments.action == "add":
        # An address on the command line can be seen by others on this machine, and it holds a password.
        address = sys.stdin.readline().strip() if arguments.address == "-" else arguments.address
        if not address or check_store_address(address):
            raise InvalidSetting(
                "that is not the address of a PostgreSQL database",
                hint="write postgresql://user:secret@host/database, or - and give it on standard input",
            )
        added = held.add(arguments.name, address, arguments.weight)
        return print_result(
            arguments, asdict(added), [f"Added {added.name}: new wikis go there too.", *_format_databases([added])]
        )
    if arguments.action == "remove":
        held.remove(arguments.name)
        lines = [f"Removed {arguments.name} from the databases that hold wikis; nothing in it was touched."]
        return print_result(arguments, {"removed": arguments.name}, lines)
    held.set_open(arguments.name, accept_new=arguments.action == "open")
    told = "New wikis go there." if arguments.action == "open" else "No new wikis go there; those that are there stay."
    return print_result(arguments, {"name": arguments.name, "open": arguments.action == "open"}, [told])


def _run_sweep(service: WikiService, arguments: Namespace) -> int:
    """Remove indexes of which no wiki is registered; never where the registry lists none at all."""
    held, known = get_database_admin(service), {wiki.id for wiki in service.list_wikis()}
    finished = list(held.find_unfinished_moves())
    for wiki_id in finished:
        held.finish_move(wiki_id)
    removed = [
        name
        for each in service.components.store.list_wiki_ids()
        if each not in known
        for name in _delete_index(service, each)
    ]
    lines = [*(f"  {name}" for name in removed), f"Removed {output.format_count(len(removed), 'thing')} of no wiki."]
    if finished:
        lines.append(f"Removed what {output.format_count(len(finished), 'move')} had left at another place.")
    return print_result(arguments, {"removed": removed, "moves_finished": finished}, lines)


def _delete_index(service: WikiService, wiki_id: str) -> Sequence[str]:
    try:
        return service.components.store.delete(wiki_id)
    except WikiholtError as error:
        print_error(error, wiki_id)
        return []


def run_upgrade(service: WikiService, arguments: Namespace) -> int:
    """Bring every wiki's tables to the layout of this program; whoever was cut off begins again."""
    shown = sys.stderr.isatty() and not arguments.json
    done = 0
    with show_count_progress("upgrade", "wiki", visible=shown) as tell:

        def progress(now: int, total: int) -> None:
            nonlocal done
            done = now
            tell(now, total)

        failed = get_database_admin(service).upgrade(progress)
    for wiki_id, reason in failed:
        sys.stderr.write(f"error: {wiki_id}: {output.to_safe_line(reason)}\n")
    lines = [f"{output.format_count(done, 'wiki')} brought to the layout of this version."]
    if failed:
        lines.append("Run it again once the reason is gone; what is done is done.")
    left = [{"wiki_id": wiki_id, "reason": reason} for wiki_id, reason in failed]
    print_result(arguments, {"upgraded": done, "failed": left}, lines)
    return IndexUnavailable.exit_code if failed else 0


def _format_databases(databases: Sequence[DatabaseStatus]) -> list[str]:
    style = output.TerminalStyle.from_stream(sys.stdout)
    lines = []
    for each in databases:
        state = style.format_error("away") if each.away else f"PostgreSQL {each.server}, pgvector {each.vector}"
        closed = "" if each.open else ", closed to new wikis"
        lines.append(f"{style.format_bold(each.name)}  {output.format_count(each.wikis, 'wiki')}{closed}; {state}")
        lines.append(style.format_dim(f"  {output.to_safe_line(each.address)}"))
        if each.away:
            lines.append(f"  {output.to_safe_line(each.away)}")
        if each.behind:
            lines.append(
                style.format_warning(
                    f"  {output.format_count(each.behind, 'wiki')} of an older layout: `wikiholt upgrade`"
                )
            )
    return lines


def get_database_admin(service: WikiService) -> DatabaseAdmin:
    """The databases of a service that has some; raises InvalidSetting."""
    held = service.components.databases
    if held is None:
        raise InvalidSetting(
            "The wikis are kept in files here; there are no databases.",
            hint='Set store = "postgresql://…", or move there: `wikiholt move --all --to postgresql://…`.',
        )
    return held


# `wikiholt move`: wikis to another database, or all of them to another store.


_FAILED_TEXT = "could not be moved"
_OUTCOME_TEXTS = {
    MigrationOutcome.MOVED: "moved",
    MigrationOutcome.ALREADY_THERE: "there already",
    MigrationOutcome.NO_INDEX: "registered; it has no index yet",
}
_DRY_RUN_TEXTS = {
    MigrationOutcome.MOVED: "would be moved",
    MigrationOutcome.ALREADY_THERE: "is there already",
    MigrationOutcome.NO_INDEX: "has no index yet",
}


def run_move(service: WikiService, arguments: Namespace, settings: Settings) -> int:
    """Move wikis to another database, or all of them to another store."""
    if bool(arguments.slugs) == arguments.all:
        raise InvalidInput("Which wikis are to be moved?", hint="Name them, or write --all; not both.")
    if arguments.slugs or arguments.origin:
        return _move_between_databases(service, arguments)
    return _move_store(service, arguments, settings)


def _move_between_databases(service: WikiService, arguments: Namespace) -> int:
    """From one database of the home to another, each while it answers."""
    held = get_database_admin(service)
    names = {each.name for each in held.get_statuses()}
    for name in filter(None, (arguments.to, arguments.origin)):
        if name not in names:
            raise InvalidSetting(f"no database is called {name}", hint="see `wikiholt database list`")
    wikis = [service.registry.get(slug) for slug in arguments.slugs] or service.list_wikis()
    places = {wiki.id: held.get_database_name(wiki.id) for wiki in wikis}
    wikis = [wiki for wiki in wikis if not arguments.origin or places[wiki.id] == arguments.origin]
    code, done = 0, []
    for wiki in wikis:
        moved = _move_to_database(held, wiki, places[wiki.id], arguments)
        code = code or (moved.error.exit_code if moved.error else 0)
        done.append(moved)
        _print_migration(moved, arguments)
    return print_result(arguments, {"wikis": [_build_migration_document(each) for each in done]}, []) or code


def _move_to_database(
    database_admin: DatabaseAdmin, wiki: Wiki, current_database: str | None, arguments: Namespace
) -> WikiMigration:
    if current_database is None:
        return WikiMigration(wiki.slug, MigrationOutcome.NO_INDEX)
    if arguments.dry_run:
        return WikiMigration(
            wiki.slug, MigrationOutcome.ALREADY_THERE if current_database == arguments.to else MigrationOutcome.MOVED
        )
    try:
        return WikiMigration(
            wiki.slug,
            MigrationOutcome.MOVED if database_admin.move(wiki.id, arguments.to) else MigrationOutcome.ALREADY_THERE,
        )
    except WikiholtError as error:
        return WikiMigration(wiki.slug, MigrationOutcome.FAILED, error=error)


def _move_store(service: WikiService, arguments: Namespace, settings: Settings) -> int:
    """From one store to another: embedded to PostgreSQL, or back."""
    to = sys.stdin.readline().strip() if arguments.to == "-" else arguments.to
    there = _get_target_settings(service, settings, to)
    with closing(build_service(there)) as target:
        mover = StoreMigration(
            service, target, settings.data / "moving", lambda moved: _print_migration(moved, arguments)
        )
        done = mover.plan() if arguments.dry_run else mover.run()
        if arguments.dry_run:
            for moved in done.wikis:
                _print_migration(moved, arguments)
    failed = [each.error for each in done.wikis if each.error]
    print_result(arguments, _build_report_document(done), [] if failed else _format_next_steps(done, there, arguments))
    return failed[0].exit_code if failed else 0


def _get_target_settings(service: WikiService, settings: Settings, to: str) -> Settings:
    """The settings of where everything is to go; raises InvalidSetting."""
    if "://" in to:
        if check_store_address(to):
            raise InvalidSetting("--to is no address of a PostgreSQL database", hint="write postgresql://…")
        there = replace(settings, store=to)
    else:
        held = service.components.databases
        if held is not None and not Path(to).is_dir() and to in {each.name for each in held.get_statuses()}:
            raise InvalidSetting(
                f"{to} is a database here, not another store",
                hint="write --from DATABASE beside it to move the wikis of one database to another",
            )
        there = replace(settings, store="", data=Path(to).expanduser())
        if not to.strip() or there.data.is_file():
            raise InvalidSetting("--to names no directory", hint="give a directory, or postgresql://…")
    if is_same_backend(settings, there):
        raise InvalidSetting("the wikis are there already", hint="give another place than the one that is set")
    return there


def _format_next_steps(report: MigrationReport, target_settings: Settings, arguments: Namespace) -> list[str]:
    if arguments.dry_run:
        return [
            f"{output.format_count(report.registry_rows, 'row')} of the registry would be copied. Nothing was changed."
        ]
    lines = [
        f"{output.format_count(len(report.wikis), 'wiki')} there, checked; {output.format_count(report.registry_rows, 'row')} registered.",
        "What was here is left as it is.",
    ]
    if report.added_meanwhile:
        lines.append(
            f"Added meanwhile, and not moved yet: {', '.join(report.added_meanwhile)}. Run the same command again."
        )
    if target_settings.store:
        lines.append('Next: set store = "postgresql://…" (or WIKIHOLT_STORE) for every node, and start them again.')
    else:
        lines.append(
            f"Next: leave store unset and set data = {str(target_settings.data)!r}, and start the service again."
        )
    return lines


def _print_migration(migration: WikiMigration, arguments: Namespace) -> None:
    if migration.error is not None:
        print_error(migration.error, f"{migration.slug}: {_FAILED_TEXT}")
    elif not arguments.json:
        counts = f" ({output.format_count(migration.pages, 'page')})" if migration.pages else ""
        told = (_DRY_RUN_TEXTS if arguments.dry_run else _OUTCOME_TEXTS)[migration.outcome]
        output.print_lines([f"{migration.slug}: {told}{counts}"])


def _build_migration_document(migration: WikiMigration) -> dict[str, object]:
    found: dict[str, object] = {"wiki": migration.slug, "outcome": migration.outcome.value}
    if migration.pages:
        found |= {"pages": migration.pages, "chunks": migration.chunks}
    return found | ({"error": build_error_document(migration.error)} if migration.error else {})


def _build_report_document(report: MigrationReport) -> dict[str, object]:
    return {
        "wikis": [_build_migration_document(each) for each in report.wikis],
        "registry_rows": report.registry_rows,
        "left": list(report.added_meanwhile),
    }
