"""`wikiholt database` and `wikiholt upgrade`: the databases that hold indexes."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict

from wikiholt.errors import IndexUnavailable, InvalidSetting, WikiholtError
from wikiholt.model import DatabaseStatus
from wikiholt.ports import DatabaseAdmin
from wikiholt.service import WikiService
from wikiholt.settings.faults import check_store_address
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import print_error, print_result
from wikiholt.surfaces.cli.progress import show_count_progress


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
        return print_result(arguments, asdict(added), [f"Added {added.name}: new wikis go there too.", *_format_databases([added])])
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
    removed = [name for each in service.components.store.list_wiki_ids() if each not in known for name in _delete_index(service, each)]
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
    with show_count_progress("upgrade", "wiki", shown=shown) as tell:

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
            lines.append(style.format_warning(f"  {output.format_count(each.behind, 'wiki')} of an older layout: `wikiholt upgrade`"))
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
