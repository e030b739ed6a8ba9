"""The operations of a round with PostgreSQL: those of the SQLite store, and those that only exist for databases."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.crash.child_process import ChildChannel
from tests.crash.operations import OPERATIONS, SERVE, Operation, OperationContext, make_context
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.errors import WikiNotFound
from wikiholt.index.postgres import pool
from wikiholt.index.postgres.admin import PostgresDatabaseAdmin
from wikiholt.index.postgres.placements import PlacementCatalog
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.wikis.handle import WikiHandle

HOME, SECOND = "home", "second"
LEASE_S = 1.0
"""Duration of a lease in a round; a node that is suspended for longer loses its leases."""


def _move_wiki(context: OperationContext) -> None:
    """Move the wiki to one database and then to the other, so that at least one move is done."""
    wiki_id = context.service.registry.get("victim").id
    for to in (SECOND, HOME) if context.rng.random() < 0.5 else (HOME, SECOND):
        get_databases(context).move(wiki_id, to, context.rng.choice((math.inf, 0.2)))  # slow: killed during the copy


def _add_wiki(context: OperationContext) -> None:
    """Add a new wiki: register, provision and index it."""
    slug = f"extra-{context.page_prefix}"
    context.channel.send("begin", "wiki", slug, None)
    wiki = context.service.add(slug, str(context.spare_repository), {})
    context.channel.send("done", "wiki", slug, wiki.id)
    context.service.get_handle(slug).sync()


def get_databases(context: OperationContext) -> DatabaseAdmin:
    databases = context.service.components.databases
    assert databases is not None
    return databases


_CONCURRENT = ("sync", "back up", "write pages", "register", "reindex")
POSTGRES_OPERATIONS = {
    "sync": replace(OPERATIONS["sync"], steps=120),
    "reindex": replace(OPERATIONS["reindex"], steps=160),
    "other model": replace(OPERATIONS["other model"], steps=160),
    "publish": replace(OPERATIONS["publish"], window=(PostgresStore, "publish"), steps=4),
    "back up": replace(OPERATIONS["back up"], steps=300),
    "restore": replace(OPERATIONS["restore"], steps=200),
    "restore registry": replace(OPERATIONS["restore registry"], steps=60),
    "remove": replace(OPERATIONS["remove"], steps=60),
    "write pages": OPERATIONS["write pages"],
    "fetch": replace(OPERATIONS["fetch"], steps=120),
    "register": replace(OPERATIONS["register"], steps=100),
    "move": Operation(_move_wiki, (PostgresDatabaseAdmin, "move"), 150, _CONCURRENT),
    "add": Operation(_add_wiki, (PlacementCatalog, "provision"), 100, _CONCURRENT),
}
LEASED_OPERATIONS = ("sync", "reindex", "other model", "publish", "restore", "move")
"""Operations that write with a lease, which another node can take over while they are suspended."""


def make_postgres_context(
    name: str,
    data: Path,
    spare_repository: Path,
    page_prefix: str,
    rng: Random,
    channel: ChildChannel,
    tokens: dict[str, str],
) -> OperationContext:
    pool._IDLE_TRANSACTION_TIMEOUT_S = 2
    model = POSTGRES_OPERATIONS[name].model
    return make_context(name, data, spare_repository, page_prefix, rng, channel, tokens, model)


__all__ = [
    "POSTGRES_OPERATIONS",
    "SERVE",
    "WikiHandle",
    "WikiNotFound",
    "make_postgres_context",
]
