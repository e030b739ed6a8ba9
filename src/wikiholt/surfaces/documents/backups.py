"""Backups as documents. No path of this machine is in them."""

from typing_extensions import TypedDict

from wikiholt.model import Backup, RegistryBackup
from wikiholt.surfaces.documents.moments import format_date


class BackupDocument(TypedDict):
    """One wiki's index as it was; what it holds is null, and `fault` says why, where it cannot be used."""

    name: str
    taken_at: str
    occasion: str
    bytes: int
    generation: int | None
    version: int | None
    revision: str | None
    model: str | None
    pages: int | None
    chunks: int | None
    fault: str | None


class RegistryBackupDocument(TypedDict):
    """The registry as it was."""

    name: str
    taken_at: str
    occasion: str
    bytes: int
    wikis: int
    keys: int
    fault: str | None


def build_backup_document(backup: Backup) -> BackupDocument:
    state = backup.state
    return {
        "name": backup.name,
        "taken_at": format_date(backup.taken_at),
        "occasion": str(backup.reason),
        "bytes": backup.bytes,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "revision": state.revision if state else None,
        "model": state.recipe.fingerprint if state else None,
        "pages": state.pages if state else None,
        "chunks": state.chunks if state else None,
        "fault": backup.fault or None,
    }


def build_registry_backup_document(backup: RegistryBackup) -> RegistryBackupDocument:
    return {
        "name": backup.name,
        "taken_at": format_date(backup.taken_at),
        "occasion": str(backup.reason),
        "bytes": backup.bytes,
        "wikis": backup.wikis,
        "keys": backup.keys,
        "fault": backup.fault or None,
    }
