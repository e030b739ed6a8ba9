"""The operations of a round, and the method of each in which the failure is injected."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType

from tests.crash.child_process import ChildChannel
from tests.crash.random_edits import make_page
from tests.support.services import build_test_service
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Busy, PageNotFound
from wikiholt.folder.source import DirectorySource
from wikiholt.git.remote import RemoteSource
from wikiholt.git.source import GitSource
from wikiholt.index import batch, pipeline
from wikiholt.index.index_backups import IndexBackups
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sync import Syncer
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.pages.wiki_pages import WikiPages
from wikiholt.wikis.past_views import PastViews
from wikiholt.wikis.registry_backups import RegistryBackups
from wikiholt.wikis.service import WikiService

AUTHOR = Author("Ada", "ada@example.org")


@dataclass(slots=True)
class OperationContext:
    """What an operation uses."""

    service: WikiService
    rng: Random
    channel: ChildChannel
    tokens: list[tuple[str, str]]
    """Keys that may be revoked: id and token."""
    spare_repository: Path
    """A repository for wikis that are added."""
    page_prefix: str
    """Prefix of the page names of this process, so that two processes never write the same page."""
    pages: dict[str, str] = field(default_factory=dict)


OperationTask = Callable[[OperationContext], None]


def _run_sync(context: OperationContext) -> None:
    context.service.get_handle("victim").sync()


def _run_first_sync(context: OperationContext) -> None:
    """Build an index again without the one that is there: words first, then the vectors, as the background does."""
    batch._MAX_BATCH_TEXTS = 8  # so that there are several batches
    wiki = context.service.get_handle("victim")
    store = context.service.components.store
    with store.write_lock(wiki.wiki.id, 0):
        directory = store.get_directory(wiki.wiki.id)
        for file in (directory / "CURRENT", *directory.glob("g0*")):
            file.unlink(missing_ok=True)
    wiki.sync(words_only=True)
    wiki.sync()


def _build_view(context: OperationContext) -> None:
    """Index an older commit, with the vectors of today's index, and delete the view of another one."""
    batch._MAX_BATCH_TEXTS = 8
    handle = context.service.get_handle("victim")
    handle.sync()
    commits = [entry.commit.revision for entry in context.service.get_source(handle.wiki).read_log(8)]
    for commit in context.rng.sample(commits, min(2, len(commits))):
        handle.past.build(commit)
    handle.past.remove(context.rng.choice(handle.past.list_views()).revision)


def _run_reindex(context: OperationContext) -> None:
    context.service.get_handle("victim").sync(from_scratch=True)


def _create_backups(context: OperationContext) -> None:
    context.service.get_handle("victim").backups.create()
    context.service.registry.backups.create()


def _restore_backup(context: OperationContext) -> None:
    wiki = context.service.get_handle("victim")
    wiki.restore()
    wiki.sync()


def _restore_registry(context: OperationContext) -> None:
    context.service.registry.backups.restore()


def _remove_wiki(context: OperationContext) -> None:
    context.channel.send("begin", "wiki", "victim", None)
    context.service.remove("victim")
    context.channel.send("done", "wiki", "victim", None)


def _fetch_and_sync(context: OperationContext, slug: str = "mirror") -> None:
    wiki = context.service.get_handle(slug)
    wiki.fetch()
    wiki.sync()


def _write_pages(context: OperationContext, slug: str = "victim") -> None:
    """Write, append to, delete and rename pages. Each change is acknowledged when its call has returned."""
    pages = context.service.get_handle(slug).pages
    for number in range(context.rng.randrange(3, 9)):
        path, text = f"own/{context.page_prefix}/page-{number}", make_page(context.rng, number)
        with _acknowledge(context, "page", path) as result:
            pages.write(path, text, AUTHOR)
            result.append(text)
        context.pages[path] = text
        if context.rng.random() < 0.6:
            _change_page(context, pages, context.rng.choice(sorted(context.pages)), number)


def _change_page(context: OperationContext, pages: WikiPages, path: str, number: int) -> None:
    text = context.pages.pop(path)
    change = context.rng.choice(("append", "delete", "rename"))
    if change == "delete":
        with _acknowledge(context, "page", path) as result:
            pages.delete(path, AUTHOR)
            result.append(None)
    elif change == "append":
        with _acknowledge(context, "page", path) as result:
            pages.append(path, f"One more line, {number}.", AUTHOR)
            result.append(pages.read(path).content)
    else:
        new_path = f"own/{context.page_prefix}/page-{number + 100}"
        context.channel.send("begin", "page", new_path, None)
        with _acknowledge(context, "page", path) as result:
            pages.rename(path, new_path, AUTHOR)
            result.append(None)
        context.channel.send("done", "page", new_path, text)


class _acknowledge:  # noqa: N801 - reads as a verb where it is used
    """Send a message before an operation, and another after it if it succeeds."""

    def __init__(self, context: OperationContext, kind: str, name: str) -> None:
        self._send = lambda status, value: context.channel.send(status, kind, name, value)
        self._value: list[str | None] = []

    def __enter__(self) -> list[str | None]:
        self._send("begin", None)
        return self._value

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._send("done", self._value[0] if self._value else None)


def _change_registry(context: OperationContext) -> None:
    """Add wikis, create and revoke keys, change settings."""
    registry, rng = context.service.registry, context.rng
    for number in range(rng.randrange(3, 9)):
        chosen = rng.choice(("add", "key", "key", "revoke", "set"))
        if chosen == "add":
            slug = f"extra-{context.page_prefix}-{number}"
            with _acknowledge(context, "wiki", slug) as result:
                result.append(context.service.add(slug, str(context.spare_repository), {}).id)
        elif chosen == "key":
            key, token = registry.keys.create(registry.get("bystander").id, Scope.READ, f"key {number}")
            context.channel.send("done", "key", token, key.id)
            context.tokens.append((key.id, token))
        elif chosen == "revoke" and context.tokens:
            key_id, token = context.tokens.pop(rng.randrange(len(context.tokens)))
            with _acknowledge(context, "revoked", token):
                registry.keys.revoke(key_id)
        else:
            context.service.configure("bystander", {"interval": str(rng.randrange(5, 500))})
        if rng.random() < 0.3:
            registry.backups.create_if_changed()


@dataclass(frozen=True, slots=True)
class Operation:
    """`steps` is the approximate number of steps from the start of the window to the end of the operation."""

    task: OperationTask
    window: tuple[type | ModuleType, str] | None
    steps: int
    concurrent: tuple[str, ...] = ("sync", "back up", "write pages", "register", "reindex")
    """Operations that another process may run at the same time."""
    subject: str = "victim"
    model: str = "fake"


_BESIDE_DIRECTORY = ("scan", "write files", "register")

OPERATIONS = {
    "sync": Operation(_run_sync, (Syncer, "sync"), 1300),
    "reindex": Operation(_run_reindex, (Syncer, "sync"), 2800),
    "other model": Operation(_run_sync, (Syncer, "sync"), 2800, ("back up", "write pages", "register"), model="other"),
    "first sync": Operation(_run_first_sync, (Syncer, "sync"), 2800, ("register",), model="other"),
    "publish": Operation(_run_reindex, (SqliteStore, "publish"), 6),
    "back up": Operation(_create_backups, (IndexBackups, "create"), 430),
    "restore": Operation(_restore_backup, (IndexBackups, "restore"), 900),
    "restore registry": Operation(
        _restore_registry, (RegistryBackups, "restore"), 61, ("sync", "back up", "write pages")
    ),
    "remove": Operation(_remove_wiki, (WikiService, "remove"), 105, ("sync", "back up", "register", "reindex")),
    "write pages": Operation(_write_pages, (GitSource, "commit"), 900),
    "fetch": Operation(_fetch_and_sync, (RemoteSource, "fetch"), 60, ("fetch", "register"), subject="mirror"),
    "scan": Operation(
        partial(_fetch_and_sync, slug="folder"), (DirectorySource, "fetch"), 300, _BESIDE_DIRECTORY, subject="folder"
    ),
    "write files": Operation(
        partial(_write_pages, slug="folder"), (DirectorySource, "commit"), 900, _BESIDE_DIRECTORY, subject="folder"
    ),
    "register": Operation(_change_registry, None, 150),
    "past": Operation(_build_view, (PastViews, "build"), 2000, ("register", "write pages")),
    "documents": Operation(_run_sync, (pipeline, "convert_document"), 25),
}
SERVE = "serve"
"""The operation that is not in OPERATIONS: `wikiholt serve`, with clients that send random requests."""


def run_operation(name: str, context: OperationContext, operations: Mapping[str, Operation] = OPERATIONS) -> None:
    """Run an operation. It is no fault if another process has the lock or has removed the page."""
    try:
        operations[name].task(context)
    except (Busy, PageNotFound):
        context.channel.send("gave way", name, None, None)
    context.service.close()


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
