"""What every round of a crash gate begins with."""

from collections.abc import Callable
from pathlib import Path

from wikiholt.domain.wiki import Scope
from wikiholt.wikis.service import WikiService


def create_seed_data(
    service: WikiService, directory: Path, on_created: Callable[[str], None] = lambda _: None
) -> dict[str, object]:
    """Wikis of the repositories in a place, of which everything was used once, and keys; closes the service.

    `then` is called with the id of each.
    """
    sources = {"victim": str(directory / "victim"), "bystander": str(directory / "bystander")}
    for slug, source in {**sources, "mirror": f"file://{directory / 'upstream'}"}.items():
        service.add(slug, source, {})
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
