"""`wikiholt backup` and `wikiholt restore`."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from wikiholt.api.documents.admin_documents import build_backup_document, build_registry_backup_document
from wikiholt.domain.dates import parse_until
from wikiholt.domain.wiki import Backup, BackupReason, RegistryBackup
from wikiholt.errors import InvalidSetting, WikiholtError
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, format_size, to_safe_line
from wikiholt.wikis.service import WikiService

_log = logging.getLogger(__name__)

_REGISTRY_LABEL = "the registry"
_BACKUP_INTERVAL_S = 300.0
"""A large registry is not backed up more often."""


def add_arguments(commands: Subparsers) -> None:
    backup = add_command(commands, "backup", run_backup)
    backup.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: all wikis, and the registry)")
    backup.add_argument("--registry", action="store_true", help="only the registry: wikis, their settings, keys")

    restore = add_command(commands, "restore", run_restore, changes_registry=True)
    restore.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki")
    restore.add_argument("--registry", action="store_true", help="the registry: wikis, their settings, keys")
    restore.add_argument("--list", action="store_true", help="list the backups, newest first")
    restore.add_argument(
        "--empty",
        action="store_true",
        help="with --registry: if there is no usable backup, start a registry without wikis and keys; "
        "no wiki can be read without a key",
    )
    restore.add_argument(
        "--at",
        metavar="TIME",
        help="the newest not created after: 2026-11-15 (end of the day), 2026-11-15T12:30, or 12h, 7d ago",
    )


def run_backup(context: CommandContext) -> int:
    """Back up one wiki, the registry, or everything. If one of all wikis fails, the others are backed up anyway."""
    arguments, service = context.arguments, context.service
    _check_target(context)
    lines: list[str] = []

    def back_up(slug: str) -> Mapping[str, Any]:
        backup = service.get_handle(slug).backups.create()
        lines.append(_format_done(context, slug, _format_backup(backup, context.style)))
        return {"wiki": slug, **build_backup_document(backup)}

    documents, exit_code = context.run_for_each(_get_slugs(context), back_up)
    document: dict[str, Any] = {"wikis": documents}
    if not arguments.slug:
        service.remove_leftovers()
        registry_backup = service.registry.backups.create()
        document["registry"] = build_registry_backup_document(registry_backup)
        lines.append(_format_done(context, _REGISTRY_LABEL, _format_backup(registry_backup, context.style)))
    context.print_result(documents[0] if arguments.slug else document, lines)
    return exit_code


def run_restore(context: CommandContext) -> int:
    """Restore a wiki or the registry, or list the backups."""
    arguments = context.arguments
    _check_target(context)
    if arguments.list:
        return _list_backups(context)
    if arguments.empty:
        return _start_empty_registry(context)
    at = parse_until(arguments.at) if arguments.at is not None else None
    if arguments.registry:
        return _restore_registry(context, at)
    if not arguments.slug:
        raise InvalidSetting(
            "Name the wiki to restore.",
            hint="Write `wikiholt restore SLUG`, or --registry, or --list to see the backups.",
        )
    restored = context.service.get_handle(arguments.slug).restore(at)
    lines = [
        _format_done(context, arguments.slug, f"restored {_format_backup(restored, context.style)}"),
        context.complete(f"Next: wikiholt sync {arguments.slug}  (a running service does it automatically)"),
    ]
    return context.print_result({"wiki": arguments.slug, **build_backup_document(restored)}, lines)


def _restore_registry(context: CommandContext, at: datetime | None) -> int:
    restored = context.service.registry.backups.restore(at)
    omitted = [key.id for key in restored.omitted_keys]
    lines = [_format_done(context, _REGISTRY_LABEL, f"restored {_format_backup(restored.backup, context.style)}")]
    if restored.quarantined_as:
        lines.append(f"The previous registry was renamed to {restored.quarantined_as}.")
    if omitted:
        reason = "they were revoked" if restored.revocations_known else "the list of revoked keys is lost"
        lines.append(f"Not restored, because {reason}: {', '.join(omitted)}")
    if not restored.revocations_known:
        lines.append(context.complete("Next: wikiholt key create --operator, and new keys for the wikis"))
    document = {
        "registry": build_registry_backup_document(restored.backup),
        "omitted_keys": omitted,
        "quarantined_as": restored.quarantined_as,
        "revocations_known": restored.revocations_known,
    }
    return context.print_result(document, lines)


def _start_empty_registry(context: CommandContext) -> int:
    if not context.arguments.registry or context.arguments.at is not None:
        raise InvalidSetting("Only a registry can be empty.", hint="Write `wikiholt restore --registry --empty`.")
    quarantined_as = context.service.registry.backups.start_empty()
    lines = [
        _format_done(context, _REGISTRY_LABEL, "started without wikis and keys. Nothing can be read without a key.")
    ]
    if quarantined_as:
        lines.append(f"The previous registry was renamed to {quarantined_as}.")
    text = "Next: wikiholt key create --operator, then add each wiki again: wikiholt add SLUG PATH"
    lines.append(context.complete(text))
    return context.print_result({"registry": None, "quarantined_as": quarantined_as}, lines)


def backup_registry_if_due(service: WikiService) -> None:
    """Back up the registry after a command that may have changed it. A failure is only logged."""
    try:
        service.remove_leftovers()
        service.registry.backups.create_if_changed(_BACKUP_INTERVAL_S, BackupReason.AFTER_CHANGE)
    except WikiholtError as error:
        _log.warning("the registry could not be backed up: %s", error.message)


def _list_backups(context: CommandContext) -> int:
    arguments, service = context.arguments, context.service
    lines: list[str] = []

    def list_backups(slug: str) -> Mapping[str, Any]:
        directory = service.get_handle(slug).backups
        # Verifying reads every byte: fine for one wiki, but it could take hours for all.
        backups = directory.list_verified() if arguments.slug else directory.list()
        lines.extend(_format_backups(slug, backups, context.style))
        return {"wiki": slug, "backups": [build_backup_document(backup) for backup in backups]}

    documents, _ = context.run_for_each(_get_slugs(context), list_backups)
    document: dict[str, Any] = {} if arguments.registry else {"wikis": documents}
    if not arguments.slug:
        registry_backups = service.registry.backups.list()
        document["registry"] = [build_registry_backup_document(backup) for backup in registry_backups]
        lines += _format_backups(_REGISTRY_LABEL, registry_backups, context.style)
    return context.print_result(documents[0] if arguments.slug else document, lines)


def _format_backups(name: str, backups: Sequence[Backup] | Sequence[RegistryBackup], style: TerminalStyle) -> list[str]:
    lines = [f"  {_format_backup(backup, style)}" for backup in backups]
    return [style.format_bold(name), *(lines or ["  no backup yet"])]


def _format_backup(backup: Backup | RegistryBackup, style: TerminalStyle) -> str:
    """One line: time, size, content and reason."""
    when = f"{backup.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    if backup.fault:
        return f"{when}  {style.format_error('unusable')}: {to_safe_line(backup.fault)}"
    if isinstance(backup, RegistryBackup):
        content = f"{format_count(backup.wikis, 'wiki')}, {format_count(backup.keys, 'key')}"
    else:
        assert backup.state is not None
        at = f", at {backup.state.revision[:10]}" if backup.state.revision else ""
        content = f"{format_count(backup.state.pages, 'page')}{at}"
    return f"{when}  {format_size(backup.bytes):>9}  {content}  ({backup.reason})"


def _format_done(context: CommandContext, name: str, text: str) -> str:
    return f"{context.style.format_success('✓')} {name}: {text}"


def _get_slugs(context: CommandContext) -> list[str]:
    if context.arguments.registry:
        return []
    slug = context.arguments.slug
    return [slug] if slug else [wiki.slug for wiki in context.service.list_wikis()]


def _check_target(context: CommandContext) -> None:
    if context.arguments.slug and context.arguments.registry:
        raise InvalidSetting("A wiki and --registry cannot be combined.", hint="Give SLUG or --registry.")
