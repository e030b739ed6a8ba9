"""Which wikis there are: the slug people type, the opaque id that names things on disk, hosts, keys, and the source."""

from wikiholt.registry.backups import RegistryBackups, RegistryRestore
from wikiholt.registry.hosts import LOOPBACK_HOSTS, parse_host_header
from wikiholt.registry.keys import KeyStore
from wikiholt.registry.loss import RECOVERY_HINT, LeftoverData
from wikiholt.registry.schema import RESTORE_HINT
from wikiholt.registry.sessions import RegistryDatabase
from wikiholt.registry.slugs import validate_slug
from wikiholt.registry.taking import find_missing_rows
from wikiholt.registry.wikis import Registry, RemovedEntry

__all__ = [
    "LOOPBACK_HOSTS",
    "RECOVERY_HINT",
    "RESTORE_HINT",
    "KeyStore",
    "Registry",
    "RegistryBackups",
    "RegistryDatabase",
    "LeftoverData",
    "RegistryRestore",
    "RemovedEntry",
    "parse_host_header",
    "find_missing_rows",
    "validate_slug",
]
