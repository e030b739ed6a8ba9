"""`wikiholt database` and `wikiholt move`: the databases of the wikis."""

import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from wikiholt.api.backends import format_setup_sql, get_repositories_directory, is_same_backend
from wikiholt.api.documents.admin_documents import ErrorDocument
from wikiholt.api.documents.common import build_document
from wikiholt.api.settings.definitions import Settings
from wikiholt.api.settings.setting import check_store_address
from wikiholt.api.store_migration import MigrationOutcome, MigrationReport, StoreMigration, WikiMigration
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.domain.wiki import MAX_WIKIS, DatabaseStatus, Wiki
from wikiholt.errors import InvalidInput, InvalidSetting, WikiholtError
from wikiholt.interfaces.cli.command import (
    CommandContext,
    Subparsers,
    add_command,
    add_group,
    open_service,
    print_error,
)
from wikiholt.interfaces.cli.output import (
    TerminalStyle,
    format_count,
    print_lines,
    to_safe_line,
)
from wikiholt.wikis.service import WikiService


def add_arguments(commands: Subparsers) -> None:
    actions = add_group(commands, "database", "action")
    add = add_command(actions, "add", run_add, text="set up a database for wikis, and place new wikis there")
    add.add_argument("name", metavar="NAME", help="its name: lower-case letters and digits")
    add.add_argument("address", metavar="ADDRESS", help="postgresql://…; - reads it from standard input")
    add.add_argument("--weight", type=float, default=1.0, metavar="N", help="its share of new wikis (default: 1)")
    _add_limit_option(add, default=MAX_WIKIS)
    add_command(actions, "list", run_list, text="list the databases and their state")
    text = "set up the database of the setting store, or print the SQL that an administrator runs before"
    prepare = add_command(actions, "prepare", run_prepare, text=text)
    prepare.add_argument("--sql", action="store_true", help="only print the SQL for role, database and extension")
    text = "place new wikis in a database"
    reopen = add_command(actions, "open", run_open, text=text)
    reopen.add_argument("name", metavar="NAME", help="as `database list` shows it")
    _add_limit_option(reopen)
    for action, text, run in (
        ("close", "place no new wikis in a database", run_open),
        ("remove", "unregister a database; refused while it contains wikis", run_remove),
    ):
        add_command(actions, action, run, text=text).add_argument(
            "name", metavar="NAME", help="as `database list` shows it"
        )
    text = "delete indexes that belong to no wiki, such as those of an abandoned move"
    add_command(actions, "sweep", run_sweep, text=text)

    move = add_command(commands, "move", run_move)
    move.add_argument("slugs", nargs="*", metavar="SLUG", help="the wikis to move to another database")
    move.add_argument("--all", action="store_true", help="all wikis")
    move.add_argument("--from", dest="origin", metavar="DATABASE", help="with --all: only those in this database")
    move.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="a database; with --all also a directory, or postgresql://…, which - reads from standard input",
    )
    text = "copy at most this number of megabytes a second between databases (default: no limit)"
    move.add_argument("--rate", type=float, default=math.inf, metavar="MB", help=text)
    move.add_argument("--dry-run", action="store_true", help="only show what would be done")


def _add_limit_option(parser: ArgumentParser, default: int | None = None) -> None:
    text = "place no more wikis there" + (f" (default: {default})" if default else "")
    parser.add_argument("--max-wikis", type=int, default=default, metavar="N", help=text)


def run_list(context: CommandContext) -> int:
    statuses = get_database_admin(context.service).get_statuses()
    document = {"databases": [asdict(status) for status in statuses]}
    return context.print_result(document, context.complete_quoted(_format_databases(statuses, context.style)))


def run_prepare(context: CommandContext) -> int:
    """Create what Wikiholt needs in the home database, or print what an administrator has to create before."""
    if not context.arguments.sql:
        return run_list(context)
    statements = format_setup_sql(context.settings)
    return context.print_result({"sql": statements}, statements)


def run_add(context: CommandContext) -> int:
    admin, arguments = get_database_admin(context.service), context.arguments
    # Other users of this machine can see the password in an address on the command line.
    address = sys.stdin.readline().strip() if arguments.address == "-" else arguments.address
    if not address or check_store_address(address):
        raise InvalidSetting(
            "that is not the address of a PostgreSQL database",
            hint="write postgresql://user:secret@host/database, or - to read it from standard input",
        )
    added = admin.add(arguments.name, address, arguments.weight, arguments.max_wikis)
    lines = [f"Added {added.name}. New wikis can be placed there.", *_format_databases([added], context.style)]
    return context.print_result(asdict(added), lines)


def run_open(context: CommandContext) -> int:
    name, is_open = context.arguments.name, context.arguments.action == "open"
    max_wikis = context.arguments.max_wikis if is_open else None
    get_database_admin(context.service).set_open(name, accept_new=is_open, max_wikis=max_wikis)
    text = "New wikis can be placed there." if is_open else "No new wikis are placed there; existing ones stay."
    return context.print_result({"name": name, "open": is_open}, [text])


def run_remove(context: CommandContext) -> int:
    name = context.arguments.name
    get_database_admin(context.service).remove(name)
    return context.print_result({"removed": name}, [f"Unregistered {name}. Nothing in it was changed."])


def run_sweep(context: CommandContext) -> int:
    """Finish interrupted moves and delete the indexes of unregistered wikis."""
    service = context.service
    admin, unregistered = get_database_admin(service), service.list_unregistered_indexes()
    finished = list(admin.find_unfinished_moves())
    for wiki_id in finished:
        admin.finish_move(wiki_id)
    removed: list[str] = []
    for wiki_id in unregistered:
        try:
            removed += service.delete_unregistered_index(wiki_id)
        except WikiholtError as error:
            print_error(error, context.arguments, wiki_id)
    lines = [*(f"  {name}" for name in removed), f"Deleted {format_count(len(removed), 'object')} without a wiki."]
    if finished:
        lines.append(f"Deleted the leftovers of {format_count(len(finished), 'move')}.")
    return context.print_result({"removed": removed, "moves_finished": finished}, lines)


def _format_databases(statuses: Sequence[DatabaseStatus], style: TerminalStyle) -> list[str]:
    lines = []
    for status in statuses:
        state = (
            style.format_error("unavailable")
            if status.error
            else f"PostgreSQL {status.server}, pgvector {status.vector}"
        )
        closed = "" if status.open else ", closed to new wikis"
        wikis = f"{status.wikis} of {format_count(status.max_wikis, 'wiki')}"
        lines.append(f"{style.format_bold(status.name)}  {wikis}{closed}; {state}")
        lines.append(style.format_dim(f"  {to_safe_line(status.address)}"))
        if status.error:
            lines.append(f"  {to_safe_line(status.error)}")
        if status.shortage:
            lines.append(style.format_warning(f"  {to_safe_line(status.shortage)}"))
    return lines


def get_database_admin(service: WikiService) -> DatabaseAdmin:
    """The databases of the service. Raises InvalidSetting if the wikis are stored in files."""
    if service.databases is None:
        raise InvalidSetting(
            "The wikis are stored in files; there are no databases.",
            hint='Set store = "postgresql://…", or move there: `wikiholt move --all --to postgresql://…`.',
        )
    return service.databases


# `wikiholt move`.


_FAILED_TEXT = "could not be moved"
_OUTCOME_TEXTS = {
    MigrationOutcome.MOVED: "moved",
    MigrationOutcome.ALREADY_THERE: "already there",
    MigrationOutcome.NO_INDEX: "registered; it has no index yet",
}
_DRY_RUN_TEXTS = {
    MigrationOutcome.MOVED: "would be moved",
    MigrationOutcome.ALREADY_THERE: "is already there",
    MigrationOutcome.NO_INDEX: "has no index yet",
}


def run_move(context: CommandContext) -> int:
    """Move wikis to another database, or all wikis to another store."""
    arguments = context.arguments
    if not arguments.rate > 0:
        raise InvalidInput("--rate is not above 0.", hint="Leave it out to copy as fast as possible.")
    if bool(arguments.slugs) == arguments.all:
        raise InvalidInput("Name the wikis to move.", hint="Name them, or write --all; not both.")
    if arguments.slugs or arguments.origin:
        return _move_between_databases(context)
    return _move_store(context)


def _move_between_databases(context: CommandContext) -> int:
    """Move wikis between databases of one store. Each stays searchable meanwhile."""
    arguments, service = context.arguments, context.service
    admin = get_database_admin(service)
    names = {status.name for status in admin.get_statuses()}
    for name in filter(None, (arguments.to, arguments.origin)):
        if name not in names:
            raise InvalidSetting(f"there is no database {name}", hint="see `wikiholt database list`")
    wikis = [service.registry.get(slug) for slug in arguments.slugs] or service.list_wikis()
    databases = {wiki.id: admin.get_database_name(wiki.id) for wiki in wikis}
    migrations = []
    for wiki in wikis:
        if not arguments.origin or databases[wiki.id] == arguments.origin:
            migrations.append(_move_to_database(admin, wiki, databases[wiki.id], arguments))
            _print_migration(migrations[-1], arguments)
    context.print_result({"wikis": [_build_migration_document(migration) for migration in migrations]}, [])
    return _get_exit_code(migrations)


def _move_to_database(
    admin: DatabaseAdmin, wiki: Wiki, current_database: str | None, arguments: Namespace
) -> WikiMigration:
    if current_database is None:
        return WikiMigration(wiki.slug, MigrationOutcome.NO_INDEX)
    try:
        if arguments.dry_run:
            moved = current_database != arguments.to
        else:
            moved = admin.move(wiki.id, arguments.to, arguments.rate)
    except WikiholtError as error:
        return WikiMigration(wiki.slug, MigrationOutcome.FAILED, error=error)
    return WikiMigration(wiki.slug, MigrationOutcome.MOVED if moved else MigrationOutcome.ALREADY_THERE)


def _move_store(context: CommandContext) -> int:
    """Move all wikis from files to PostgreSQL, or back."""
    arguments = context.arguments
    to = sys.stdin.readline().strip() if arguments.to == "-" else arguments.to
    target_settings = _get_target_settings(context, to)
    with closing(open_service(target_settings)) as target:
        migration = StoreMigration(
            context.service,
            target,
            context.settings.data / "moving",
            lambda result: _print_migration(result, arguments),
        )
        report = migration.plan() if arguments.dry_run else migration.run()
    if arguments.dry_run:
        for result in report.wikis:
            _print_migration(result, arguments)
    exit_code = _get_exit_code(report.wikis)
    document = {
        "wikis": [_build_migration_document(result) for result in report.wikis],
        "registry_rows": report.registry_rows,
        "left": list(report.added_meanwhile),
    }
    context.print_result(document, [] if exit_code else _format_next_steps(report, target_settings, arguments))
    return exit_code


def _get_target_settings(context: CommandContext, to: str) -> Settings:
    """The settings of the target store. Raises InvalidSetting."""
    settings, databases = context.settings, context.service.databases
    if "://" in to:
        if check_store_address(to):
            raise InvalidSetting("--to is not the address of a PostgreSQL database", hint="write postgresql://…")
        target = replace(settings, store=to)
    else:
        if databases and not Path(to).is_dir() and to in {status.name for status in databases.get_statuses()}:
            raise InvalidSetting(
                f"{to} is a database of this store, not another store",
                hint="add --from DATABASE to move the wikis of one database to another",
            )
        target = replace(settings, store="", data=Path(to).expanduser())
        if not to.strip() or target.data.is_file():
            raise InvalidSetting("--to is not a directory", hint="give a directory, or postgresql://…")
    if is_same_backend(settings, target):
        raise InvalidSetting("the wikis are already there", hint="give another target than the current store")
    return target


def _format_next_steps(report: MigrationReport, target_settings: Settings, arguments: Namespace) -> list[str]:
    rows = format_count(report.registry_rows, "row")
    if arguments.dry_run:
        return [f"{rows} of the registry would be copied. Nothing was changed."]
    lines = [
        f"{format_count(len(report.wikis), 'wiki')} moved and verified; {rows} of the registry copied.",
        "The source was not changed.",
    ]
    if report.added_meanwhile:
        lines.append(f"Added meanwhile and not moved: {', '.join(report.added_meanwhile)}. Run the same command again.")
    if target_settings.store:
        lines.append('Next: set store = "postgresql://…" (or WIKIHOLT_STORE) on every node, and restart them.')
        repositories = get_repositories_directory(target_settings).absolute()
        if not target_settings.repositories_directory and any(repositories.glob("*.git")):
            lines.append(f"Also set repositories.directory: the pages of created wikis are in {repositories}.")
    else:
        lines.append(f"Next: leave store unset and set data = {str(target_settings.data)!r}, and restart the service.")
    return lines


def _get_exit_code(migrations: Sequence[WikiMigration]) -> int:
    return next((migration.error.exit_code for migration in migrations if migration.error), 0)


def _print_migration(migration: WikiMigration, arguments: Namespace) -> None:
    if migration.error is not None:
        print_error(migration.error, arguments, f"{migration.slug}: {_FAILED_TEXT}")
    elif not arguments.json:
        counts = f" ({format_count(migration.pages, 'page')})" if migration.pages else ""
        text = (_DRY_RUN_TEXTS if arguments.dry_run else _OUTCOME_TEXTS)[migration.outcome]
        print_lines([f"{migration.slug}: {text}{counts}"])


def _build_migration_document(migration: WikiMigration) -> dict[str, object]:
    document: dict[str, object] = {"wiki": migration.slug, "outcome": migration.outcome.value}
    if migration.pages:
        document |= {"pages": migration.pages, "chunks": migration.chunks}
    return document | ({"error": build_document(ErrorDocument, migration.error)} if migration.error else {})
