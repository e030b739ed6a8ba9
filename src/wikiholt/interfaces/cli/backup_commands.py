"""`wikiholt backup` and `wikiholt restore`."""

import logging
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from wikiholt.domain.wiki import Backup, RegistryBackup
from wikiholt.errors import InvalidSetting, RepositoryReplaced, WikiholtError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.wiki_commands import print_error, print_result
from wikiholt.interfaces.schemas.admin_schemas import build_backup_document, build_registry_backup_document
from wikiholt.interfaces.schemas.common import parse_until
from wikiholt.wikis.service import WikiService

_log = logging.getLogger(__name__)

_REGISTRY_LABEL = "the registry"


def run_backup(service: WikiService, arguments: Namespace) -> int:
    """Back up one wiki, the registry, or with neither named everything; one that fails keeps no other from it."""
    _check_target(arguments)
    wikis = _get_slugs(service, arguments)
    done: list[Mapping[str, Any]] = []
    lines: list[str] = []
    code = 0
    for slug in wikis:
        try:
            taken = service.get_handle(slug).backups.create()
        except WikiholtError as error:
            if arguments.slug:
                raise
            print_error(error, slug)
            done.append({"wiki": slug, "error": {"code": error.code, "message": error.message}})
            code = code or error.exit_code
            continue
        done.append({"wiki": slug, **build_backup_document(taken)})
        lines.append(f"{_format_check_mark()} {slug}: {_format_backup(taken)}")
    document: dict[str, Any] = {"wikis": done}
    if not arguments.slug:
        kept = service.registry.backups.create()
        document["registry"] = build_registry_backup_document(kept)
        lines.append(f"{_format_check_mark()} {_REGISTRY_LABEL}: {_format_backup(kept)}")
    print_result(arguments, done[0] if arguments.slug else document, lines)
    return code


def run_restore(service: WikiService, arguments: Namespace) -> int:
    """Have a backup answer again, or list what there is."""
    _check_target(arguments)
    if arguments.list:
        return _run_list(service, arguments)
    if arguments.empty:
        return _start_empty_registry(service, arguments)
    at = parse_until(arguments.at) if arguments.at is not None else None
    if arguments.registry:
        return _restore_registry(service, arguments, at)
    if not arguments.slug:
        raise InvalidSetting(
            "Which wiki is to be restored?",
            hint="Write `wikiholt restore SLUG`, or --registry, or --list to see what there is.",
        )
    restored = service.get_handle(arguments.slug).restore(at)
    lines = [
        f"{_format_check_mark()} {arguments.slug}: restored {_format_backup(restored)}",
        f"Next: wikiholt sync {arguments.slug}  (a service that runs does that by itself)",
    ]
    return print_result(arguments, {"wiki": arguments.slug, **build_backup_document(restored)}, lines)


def _restore_registry(service: WikiService, arguments: Namespace, at: datetime | None) -> int:
    restored = service.registry.backups.restore(at)
    lines = [f"{_format_check_mark()} {_REGISTRY_LABEL}: restored {_format_backup(restored.backup)}"]
    if restored.quarantined_as:
        lines.append(f"What was there lies beside it now, as {restored.quarantined_as}.")
    if restored.omitted_keys:
        lines.append(f"Left out, for they were revoked since: {', '.join(key.id for key in restored.omitted_keys)}")
    if not restored.revocations_known:
        lines.append("Keys revoked after that time open wikis again: look through `wikiholt key list`.")
    document = {
        "registry": build_registry_backup_document(restored.backup),
        "left_out": [key.id for key in restored.omitted_keys],
        "aside": restored.quarantined_as,
        "sure": restored.revocations_known,
    }
    return print_result(arguments, document, lines)


def _start_empty_registry(service: WikiService, arguments: Namespace) -> int:
    if not arguments.registry or arguments.at is not None:
        raise InvalidSetting("Only a registry can be empty.", hint="Write `wikiholt restore --registry --empty`.")
    aside = service.registry.backups.start_empty()
    lines = [
        f"{_format_check_mark()} {_REGISTRY_LABEL}: started without wikis and keys. Nothing is open without a key."
    ]
    if aside:
        lines.append(f"What was there lies beside it now, as {aside}.")
    lines.append("Next: wikiholt key create --operator, then add each wiki again: wikiholt add SLUG PATH")
    return print_result(arguments, {"registry": None, "aside": aside}, lines)


def backup_registry_if_due(service: WikiService, min_interval_s: float) -> None:
    """Back up the registry after a command that may have changed it; that it cannot be is no failure of the command."""
    try:
        service.registry.backups.create_if_changed(min_interval_s)
    except WikiholtError as error:
        _log.warning("no backup of the registry could be made: %s", error.message)


def _run_list(service: WikiService, arguments: Namespace) -> int:
    lines: list[str] = []
    document: dict[str, Any] = {}
    if not arguments.registry:
        document["wikis"] = []
        for slug in _get_slugs(service, arguments):
            try:
                backups = service.get_handle(slug).backups
            except RepositoryReplaced as error:
                if arguments.slug:
                    raise
                print_error(error, slug)
                continue
            # Every byte is read where somebody asks for one wiki; for all of them that could take hours.
            found = backups.list_verified() if arguments.slug else backups.list()
            document["wikis"].append({"wiki": slug, "backups": [build_backup_document(each) for each in found]})
            lines += _format_backups(slug, found)
    if not arguments.slug:
        kept = service.registry.backups.list()
        document["registry"] = [build_registry_backup_document(each) for each in kept]
        lines += _format_backups(_REGISTRY_LABEL, kept)
    return print_result(arguments, document["wikis"][0] if arguments.slug else document, lines)


def _format_backups(name: str, backups: Sequence[Backup] | Sequence[RegistryBackup]) -> list[str]:
    style = output.TerminalStyle.from_stream(sys.stdout)
    if not backups:
        return [style.format_bold(name), "  no backup yet"]
    return [style.format_bold(name), *(f"  {_format_backup(each)}" for each in backups)]


def _format_backup(backup: Backup | RegistryBackup) -> str:
    """One line on a backup: when, how large, what is in it."""
    when = f"{backup.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    if backup.fault:
        return f"{when}  {output.TerminalStyle.from_stream(sys.stdout).format_error('cannot be used')}: {output.to_safe_line(backup.fault)}"
    if isinstance(backup, RegistryBackup):
        held = f"{output.format_count(backup.wikis, 'wiki')}, {output.format_count(backup.keys, 'key')}"
    else:
        assert backup.state is not None
        at = f", at {backup.state.revision[:10]}" if backup.state.revision else ""
        held = f"{output.format_count(backup.state.pages, 'page')}{at}"
    return f"{when}  {output.format_size(backup.bytes):>9}  {held}  ({backup.reason})"


def _get_slugs(service: WikiService, arguments: Namespace) -> list[str]:
    if arguments.registry:
        return []
    return [arguments.slug] if arguments.slug else [wiki.slug for wiki in service.list_wikis()]


def _check_target(arguments: Namespace) -> None:
    if arguments.slug and arguments.registry:
        raise InvalidSetting("A wiki and the registry at once cannot be meant.", hint="Give SLUG or --registry.")


def _format_check_mark() -> str:
    return output.TerminalStyle.from_stream(sys.stdout).format_success("✓")
