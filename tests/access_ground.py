"""A registry with wikis in it, and the rules of access over it."""

from pathlib import Path

from wikiholt.access import Access, Grant, Visit
from wikiholt.model import Scope
from wikiholt.registry import Registry

DOMAIN = "farm.example"


OWN = "search.example"


HERE = "127.0.0.1:8765"


class Farm:
    """A registry with wikis in it, and the rules over it."""

    def __init__(self, directory: Path, *, public: bool = False, domain: str = DOMAIN) -> None:
        self.path = directory / "registry.sqlite"
        self.registry = Registry(self.path)
        self.access = Access(self.registry, domain=domain, public=public, own_hosts=(OWN,))

    def add(self, slug: str, **wiki_settings: str) -> None:
        self.registry.add(slug, f"/srv/{slug}", wiki_settings)

    def key(self, slug: str | None, scope: Scope = Scope.READ) -> str:
        wiki_id = self.registry.get(slug).id if slug else None
        return self.registry.keys.create(wiki_id, scope if slug else Scope.ADMIN)[1]

    def grant(self, needed: Scope = Scope.READ, **visit: object) -> Grant:
        return self.access.wiki(Visit(**visit), needed)  # type: ignore[arg-type]

    def slug(self, **visit: object) -> str:
        return self.grant(**visit).wiki.slug  # type: ignore[arg-type]
