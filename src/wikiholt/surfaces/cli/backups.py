"""`wikiholt backup` and `wikiholt restore`."""

import logging
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from wikiholt.errors import InvalidSetting, RepositoryReplaced, WikiholtError
from wikiholt.model import Backup, RegistryBackup
from wikiholt.service import Service
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import complain, show
from wikiholt.surfaces.documents.backups import backup_document, registry_backup_document
from wikiholt.surfaces.documents.moments import until

_LOG = logging.getLogger(__name__)

_REGISTRY = "the registry"


def backup(service: Service, arguments: Namespace) -> int:
    """Back up one wiki, the registry, or with neither named everything; one that fails keeps no other from it."""
    _one_of(arguments)
    wikis = _chosen(service, arguments)
    done: list[Mapping[str, Any]] = []
    lines: list[str] = []
    code = 0
    for slug in wikis:
        try:
            taken = service.wiki(slug).backups.take()
        except WikiholtError as error:
            if arguments.slug:
                raise
            complain(error, slug)
            done.append({"wiki": slug, "error": {"code": error.code, "message": error.message}})
            code = code or error.exit_code
            continue
        done.append({"wiki": slug, **backup_document(taken)})
        lines.append(f"{_mark()} {slug}: {_told(taken)}")
    document: dict[str, Any] = {"wikis": done}
    if not arguments.slug:
        kept = service.registry.backups.take()
        document["registry"] = registry_backup_document(kept)
        lines.append(f"{_mark()} {_REGISTRY}: {_told(kept)}")
    show(arguments, done[0] if arguments.slug else document, lines)
    return code


def restore(service: Service, arguments: Namespace) -> int:
    """Have a backup answer again, or list what there is."""
    _one_of(arguments)
    if arguments.list:
        return _list(service, arguments)
    if arguments.empty:
        return _start_empty_registry(service, arguments)
    at = until(arguments.at) if arguments.at is not None else None
    if arguments.registry:
        return _restore_registry(service, arguments, at)
    if not arguments.slug:
        raise InvalidSetting(
            "Which wiki is to be restored?",
            hint="Write `wikiholt restore SLUG`, or --registry, or --list to see what there is.",
        )
    restored = service.wiki(arguments.slug).restore(at)
    lines = [
        f"{_mark()} {arguments.slug}: restored {_told(restored)}",
        f"Next: wikiholt sync {arguments.slug}  (a service that runs does that by itself)",
    ]
    return show(arguments, {"wiki": arguments.slug, **backup_document(restored)}, lines)


def _restore_registry(service: Service, arguments: Namespace, at: datetime | None) -> int:
    restored = service.registry.backups.restore(at)
    lines = [f"{_mark()} {_REGISTRY}: restored {_told(restored.backup)}"]
    if restored.aside:
        lines.append(f"What was there lies beside it now, as {restored.aside}.")
    if restored.left_out:
        lines.append(f"Left out, for they were revoked since: {', '.join(key.id for key in restored.left_out)}")
    if not restored.sure:
        lines.append("Keys revoked after that time open wikis again: look through `wikiholt key list`.")
    document = {
        "registry": registry_backup_document(restored.backup),
        "left_out": [key.id for key in restored.left_out],
        "aside": restored.aside,
        "sure": restored.sure,
    }
    return show(arguments, document, lines)


def _start_empty_registry(service: Service, arguments: Namespace) -> int:
    if not arguments.registry or arguments.at is not None:
        raise InvalidSetting("Only a registry can be empty.", hint="Write `wikiholt restore --registry --empty`.")
    aside = service.registry.backups.start_empty()
    lines = [f"{_mark()} {_REGISTRY}: started without wikis and keys. Nothing is open without a key."]
    if aside:
        lines.append(f"What was there lies beside it now, as {aside}.")
    lines.append("Next: wikiholt key create --operator, then add each wiki again: wikiholt add SLUG PATH")
    return show(arguments, {"registry": None, "aside": aside}, lines)


def follow_registry(service: Service, patience: float) -> None:
    """Back up the registry after a command that may have changed it; that it cannot be is no failure of the command."""
    try:
        service.registry.backups.follow(patience)
    except WikiholtError as error:
        _LOG.warning("no backup of the registry could be made: %s", error.message)


def _list(service: Service, arguments: Namespace) -> int:
    lines: list[str] = []
    document: dict[str, Any] = {}
    if not arguments.registry:
        document["wikis"] = []
        for slug in _chosen(service, arguments):
            try:
                backups = service.wiki(slug).backups
            except RepositoryReplaced as error:
                if arguments.slug:
                    raise
                complain(error, slug)
                continue
            # Every byte is read where somebody asks for one wiki; for all of them that could take hours.
            found = backups.verified() if arguments.slug else backups.list()
            document["wikis"].append({"wiki": slug, "backups": [backup_document(each) for each in found]})
            lines += _listed(slug, found)
    if not arguments.slug:
        kept = service.registry.backups.list()
        document["registry"] = [registry_backup_document(each) for each in kept]
        lines += _listed(_REGISTRY, kept)
    return show(arguments, document["wikis"][0] if arguments.slug else document, lines)


def _listed(name: str, found: Sequence[Backup] | Sequence[RegistryBackup]) -> list[str]:
    style = output.Style.of(sys.stdout)
    if not found:
        return [style.bold(name), "  no backup yet"]
    return [style.bold(name), *(f"  {_told(each)}" for each in found)]


def _told(backup: Backup | RegistryBackup) -> str:
    """One line on a backup: when, how large, what is in it."""
    when = f"{backup.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    if backup.fault:
        return f"{when}  {output.Style.of(sys.stdout).bad('cannot be used')}: {output.line(backup.fault)}"
    if isinstance(backup, RegistryBackup):
        held = f"{output.counted(backup.wikis, 'wiki')}, {output.counted(backup.keys, 'key')}"
    else:
        assert backup.state is not None
        at = f", at {backup.state.revision[:10]}" if backup.state.revision else ""
        held = f"{output.counted(backup.state.pages, 'page')}{at}"
    return f"{when}  {output.size(backup.bytes):>9}  {held}  ({backup.occasion})"


def _chosen(service: Service, arguments: Namespace) -> list[str]:
    if arguments.registry:
        return []
    return [arguments.slug] if arguments.slug else [wiki.slug for wiki in service.wikis()]


def _one_of(arguments: Namespace) -> None:
    if arguments.slug and arguments.registry:
        raise InvalidSetting("A wiki and the registry at once cannot be meant.", hint="Give SLUG or --registry.")


def _mark() -> str:
    return output.Style.of(sys.stdout).good("✓")
