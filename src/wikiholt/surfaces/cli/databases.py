"""`wikiholt database` and `wikiholt upgrade`: the databases that hold indexes."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict

from wikiholt.errors import IndexFault, InvalidSetting, WikiholtError
from wikiholt.model import DatabaseStanding
from wikiholt.ports import Databases
from wikiholt.service import Service
from wikiholt.settings.faults import store_fault
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import complain, show
from wikiholt.surfaces.cli.progress import counted_up


def database(service: Service, arguments: Namespace) -> int:
    """Add, list, open, close or remove databases, or sweep what belongs to no wiki."""
    held = databases_of(service)
    if arguments.action == "list":
        found = held.standing()
        return show(arguments, {"databases": [asdict(each) for each in found]}, _lines(found))
    if arguments.action == "sweep":
        return _sweep(service, arguments)
    if arguments.action == "add":
        # An address on the command line can be seen by others on this machine, and it holds a password.
        address = sys.stdin.readline().strip() if arguments.address == "-" else arguments.address
        if not address or store_fault(address):
            raise InvalidSetting(
                "that is not the address of a PostgreSQL database",
                hint="write postgresql://user:secret@host/database, or - and give it on standard input",
            )
        added = held.add(arguments.name, address, arguments.weight)
        return show(arguments, asdict(added), [f"Added {added.name}: new wikis go there too.", *_lines([added])])
    if arguments.action == "remove":
        held.remove(arguments.name)
        lines = [f"Removed {arguments.name} from the databases that hold wikis; nothing in it was touched."]
        return show(arguments, {"removed": arguments.name}, lines)
    held.open(arguments.name, to_new=arguments.action == "open")
    told = "New wikis go there." if arguments.action == "open" else "No new wikis go there; those that are there stay."
    return show(arguments, {"name": arguments.name, "open": arguments.action == "open"}, [told])


def _sweep(service: Service, arguments: Namespace) -> int:
    """Remove indexes of which no wiki is registered; never where the registry lists none at all."""
    held, known = databases_of(service), {wiki.id for wiki in service.wikis()}
    finished = list(held.unfinished())
    for wiki_id in finished:
        held.finish(wiki_id)
    removed = [name for each in service.workshop.store.ids() if each not in known for name in _dropped(service, each)]
    lines = [*(f"  {name}" for name in removed), f"Removed {output.counted(len(removed), 'thing')} of no wiki."]
    if finished:
        lines.append(f"Removed what {output.counted(len(finished), 'move')} had left at another place.")
    return show(arguments, {"removed": removed, "moves_finished": finished}, lines)


def _dropped(service: Service, wiki_id: str) -> Sequence[str]:
    try:
        return service.workshop.store.drop(wiki_id)
    except WikiholtError as error:
        complain(error, wiki_id)
        return []


def upgrade(service: Service, arguments: Namespace) -> int:
    """Bring every wiki's tables to the layout of this program; whoever was cut off begins again."""
    shown = sys.stderr.isatty() and not arguments.json
    done = 0
    with counted_up("upgrade", "wiki", shown=shown) as tell:

        def progress(now: int, total: int) -> None:
            nonlocal done
            done = now
            tell(now, total)

        failed = databases_of(service).upgrade(progress)
    for wiki_id, reason in failed:
        sys.stderr.write(f"error: {wiki_id}: {output.line(reason)}\n")
    lines = [f"{output.counted(done, 'wiki')} brought to the layout of this version."]
    if failed:
        lines.append("Run it again once the reason is gone; what is done is done.")
    left = [{"wiki_id": wiki_id, "reason": reason} for wiki_id, reason in failed]
    show(arguments, {"upgraded": done, "failed": left}, lines)
    return IndexFault.exit_code if failed else 0


def _lines(found: Sequence[DatabaseStanding]) -> list[str]:
    style = output.Style.of(sys.stdout)
    lines = []
    for each in found:
        state = style.bad("away") if each.away else f"PostgreSQL {each.server}, pgvector {each.vector}"
        closed = "" if each.open else ", closed to new wikis"
        lines.append(f"{style.bold(each.name)}  {output.counted(each.wikis, 'wiki')}{closed}; {state}")
        lines.append(style.dim(f"  {output.line(each.address)}"))
        if each.away:
            lines.append(f"  {output.line(each.away)}")
        if each.behind:
            lines.append(style.warn(f"  {output.counted(each.behind, 'wiki')} of an older layout: `wikiholt upgrade`"))
    return lines


def databases_of(service: Service) -> Databases:
    """The databases of a service that has some; raises InvalidSetting."""
    held = service.workshop.databases
    if held is None:
        raise InvalidSetting(
            "The wikis are kept in files here; there are no databases.",
            hint='Set store = "postgresql://…", or move there: `wikiholt move --all --to postgresql://…`.',
        )
    return held
