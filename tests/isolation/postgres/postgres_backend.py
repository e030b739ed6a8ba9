"""Wikis in PostgreSQL, and access to every row of every schema as the operator."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.isolation.backends import find_places_on_disk, find_traces_on_disk
from tests.isolation.canaries import find_codes, find_codes_on_disk
from tests.support.services import SlowEmbedder, read_all_files
from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.index.postgres import local_copy
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeReranker
from wikiholt.wikis.service import WikiService

_LARGE_OBJECTS = "SELECT oid::text, lo_get(oid) FROM pg_largeobject_metadata"
_ROLES = "SELECT rolname FROM pg_roles WHERE rolname ~ '^w_' ORDER BY rolname"
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' ORDER BY nspname"
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"
_STATISTICS = (
    "SELECT schemaname, tablename, attname, most_common_vals::text, histogram_bounds::text FROM pg_stats"
    " WHERE schemaname <> 'pg_catalog'"
)
_PURGE_MARKS_TABLE = "wikiholt.marks"
_ORPHANED_STATISTICS = "SELECT starelid FROM pg_statistic WHERE starelid NOT IN (SELECT oid FROM pg_class)"


def write_settings(data: Path, store: str, **more: object) -> None:
    """Write the settings file of a node that uses PostgreSQL."""
    data.mkdir(parents=True, exist_ok=True)
    lines = [f'store = "{store}"', *(f"{name.replace('__', '.')} = {value}" for name, value in more.items())]
    (data / "wikiholt.toml").write_text("\n".join(lines) + "\n")


class DatabaseRows:
    """All rows of some databases of one server, read as the operator."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = [make_conninfo(address) for address in addresses]

    def list_schemas(self) -> list[tuple[str, str]]:
        """Database (by number) and name of every schema that is not a system schema."""
        return [(str(at), name) for at, db in self._connect_each() for (name,) in db.execute(_SCHEMAS).fetchall()]

    def read_schema(self, schema: str) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every table of a schema, with its transaction id, in any of the databases."""
        return {place: rows for at, db in self._connect_each() for place, rows in _iter_tables(at, db, schema)}

    def iter_texts(self) -> Iterator[tuple[str, str]]:
        """Everything readable, with its place: rows, names, large objects, planner statistics."""
        for at, db in self._connect_each():
            for (schema,) in db.execute(_SCHEMAS).fetchall():
                for place, rows in _iter_tables(at, db, str(schema)):
                    yield place, f"{place} {format_rows(rows)}"
            for name, query in (
                ("large objects", _LARGE_OBJECTS),
                ("statistics", _STATISTICS),
                ("orphaned statistics", _ORPHANED_STATISTICS),
            ):
                yield f"{at} {name}", format_rows(db.execute(query).fetchall())
        yield "roles", format_rows([(role,) for role in self.list_roles()])

    def list_roles(self) -> list[str]:
        """The roles of wikis on the server."""
        with psycopg.connect(self._addresses[0]) as db:
            return [name for (name,) in db.execute(_ROLES).fetchall()]

    def analyze(self) -> None:
        """Collect planner statistics now, as autovacuum does."""
        for _, db in self._connect_each():
            db.execute("ANALYZE")

    def _connect_each(self) -> Iterator[tuple[int, "psycopg.Connection[tuple[object, ...]]"]]:
        for at, address in enumerate(self._addresses):
            with psycopg.connect(address, autocommit=True) as connection:
                yield at, connection


def _iter_tables(
    at: int, db: "psycopg.Connection[tuple[object, ...]]", schema: str
) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """The place and the rows of every table of a schema of one database."""
    for (table,) in db.execute(_TABLES, (schema,)).fetchall():
        statement = sql.SQL("SELECT xmin::text, * FROM {}").format(sql.Identifier(schema, str(table)))
        with suppress(psycopg.errors.UndefinedTable):  # a reindex has dropped it meanwhile
            yield f"{at} {schema}.{table}", db.execute(statement).fetchall()


def format_rows(rows: Sequence[tuple[object, ...]]) -> str:
    """Rows as text, with bytes decoded."""
    return "\n".join(
        " ".join(value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in row) for row in rows
    )


class PostgresBackend:
    """A data directory whose indexes and registry are in PostgreSQL, opened as the product does."""

    def __init__(self, data: Path, address: str, others: Sequence[str] = (), **more: object) -> None:
        self.data = data
        self.rows = DatabaseRows([address, *others])
        write_settings(data, address, **more)

    def open_service(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> WikiService:
        embedder = SlowEmbedder(model, seconds)
        with patch.object(local_copy, "COPY_MIN_PAGES", 1):  # small wikis are searched in copies, as large ones are
            service = bootstrap.build_service(
                load_settings(self.data, overrides={"page.max_bytes": 200_000, "url": "/w/{path}"})
            )
        reranking = RerankConfig(FakeReranker, 60.0)
        service.components = replace(service.components, embedder=lambda: embedder, identity=None, reranking=reranking)
        return service

    def read_wiki(self, wiki_id: str) -> Mapping[str, object]:
        found = {
            place: hashlib.sha256(repr(sorted(rows, key=repr)).encode()).hexdigest()
            for place, rows in self.rows.read_schema(f"w_{wiki_id}").items()
        }
        files = read_all_files(self.data / "scratch" / wiki_id)
        # A search may build the copy of an index, with what belongs to it.
        return {
            **found,
            **{name: data for name, data in files.items() if not name.startswith(("copy-", "g000001.keywords"))},
        }

    def find_wiki_codes(self, wiki_id: str) -> set[str]:
        rows = self.rows.read_schema(f"w_{wiki_id}")
        return find_codes("\n".join(map(format_rows, rows.values()))) | find_codes_on_disk(
            self.data / "scratch" / wiki_id
        )

    def find_all_codes(self) -> set[str]:
        return find_codes("\n".join(text for _, text in self.rows.iter_texts())) | find_codes_on_disk(self.data)

    def find_places(self, *codes: str) -> list[str]:
        places = [place for place, text in self.rows.iter_texts() if find_codes(text) & set(codes)]
        return places + find_places_on_disk(self.data, *codes)

    def find_traces(self, *wiki_ids: str) -> list[str]:
        # The removal of a wiki is recorded for other nodes, which remove it from their backups.
        places = [
            place
            for place, text in self.rows.iter_texts()
            if any(wiki_id in text for wiki_id in wiki_ids) and not place.endswith(_PURGE_MARKS_TABLE)
        ]
        return places + find_traces_on_disk(self.data, *wiki_ids)
