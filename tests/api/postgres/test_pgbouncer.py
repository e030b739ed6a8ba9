"""Wikis behind a real PgBouncer in session mode, as docs/scale.md configures it. Skipped where it is not installed."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from tests.support.paths import ROOT
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import WIKI_ID, create_filled_index, open_node_store
from tests.support.wait import wait_until
from wikiholt.domain.search import KeywordQuery, PageFilter

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PORT = 6543
"""Only names the socket."""

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


def read_manual_block(language: str, word: str) -> str:
    """The block of docs/scale.md in this language that contains a word."""
    text = (ROOT / "docs" / "scale.md").read_text()
    return next(block for block in re.findall(rf"```{language}\n(.*?)```", text, re.S) if word in block)


@pytest.fixture
def pooled(pg: PostgresServer, database: str, tmp_path: Path) -> Iterator[str]:
    """The address of the database through PgBouncer."""
    assert PROGRAM is not None
    name = str(conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE owner_{name} LOGIN CREATEROLE PASSWORD 'x'")  # not a superuser
        connection.execute(f"ALTER DATABASE {name} OWNER TO owner_{name}")
        connection.execute(read_manual_block("sql", "pgbouncer").replace("wikiholt", name).replace("'SECRET'", "'p'"))
    place = pg.place / "pgbouncer"
    place.mkdir()
    settings = read_manual_block("ini", "auth_query")
    settings = settings.replace("host=db.example.org", f"host={pg.place}").replace("/etc/pgbouncer", str(place))
    (place / "pgbouncer.ini").write_text(f"{settings}\nunix_socket_dir = {place}\nlisten_port = {PORT}\n")
    (place / "userlist.txt").write_text('"pgbouncer" "p"\n')
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    if user is not None:
        os.chown(place, user, -1)
    process = subprocess.Popen([PROGRAM, place / "pgbouncer.ini"], user=user, stderr=subprocess.DEVNULL)
    try:
        wait_until((place / f".s.PGSQL.{PORT}").exists)
        yield conninfo.make_conninfo(database, host=str(place), port=PORT, user=f"owner_{name}", password="x")
    finally:
        process.terminate()
        process.wait(30)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY pgbouncer; DROP ROLE pgbouncer")
        shutil.rmtree(place)


def test_wikis_log_in_through_pgbouncer(pooled: str, tmp_path: Path) -> None:
    with open_node_store(pooled, tmp_path / "node") as store:
        with closing(create_filled_index(store, WIKI_ID)) as index:
            assert len(index.search_keywords(KeywordQuery(("needle",)), 5, PageFilter())) == 3
        with store.write_lock(WIKI_ID, 5.0):
            store.open(WIKI_ID).close()
        store.delete(WIKI_ID)
