"""Copies that are kept: written beside their place, verified, renamed into it, and found again when they are needed."""

from wikiholt.backups.backups import BackupPolicy, IndexBackups
from wikiholt.backups.shelf import BackupFile, BackupDirectory

__all__ = ["BackupPolicy", "IndexBackups", "BackupFile", "BackupDirectory"]
