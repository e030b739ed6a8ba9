"""What processes do in a round, and for which part of it a blow is meant."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from farm import product
from history import page
from processes import Line

from wikiholt.backups import Backups
from wikiholt.errors import Busy, PageNotFound
from wikiholt.handle import WikiHandle
from wikiholt.model import Author, Scope
from wikiholt.registry.backups import RegistryBackups
from wikiholt.service import Service
from wikiholt.sources.git import GitSource
from wikiholt.sources.remote import RemoteSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.sync import Syncer

AUTHOR = Author("Ada", "ada@example.org")


@dataclass(slots=True)
class Bench:
    """What a deed is done with."""

    service: Service
    rng: Random
    line: Line
    tokens: list[tuple[str, str]]
    """Keys that may be revoked: id and token."""
    elsewhere: Path
    """A repository that further wikis may be made of."""
    own: str
    """What names of this process begin with, so that two of them never write the same page."""
    pages: dict[str, str] = field(default_factory=dict)


Task = Callable[[Bench], None]


def _sync(bench: Bench) -> None:
    bench.service.wiki("victim").sync()


def _reindex(bench: Bench) -> None:
    bench.service.wiki("victim").reindex()


def _back_up(bench: Bench) -> None:
    bench.service.wiki("victim").backups.take()
    bench.service.registry.backups.take()


def _restore(bench: Bench) -> None:
    wiki = bench.service.wiki("victim")
    wiki.restore()
    wiki.sync()


def _restore_registry(bench: Bench) -> None:
    bench.service.registry.backups.restore()


def _remove(bench: Bench) -> None:
    bench.line.tell("begin", "wiki", "victim", None)
    bench.service.remove("victim")
    bench.line.tell("done", "wiki", "victim", None)


def _fetch(bench: Bench) -> None:
    wiki = bench.service.wiki("mirror")
    wiki.fetch()
    wiki.sync()


def _write_pages(bench: Bench) -> None:
    """Put, add to, delete and rename pages; each is acknowledged when its call has returned."""
    contents = bench.service.wiki("victim").contents
    for number in range(bench.rng.randrange(3, 9)):
        path, text = f"own/{bench.own}/page-{number}", page(bench.rng, number)
        with _said(bench, "page", path) as told:
            contents.put(path, text, AUTHOR)
            told.append(text)
        bench.pages[path] = text
        if bench.rng.random() < 0.6:
            _change_page(bench, bench.rng.choice(sorted(bench.pages)), number)


def _change_page(bench: Bench, path: str, number: int) -> None:
    contents, text = bench.service.wiki("victim").contents, bench.pages.pop(path)
    change = bench.rng.choice(("append", "delete", "rename"))
    if change == "delete":
        with _said(bench, "page", path) as told:
            contents.delete(path, AUTHOR)
            told.append(None)
    elif change == "append":
        with _said(bench, "page", path) as told:
            contents.append(path, f"One more line, {number}.", AUTHOR)
            told.append(contents.read(path).content)
    else:
        fresh = f"own/{bench.own}/page-{number + 100}"
        bench.line.tell("begin", "page", fresh, None)
        with _said(bench, "page", path) as told:
            contents.rename(path, fresh, AUTHOR)
            told.append(None)
        bench.line.tell("done", "page", fresh, text)


class _said:  # noqa: N801 - reads as a verb where it is used
    """Say before that something is begun, and after that it is done, if it is."""

    def __init__(self, bench: Bench, kind: str, name: str) -> None:
        self._tell = lambda said, value: bench.line.tell(said, kind, name, value)
        self._value: list[str | None] = []

    def __enter__(self) -> list[str | None]:
        self._tell("begin", None)
        return self._value

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._tell("done", self._value[0] if self._value else None)


def _register(bench: Bench) -> None:
    """Add wikis, make and revoke keys, change settings."""
    registry, rng = bench.service.registry, bench.rng
    for number in range(rng.randrange(3, 9)):
        chosen = rng.choice(("add", "key", "key", "revoke", "set"))
        if chosen == "add":
            slug = f"extra-{bench.own}-{number}"
            with _said(bench, "wiki", slug) as told:
                told.append(bench.service.add(slug, str(bench.elsewhere), {}).id)
        elif chosen == "key":
            key, token = registry.keys.create(registry.get("bystander").id, Scope.READ, f"key {number}")
            bench.line.tell("done", "key", token, key.id)
            bench.tokens.append((key.id, token))
        elif chosen == "revoke" and bench.tokens:
            key_id, token = bench.tokens.pop(rng.randrange(len(bench.tokens)))
            with _said(bench, "revoked", token):
                registry.keys.revoke(key_id)
        else:
            bench.service.configure("bystander", {"interval": str(rng.randrange(5, 500))})
        if rng.random() < 0.3:
            registry.backups.follow()


@dataclass(frozen=True, slots=True)
class Deed:
    """`steps` is about how many steps it takes from the window's beginning to the end of the deed."""

    task: Task
    window: tuple[type, str] | None
    steps: int
    beside: tuple[str, ...] = ("sync", "back up", "write pages", "register", "reindex")
    """What another process may do meanwhile."""
    subject: str = "victim"
    model: str = "fake"


DEEDS = {
    "sync": Deed(_sync, (Syncer, "sync"), 1300),
    "reindex": Deed(_reindex, (Syncer, "rebuild"), 2800),
    "other model": Deed(_sync, (Syncer, "sync"), 2800, ("back up", "write pages", "register"), model="other"),
    "publish": Deed(_reindex, (SqliteStore, "publish"), 6),
    "back up": Deed(_back_up, (Backups, "take"), 430),
    "restore": Deed(_restore, (Backups, "restore"), 900),
    "restore registry": Deed(_restore_registry, (RegistryBackups, "restore"), 61, ("sync", "back up", "write pages")),
    "remove": Deed(_remove, (Service, "remove"), 105, ("sync", "back up", "register", "reindex")),
    "write pages": Deed(_write_pages, (GitSource, "write"), 900),
    "fetch": Deed(_fetch, (RemoteSource, "fetch"), 60, ("fetch", "register"), subject="mirror"),
    "register": Deed(_register, None, 150),
}
SERVE = "serve"
"""The deed that is not one of the above: a whole `wikiholt serve`, and visitors who have it do all of them."""


def do(name: str, bench: Bench) -> None:
    """Do it; that others are at work, or have removed what it is about, is no fault."""
    try:
        DEEDS[name].task(bench)
    except (Busy, PageNotFound):
        bench.line.tell("gave way", name, None, None)
    bench.service.close()


def bench_for(
    name: str, data: Path, elsewhere: Path, own: str, rng: Random, line: Line, tokens: dict[str, str], model: str = ""
) -> Bench:
    service = product(data, model or DEEDS[name].model, 0.02)
    return Bench(service, rng, line, [(key_id, token) for token, key_id in sorted(tokens.items())], elsewhere, own)


__all__ = ["DEEDS", "SERVE", "Bench", "WikiHandle", "bench_for", "do"]
