"""What processes do in a round, and for which part of it a blow is meant."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash.child_process import ChildChannel
from tests.crash.random_edits import make_page
from tests.support.services import build_test_service
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Busy, PageNotFound
from wikiholt.git.remote import RemoteSource
from wikiholt.git.source import GitSource
from wikiholt.indexing.index_backups import IndexBackups
from wikiholt.indexing.sync import Syncer
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.registry_backups import RegistryBackups
from wikiholt.wikis.service import WikiService

AUTHOR = Author("Ada", "ada@example.org")


@dataclass(slots=True)
class OperationContext:
    """What a deed is done with."""

    service: WikiService
    rng: Random
    channel: ChildChannel
    tokens: list[tuple[str, str]]
    """Keys that may be revoked: id and token."""
    spare_repository: Path
    """A repository that further wikis may be made of."""
    page_prefix: str
    """What names of this process begin with, so that two of them never write the same page."""
    pages: dict[str, str] = field(default_factory=dict)


OperationTask = Callable[[OperationContext], None]


def _run_sync(bench: OperationContext) -> None:
    bench.service.get_handle("victim").sync()


def _run_reindex(bench: OperationContext) -> None:
    bench.service.get_handle("victim").reindex()


def _create_backups(bench: OperationContext) -> None:
    bench.service.get_handle("victim").backups.create()
    bench.service.registry.backups.create()


def _restore_backup(bench: OperationContext) -> None:
    wiki = bench.service.get_handle("victim")
    wiki.restore()
    wiki.sync()


def _restore_registry(bench: OperationContext) -> None:
    bench.service.registry.backups.restore()


def _remove_wiki(bench: OperationContext) -> None:
    bench.channel.send("begin", "wiki", "victim", None)
    bench.service.remove("victim")
    bench.channel.send("done", "wiki", "victim", None)


def _fetch_and_sync(bench: OperationContext) -> None:
    wiki = bench.service.get_handle("mirror")
    wiki.fetch()
    wiki.sync()


def _write_pages(bench: OperationContext) -> None:
    """Put, add to, delete and rename pages; each is acknowledged when its call has returned."""
    contents = bench.service.get_handle("victim").pages
    for number in range(bench.rng.randrange(3, 9)):
        path, text = f"own/{bench.page_prefix}/page-{number}", make_page(bench.rng, number)
        with _acknowledge(bench, "page", path) as told:
            contents.write(path, text, AUTHOR)
            told.append(text)
        bench.pages[path] = text
        if bench.rng.random() < 0.6:
            _change_page(bench, bench.rng.choice(sorted(bench.pages)), number)


def _change_page(bench: OperationContext, path: str, number: int) -> None:
    contents, text = bench.service.get_handle("victim").pages, bench.pages.pop(path)
    change = bench.rng.choice(("append", "delete", "rename"))
    if change == "delete":
        with _acknowledge(bench, "page", path) as told:
            contents.delete(path, AUTHOR)
            told.append(None)
    elif change == "append":
        with _acknowledge(bench, "page", path) as told:
            contents.append(path, f"One more line, {number}.", AUTHOR)
            told.append(contents.read(path).content)
    else:
        fresh = f"own/{bench.page_prefix}/page-{number + 100}"
        bench.channel.send("begin", "page", fresh, None)
        with _acknowledge(bench, "page", path) as told:
            contents.rename(path, fresh, AUTHOR)
            told.append(None)
        bench.channel.send("done", "page", fresh, text)


class _acknowledge:  # noqa: N801 - reads as a verb where it is used
    """Say before that something is begun, and after that it is done, if it is."""

    def __init__(self, bench: OperationContext, kind: str, name: str) -> None:
        self._tell = lambda said, value: bench.channel.send(said, kind, name, value)
        self._value: list[str | None] = []

    def __enter__(self) -> list[str | None]:
        self._tell("begin", None)
        return self._value

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._tell("done", self._value[0] if self._value else None)


def _change_registry(bench: OperationContext) -> None:
    """Add wikis, make and revoke keys, change settings."""
    registry, rng = bench.service.registry, bench.rng
    for number in range(rng.randrange(3, 9)):
        chosen = rng.choice(("add", "key", "key", "revoke", "set"))
        if chosen == "add":
            slug = f"extra-{bench.page_prefix}-{number}"
            with _acknowledge(bench, "wiki", slug) as told:
                told.append(bench.service.add(slug, str(bench.spare_repository), {}).id)
        elif chosen == "key":
            key, token = registry.keys.create(registry.get("bystander").id, Scope.READ, f"key {number}")
            bench.channel.send("done", "key", token, key.id)
            bench.tokens.append((key.id, token))
        elif chosen == "revoke" and bench.tokens:
            key_id, token = bench.tokens.pop(rng.randrange(len(bench.tokens)))
            with _acknowledge(bench, "revoked", token):
                registry.keys.revoke(key_id)
        else:
            bench.service.configure("bystander", {"interval": str(rng.randrange(5, 500))})
        if rng.random() < 0.3:
            registry.backups.create_if_changed()


@dataclass(frozen=True, slots=True)
class Operation:
    """`steps` is about how many steps it takes from the window's beginning to the end of the deed."""

    task: OperationTask
    window: tuple[type, str] | None
    steps: int
    concurrent: tuple[str, ...] = ("sync", "back up", "write pages", "register", "reindex")
    """What another process may do meanwhile."""
    subject: str = "victim"
    model: str = "fake"


OPERATIONS = {
    "sync": Operation(_run_sync, (Syncer, "sync"), 1300),
    "reindex": Operation(_run_reindex, (Syncer, "rebuild"), 2800),
    "other model": Operation(_run_sync, (Syncer, "sync"), 2800, ("back up", "write pages", "register"), model="other"),
    "publish": Operation(_run_reindex, (SqliteStore, "publish"), 6),
    "back up": Operation(_create_backups, (IndexBackups, "create"), 430),
    "restore": Operation(_restore_backup, (IndexBackups, "restore"), 900),
    "restore registry": Operation(
        _restore_registry, (RegistryBackups, "restore"), 61, ("sync", "back up", "write pages")
    ),
    "remove": Operation(_remove_wiki, (WikiService, "remove"), 105, ("sync", "back up", "register", "reindex")),
    "write pages": Operation(_write_pages, (GitSource, "commit"), 900),
    "fetch": Operation(_fetch_and_sync, (RemoteSource, "fetch"), 60, ("fetch", "register"), subject="mirror"),
    "register": Operation(_change_registry, None, 150),
}
SERVE = "serve"
"""The deed that is not one of the above: a whole `wikiholt serve`, and visitors who have it do all of them."""


def run_operation(name: str, bench: OperationContext) -> None:
    """Do it; that others are at work, or have removed what it is about, is no fault."""
    try:
        OPERATIONS[name].task(bench)
    except (Busy, PageNotFound):
        bench.channel.send("gave way", name, None, None)
    bench.service.close()


def make_context(
    name: str,
    data: Path,
    spare_repository: Path,
    page_prefix: str,
    rng: Random,
    channel: ChildChannel,
    tokens: dict[str, str],
    model: str = "",
) -> OperationContext:
    service = build_test_service(data, model or OPERATIONS[name].model, 0.02)
    return OperationContext(
        service,
        rng,
        channel,
        [(key_id, token) for token, key_id in sorted(tokens.items())],
        spare_repository,
        page_prefix,
    )


__all__ = ["OPERATIONS", "SERVE", "OperationContext", "WikiHandle", "make_context", "run_operation"]
