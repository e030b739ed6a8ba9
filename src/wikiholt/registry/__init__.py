"""Which wikis there are: the slug people type, the opaque id that names things on disk, and where the pages lie."""

from wikiholt.registry.slugs import validate_slug
from wikiholt.registry.wikis import Registry

__all__ = ["Registry", "validate_slug"]
