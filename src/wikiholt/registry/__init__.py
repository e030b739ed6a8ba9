"""Which wikis there are: the slug people type, the opaque id that names things on disk, hosts, keys, and the source."""

from wikiholt.registry.backups import RegistryBackups, Restored
from wikiholt.registry.hosts import LOOPBACK, host_named
from wikiholt.registry.keys import Keys
from wikiholt.registry.loss import RECOVER, Remains
from wikiholt.registry.schema import RESTORE
from wikiholt.registry.sessions import RegistryDatabase
from wikiholt.registry.slugs import validate_slug
from wikiholt.registry.taking import lacking
from wikiholt.registry.wikis import Registry, Struck

__all__ = [
    "LOOPBACK",
    "RECOVER",
    "RESTORE",
    "Keys",
    "Registry",
    "RegistryBackups",
    "RegistryDatabase",
    "Remains",
    "Restored",
    "Struck",
    "host_named",
    "lacking",
    "validate_slug",
]
