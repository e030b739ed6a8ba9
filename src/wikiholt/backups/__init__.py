"""Copies that are kept: written beside their place, verified, renamed into it, and found again when they are needed."""

from wikiholt.backups.backups import BackupPlan, Backups
from wikiholt.backups.shelf import Kept, Shelf

__all__ = ["BackupPlan", "Backups", "Kept", "Shelf"]
