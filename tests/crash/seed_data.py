"""The wikis and keys that every round of a crash test starts with."""

from collections.abc import Callable
from pathlib import Path

from wikiholt.domain.wiki import Scope
from wikiholt.wikis.service import WikiService


def create_seed_data(
    service: WikiService, directory: Path, on_created: Callable[[str], None] = lambda _: None
) -> dict[str, object]:
    """Create wikis with every kind of file from the repositories in a directory, and keys. Closes the service.

    `on_created` is called with the id of each wiki.
    """
    sources = {"victim": str(directory / "victim"), "bystander": str(directory / "bystander")}
    sources["mirror"] = f"file://{directory / 'upstream'}"
    if (directory / "folder").exists():
        sources["folder"] = str(directory / "folder")
    for slug, source in sources.items():
        settings = {"kind": "directory"} if slug == "folder" else {}
        service.add(slug, source, settings | {"files": "docs,code,pictures"} if slug == "victim" else settings)
        wiki = service.get_handle(slug)
        wiki.fetch()
        wiki.sync()
        wiki.backups.create()
        wiki.check_integrity()
        on_created(wiki.wiki.id)
    ids = {wiki.slug: wiki.id for wiki in service.list_wikis()}
    keys = service.registry.keys
    revoked, dead = keys.create(ids["bystander"], Scope.READ)
    keys.revoke(revoked.id)
    made = [keys.create(ids["bystander"], Scope.READ) for _ in range(4)]
    _, operator = keys.create(None, Scope.ADMIN)
    service.registry.backups.create()
    service.close()
    return {"ids": ids, "tokens": {t: k.id for k, t in made}, "revoked": dead, "operator": operator}
