"""A registry with wikis, and access control for it."""

from pathlib import Path

from tests.support.wait import TIMEOUT_S
from wikiholt.domain.wiki import Scope
from wikiholt.wikis.access import AccessPolicy, Grant, RequestIdentity
from wikiholt.wikis.registry import Registry

DOMAIN = "farm.example"


OWN_HOST = "search.example"


LOCAL_HOST = "127.0.0.1:8765"


class AccessFixture:
    """A registry with wikis, and access control for it."""

    def __init__(self, directory: Path, *, public: bool = False, domain: str = DOMAIN) -> None:
        self.path = directory / "registry.sqlite"
        self.registry = Registry(self.path, timeout_s=TIMEOUT_S)
        self.access = AccessPolicy(self.registry, domain=domain, public=public, own_hosts=(OWN_HOST,))

    def add_wiki(self, slug: str, **wiki_settings: str) -> None:
        self.registry.add(slug, f"/srv/{slug}", wiki_settings)

    def create_key(self, slug: str | None, scope: Scope = Scope.READ) -> str:
        wiki_id = self.registry.get(slug).id if slug else None
        return self.registry.keys.create(wiki_id, scope if slug else Scope.ADMIN)[1]

    def authorize(self, required_scope: Scope = Scope.READ, **visit: object) -> Grant:
        return self.access.authorize(RequestIdentity(**visit), required_scope)  # type: ignore[arg-type]

    def resolve_slug(self, **visit: object) -> str:
        return self.authorize(**visit).wiki.slug  # type: ignore[arg-type]
