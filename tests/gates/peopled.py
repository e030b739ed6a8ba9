"""What every round of a crash gate begins with."""

from collections.abc import Callable
from pathlib import Path

from wikiholt.model import Scope
from wikiholt.service import Service


def peopled(service: Service, place: Path, then: Callable[[str], None] = lambda _: None) -> dict[str, object]:
    """Wikis of the repositories in a place, of which everything was used once, and keys; closes the service.

    `then` is called with the id of each.
    """
    sources = {"victim": str(place / "victim"), "bystander": str(place / "bystander")}
    for slug, source in {**sources, "mirror": f"file://{place / 'upstream'}"}.items():
        service.add(slug, source, {})
        wiki = service.wiki(slug)
        wiki.fetch()
        wiki.sync()
        wiki.backups.take()
        wiki.examine()
        then(wiki.wiki.id)
    ids = {wiki.slug: wiki.id for wiki in service.wikis()}
    keys = service.registry.keys
    revoked, dead = keys.create(ids["bystander"], Scope.READ)
    keys.revoke(revoked.id)
    made = [keys.create(ids["bystander"], Scope.READ) for _ in range(4)]
    _, operator = keys.create(None, Scope.ADMIN)
    service.registry.backups.take()
    service.close()
    return {"ids": ids, "tokens": {t: k.id for k, t in made}, "revoked": dead, "operator": operator}
