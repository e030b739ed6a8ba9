"""`wikiholt move`: wikis to another database, or all of them to another store."""

import sys
from argparse import Namespace
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from wikiholt.errors import BadInput, InvalidSetting, WikiholtError
from wikiholt.grounds import same_ground
from wikiholt.model import Wiki
from wikiholt.moving import Move, Moved, Mover, Outcome
from wikiholt.ports import Databases
from wikiholt.service import Service
from wikiholt.settings import Settings
from wikiholt.settings.faults import store_fault
from wikiholt.surfaces import documents
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import complain, show
from wikiholt.surfaces.cli.databases import databases_of
from wikiholt.wiring import build

_FAILED = "could not be moved"
_TOLD = {Outcome.MOVED: "moved", Outcome.THERE: "there already", Outcome.BARE: "registered; it has no index yet"}
_WOULD = {Outcome.MOVED: "would be moved", Outcome.THERE: "is there already", Outcome.BARE: "has no index yet"}


def move(service: Service, arguments: Namespace, settings: Settings) -> int:
    """Move wikis to another database, or all of them to another store."""
    if bool(arguments.slugs) == arguments.all:
        raise BadInput("Which wikis are to be moved?", hint="Name them, or write --all; not both.")
    if arguments.slugs or arguments.origin:
        return _move_some(service, arguments)
    return _move_all(service, arguments, settings)


def _move_some(service: Service, arguments: Namespace) -> int:
    """From one database of the home to another, each while it answers."""
    held = databases_of(service)
    names = {each.name for each in held.standing()}
    for name in filter(None, (arguments.to, arguments.origin)):
        if name not in names:
            raise InvalidSetting(f"no database is called {name}", hint="see `wikiholt database list`")
    wikis = [service.registry.get(slug) for slug in arguments.slugs] or service.wikis()
    places = {wiki.id: held.place(wiki.id) for wiki in wikis}
    wikis = [wiki for wiki in wikis if not arguments.origin or places[wiki.id] == arguments.origin]
    code, done = 0, []
    for wiki in wikis:
        moved = _to_database(held, wiki, places[wiki.id], arguments)
        code = code or (moved.error.exit_code if moved.error else 0)
        done.append(moved)
        _tell(moved, arguments)
    return show(arguments, {"wikis": [_document(each) for each in done]}, []) or code


def _to_database(held: Databases, wiki: Wiki, place: str | None, arguments: Namespace) -> Moved:
    if place is None:
        return Moved(wiki.slug, Outcome.BARE)
    if arguments.dry_run:
        return Moved(wiki.slug, Outcome.THERE if place == arguments.to else Outcome.MOVED)
    try:
        return Moved(wiki.slug, Outcome.MOVED if held.move(wiki.id, arguments.to) else Outcome.THERE)
    except WikiholtError as error:
        return Moved(wiki.slug, Outcome.FAILED, error=error)


def _move_all(service: Service, arguments: Namespace, settings: Settings) -> int:
    """From one store to another: embedded to PostgreSQL, or back."""
    to = sys.stdin.readline().strip() if arguments.to == "-" else arguments.to
    there = _target(service, settings, to)
    with closing(build(there)) as target:
        mover = Mover(service, target, settings.data / "moving", lambda moved: _tell(moved, arguments))
        done = mover.foresee() if arguments.dry_run else mover.move()
        if arguments.dry_run:
            for moved in done.wikis:
                _tell(moved, arguments)
    failed = [each.error for each in done.wikis if each.error]
    show(arguments, _move_document(done), [] if failed else _next(done, there, arguments))
    return failed[0].exit_code if failed else 0


def _target(service: Service, settings: Settings, to: str) -> Settings:
    """The settings of where everything is to go; raises InvalidSetting."""
    if "://" in to:
        if store_fault(to):
            raise InvalidSetting("--to is no address of a PostgreSQL database", hint="write postgresql://…")
        there = replace(settings, store=to)
    else:
        held = service.workshop.databases
        if held is not None and not Path(to).is_dir() and to in {each.name for each in held.standing()}:
            raise InvalidSetting(
                f"{to} is a database here, not another store",
                hint="write --from DATABASE beside it to move the wikis of one database to another",
            )
        there = replace(settings, store="", data=Path(to).expanduser())
        if not to.strip() or there.data.is_file():
            raise InvalidSetting("--to names no directory", hint="give a directory, or postgresql://…")
    if same_ground(settings, there):
        raise InvalidSetting("the wikis are there already", hint="give another place than the one that is set")
    return there


def _next(done: Move, there: Settings, arguments: Namespace) -> list[str]:
    if arguments.dry_run:
        return [f"{output.counted(done.rows, 'row')} of the registry would be copied. Nothing was changed."]
    lines = [
        f"{output.counted(len(done.wikis), 'wiki')} there, checked; {output.counted(done.rows, 'row')} registered.",
        "What was here is left as it is.",
    ]
    if done.left:
        lines.append(f"Added meanwhile, and not moved yet: {', '.join(done.left)}. Run the same command again.")
    if there.store:
        lines.append('Next: set store = "postgresql://…" (or WIKIHOLT_STORE) for every node, and start them again.')
    else:
        lines.append(f"Next: leave store unset and set data = {str(there.data)!r}, and start the service again.")
    return lines


def _tell(moved: Moved, arguments: Namespace) -> None:
    if moved.error is not None:
        complain(moved.error, f"{moved.slug}: {_FAILED}")
    elif not arguments.json:
        counts = f" ({output.counted(moved.pages, 'page')})" if moved.pages else ""
        told = (_WOULD if arguments.dry_run else _TOLD)[moved.outcome]
        output.say([f"{moved.slug}: {told}{counts}"])


def _document(moved: Moved) -> dict[str, object]:
    found: dict[str, object] = {"wiki": moved.slug, "outcome": moved.outcome.value}
    if moved.pages:
        found |= {"pages": moved.pages, "chunks": moved.chunks}
    return found | ({"error": documents.error_document(moved.error)} if moved.error else {})


def _move_document(done: Move) -> dict[str, object]:
    return {"wikis": [_document(each) for each in done.wikis], "registry_rows": done.rows, "left": list(done.left)}
