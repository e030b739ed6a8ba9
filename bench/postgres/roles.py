"""The cost of a query in the wiki's own session and in a shared session."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import psycopg
from psycopg import sql

from bench.measures import get_percentiles_ms, measure_seconds, read_private_mb
from bench.postgres.parts import ReportPart
from bench.postgres.server import run_server
from bench.postgres.shared import Database
from bench.report import make_head
from tests.support.postgres_server import PostgresServer

WIKIS = 50
_FIND = "SELECT id, text FROM chunks WHERE id = %s"
_OTHERS = "SELECT count(*) FROM {}.chunks"


def run(rounds: int = 20) -> None:
    """Measure, try to read another wiki in each kind of session, and save the result."""
    part = ReportPart("roles", "A login a wiki, or one session that changes roles")
    with run_server() as server, ExitStack() as stack:
        wikis = create_wikis(server, WIKIS)
        times = {name: [] for name in ("the wiki's own session, open", "shared, SET LOCAL ROLE", "shared, the same in one round trip", "own session, login for each query")}  # fmt: skip
        own = {name: stack.enter_context(psycopg.connect(address, autocommit=True)) for name, address in wikis.items()}
        shared = stack.enter_context(psycopg.connect(server.get_dsn(), autocommit=True))
        ways: Sequence[Callable[[str], object]] = (
            lambda wiki: own[wiki].execute(_FIND, (7,)).fetchall(),
            lambda wiki: read_by_role(shared, wiki),
            lambda wiki: read_in_pipeline(shared, wiki),
            lambda wiki: read_by_login(wikis[wiki]),
        )
        for _ in range(rounds):
            for wiki in wikis:
                for taken, way in zip(times.values(), ways, strict=True):
                    taken.append(measure_seconds(way, wiki))
        first = get_percentiles_ms(next(iter(times.values())))[0]
        part.add(
            f"{WIKIS} wikis with a schema and a role each, one row read by its key, in turns; over a Unix socket.", ""
        )
        part.add(make_head("| session | p50 ms | p95 ms | p50 ÷ own session |"))
        for name, taken in times.items():
            p50, p95 = get_percentiles_ms(taken)
            part.add(f"| {name} | {p50:.3f} | {p95:.3f} | {p50 / first:.1f} |")
        memory_mb = sum(read_private_mb(each.info.backend_pid, ("Private_",)) for each in own.values()) / len(own)
        part.add("", f"Memory of an own session's backend after {rounds} queries: {memory_mb:.1f} MB private.", "")
        part.add(check_escapes(wikis, own, shared))
    part.save()


def create_wikis(server: PostgresServer, count: int) -> dict[str, str]:
    """Schemas with a table and a role that may read it; the address of each role."""
    wikis = {}
    with psycopg.connect(server.get_dsn(), autocommit=True) as operator:
        for number in range(count):
            name, secret = f"w_{number:04d}", secrets.token_hex(8)
            operator.execute(
                sql.SQL(
                    "CREATE ROLE {name} LOGIN PASSWORD {secret}; CREATE SCHEMA {name};"
                    "CREATE TABLE {name}.chunks (id int PRIMARY KEY, text text);"
                    "INSERT INTO {name}.chunks SELECT n, repeat('passage ', 100) FROM generate_series(1, 20) AS n;"
                    "GRANT USAGE ON SCHEMA {name} TO {name}; GRANT SELECT ON {name}.chunks TO {name};"
                    "ALTER ROLE {name} SET search_path = {name}"
                ).format(name=sql.Identifier(name), secret=sql.Literal(secret))
            )
            wikis[name] = server.get_dsn("postgres", name, secret)
    return wikis


def read_by_role(shared: Database, wiki: str) -> list[tuple[object, ...]]:
    with shared.transaction():
        shared.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(wiki)))
        shared.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(wiki)))
        return shared.execute(_FIND, (7,), prepare=False).fetchall()


def read_in_pipeline(shared: Database, wiki: str) -> list[tuple[object, ...]]:
    with shared.pipeline():
        return read_by_role(shared, wiki)


def read_by_login(address: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as session:
        return session.execute(_FIND, (7,)).fetchall()


def check_escapes(wikis: dict[str, str], own: dict[str, Database], shared: Database) -> str:
    """The effect of injected SQL in each kind of session: it reads rows of another wiki, or is refused."""
    mine, other = list(wikis)[:2]
    steal = sql.SQL(_OTHERS).format(sql.Identifier(other)).as_string()
    found = []
    for injected in ("", "RESET ROLE; ", "SELECT set_config('role', 'none', true); "):
        for name, session in (("own", own[mine]), ("shared", shared)):
            try:
                with session.transaction():
                    if name == "shared":
                        session.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(mine)))
                    session.execute(injected + steal)
                found.append(
                    f"`{injected.strip('; ') or 'nothing more'}` in the {name} session: **the other wiki's rows**"
                )
            except psycopg.errors.InsufficientPrivilege:
                found.append(f"`{injected.strip('; ') or 'nothing more'}` in the {name} session: refused")
    return "SQL that reads rows of another wiki after " + "; after ".join(found) + "."
