"""A wiki's connection uses its own role: injected SQL reaches that wiki and no other."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql

from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import Recipe
from wikiholt.errors import IndexMissing, InvalidSetting
from wikiholt.index.postgres import generations
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.placements import Placement, PlacementCatalog
from wikiholt.index.postgres.pool import Connection, ConnectionPool

ONE, OTHER = "dddddddddddddddddddd", "eeeeeeeeeeeeeeeeeeee"
CANARY = "canary-of-the-other-wiki"
RECIPE = Recipe("f", 3, "p")
_NOT_ALLOWED = {"42501"}


@dataclass
class TwoWikis:
    placements: PlacementCatalog
    one: Placement
    other: Placement


def create_filled_index(placements: PlacementCatalog, wiki_id: str, text: str) -> Placement:
    """Provision a wiki with one page and one chunk that contain a text."""
    placement = placements.provision(wiki_id)
    with placements.get_operator_connections(placement).write_transaction() as connection:
        connection.execute(sql.SQL("SET LOCAL search_path TO {}, public").format(sql.Identifier(placement.schema)))
        generations.create_generation(
            connection, placement, RECIPE, generations.GenerationOrigin.SCRATCH, published=True
        )
    with placements.get_connections(wiki_id).write_transaction() as connection:
        connection.execute("INSERT INTO state (name, text) VALUES ('health', %s)", (text,))
        chunk = "INSERT INTO g1_chunks VALUES (%s, 1, 0, %s, '', '', 1, 1, '', '[1,0,0]')"
        for number in range(50):
            connection.execute(chunk, (number, text))
    with placements.get_operator_connections(placement).read_connection() as connection:
        connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(placement.schema, "g1_chunks")))
    return placement


@pytest.fixture(params=["superuser", "createrole"])
def two_wikis(request: pytest.FixtureRequest, pg: PostgresServer, database: str) -> Iterator[TwoWikis]:
    """Two wikis on one database, with at most one connection for both."""
    address, plain = database, None
    if request.param == "createrole":
        plain = f"plain_{psycopg.conninfo.conninfo_to_dict(database)['dbname']}"
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {plain} LOGIN CREATEROLE PASSWORD 'x'")
            connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {plain}")
            address = pg.get_dsn(connection.info.dbname, plain, "x")
    home, pool = Catalog(address), ConnectionPool(1, wait_timeout_s=TIMEOUT_S)
    placements = PlacementCatalog(home, pool)
    yield TwoWikis(
        placements, create_filled_index(placements, ONE, "text of one"), create_filled_index(placements, OTHER, CANARY)
    )
    for wiki_id in (ONE, OTHER):
        placements.remove(wiki_id)
    pool.close()
    home.close()


def list_attacks(two_wikis: TwoWikis) -> list[str]:
    other, one = two_wikis.other, two_wikis.one
    guests = two_wikis.placements.get_database(one).group
    return [
        f"SELECT * FROM {other.schema}.g1_chunks",
        f"SELECT * FROM {other.schema}.state",
        f"UPDATE {other.schema}.state SET text = 'x'",
        f"DROP SCHEMA {other.schema} CASCADE",
        f"SET ROLE {other.role}",
        f"SET SESSION AUTHORIZATION {other.role}",
        f"SELECT set_config('role', '{other.role}', false)",
        f"SELECT set_config('session_authorization', '{other.role}', false)",
        "SET ROLE operator",
        f"SET ROLE {guests}",
        f"SELECT query_to_xml('SELECT * FROM {other.schema}.g1_chunks', true, true, '')",
        f"COPY {other.schema}.g1_chunks TO STDOUT",
        "COPY g1_chunks TO PROGRAM 'cat > /tmp/stolen'",
        "COPY state FROM PROGRAM 'id'",
        "COPY state (text) FROM '/etc/passwd'",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT * FROM wikiholt.placements",
        "SELECT * FROM wikiholt.databases",
        "SELECT rolpassword FROM pg_authid",
        "SELECT * FROM pg_statistic",
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION postgres_fdw",
        "LOAD '/tmp/evil.so'",
        "CREATE FUNCTION public.f() RETURNS int LANGUAGE c AS 'evil', 'f'",
        "CREATE TABLE public.mine (a int)",
        f"CREATE TABLE {one.schema}.mine (a int)",
        "CREATE SCHEMA mine",
        "CREATE ROLE mine",
        f"GRANT {other.role} TO {one.role}",
        "DROP TABLE g1_chunks",
        "ALTER TABLE g1_chunks ADD COLUMN mine int",
        "TRUNCATE g1_chunks",
        "CREATE TRIGGER t BEFORE INSERT ON g1_chunks EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER SYSTEM SET log_statement = 'all'",
        "CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p",
        f"ALTER ROLE {other.role} PASSWORD 'x'",
        f"ALTER ROLE {one.role} CREATEROLE",
        f"BEGIN; RESET ROLE; RESET SESSION AUTHORIZATION; SELECT text FROM {other.schema}.state",
    ]


def get_refusal(session: Connection, attack: str) -> str:
    """The code and message of the error of a statement; empty if it succeeded."""
    try:
        session.execute(attack)
    except psycopg.Error as error:
        return error.sqlstate if error.sqlstate and CANARY not in str(error) else str(error)
    finally:
        session.rollback()
    return ""


def test_injected_sql_reaches_its_own_wiki_and_no_other(two_wikis: TwoWikis) -> None:
    """Runs on the connection that searches use, with read-only mode switched off."""
    session = two_wikis.placements.get_connections(ONE).open_dedicated()
    try:
        for attack in list_attacks(two_wikis):
            session.execute("SET default_transaction_read_only TO off")
            assert get_refusal(session, attack) in _NOT_ALLOWED, attack
            assert session.execute("SELECT session_user, current_user").fetchall() == [(two_wikis.one.role,) * 2], (
                attack
            )
        session.execute("RESET ROLE; RESET SESSION AUTHORIZATION; RESET ALL; SET search_path TO public")
        assert session.execute("SELECT session_user, current_user").fetchall() == [(two_wikis.one.role,) * 2]
        # Without the right to grant, the server only warns.
        session.execute(f"GRANT SELECT ON {two_wikis.one.schema}.g1_chunks TO {two_wikis.other.role}")
        passed = "SELECT has_table_privilege(%s, %s, 'SELECT')"
        assert session.execute(passed, (two_wikis.other.role, f"{two_wikis.one.schema}.g1_chunks")).fetchall() == [
            (False,)
        ]
    finally:
        session.close()
    with two_wikis.placements.get_connections(OTHER).read_connection() as connection:
        assert connection.execute("SELECT count(*) FROM g1_chunks WHERE text = %s", (CANARY,)).fetchall() == [(50,)]
    with two_wikis.placements.get_connections(ONE).read_connection() as connection:
        assert connection.execute("SELECT DISTINCT text FROM g1_chunks").fetchall() == [("text of one",)]


def test_catalogs_reveal_no_page_of_another_wiki(two_wikis: TwoWikis) -> None:
    alone = two_wikis.placements.get_connections(OTHER).open_dedicated()
    alone.execute(f"SELECT '{CANARY}'")
    try:
        with two_wikis.placements.get_connections(ONE).read_connection() as connection:
            for order in (
                "SELECT * FROM pg_stats",
                "SELECT * FROM pg_stats_ext",
                "SELECT * FROM pg_stat_activity",
                "SELECT * FROM pg_prepared_statements",
                "SELECT * FROM pg_settings",
                "SELECT * FROM information_schema.columns",
                "SELECT * FROM pg_description",
            ):
                assert CANARY not in str(connection.execute(order).fetchall()), order
            mine = connection.execute("SELECT DISTINCT schemaname FROM pg_stats WHERE tablename = 'g1_chunks'")
            assert mine.fetchall() == [(two_wikis.one.schema,)]
            seen = connection.execute("SELECT DISTINCT table_schema FROM information_schema.tables").fetchall()
            assert {schema for (schema,) in seen} & {two_wikis.other.schema, "wikiholt"} == set()
    finally:
        alone.close()


def test_one_connection_for_two_wikis_never_keeps_the_role_of_the_other(two_wikis: TwoWikis) -> None:
    texts = {ONE: "text of one", OTHER: CANARY}
    roles = {ONE: two_wikis.one.role, OTHER: two_wikis.other.role}

    def ask(connection: Connection) -> tuple[object, ...]:
        order = "SELECT current_user, session_user, current_schema(), (SELECT DISTINCT text FROM g1_chunks)"
        (row,) = connection.execute(order).fetchall()
        return row

    def visit(turn: int) -> None:
        wiki_id = (ONE, OTHER)[turn % 2]
        connections = two_wikis.placements.get_connections(wiki_id)
        with (connections.read_connection, connections.read_snapshot, connections.write_transaction)[
            turn % 3
        ]() as connection:
            assert ask(connection) == (roles[wiki_id], roles[wiki_id], f"w_{wiki_id}", texts[wiki_id])

    for turn in range(12):
        visit(turn)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(visit, range(60)))
    order = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'w\\_%' AND datname = current_database()"

    def count_sessions() -> int:
        with two_wikis.placements.catalog.read_connection() as connection:
            return int(connection.execute(order).fetchall()[0][0])

    # The server needs a moment to end the session of a closed connection.
    wait_until(lambda: count_sessions() <= 1)


def test_a_removed_wiki_leaves_nothing(two_wikis: TwoWikis) -> None:
    with two_wikis.placements.get_connections(ONE).write_transaction() as connection:
        connection.execute("SELECT lo_create(0)")  # any role may, and one that owns something cannot be dropped
    went = two_wikis.placements.remove(ONE)
    assert {f"{two_wikis.one.schema}.g1_chunks", two_wikis.one.schema, f"role {two_wikis.one.role}"} <= set(went)
    looks = (
        "SELECT nspname FROM pg_namespace WHERE nspname ~ %s",
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname ~ %s",
        "SELECT rolname FROM pg_roles WHERE rolname ~ %s",
        "SELECT setrole FROM pg_db_role_setting JOIN pg_roles r ON r.oid = setrole WHERE rolname ~ %s",
        "SELECT pid FROM pg_stat_activity WHERE usename ~ %s",
        "SELECT oid FROM pg_largeobject_metadata WHERE %s::text IS NOT NULL",
        "SELECT wiki_id FROM placements WHERE role ~ %s",
    )
    with two_wikis.placements.catalog.read_connection() as connection:
        for look in looks:
            # Roles belong to the server, where other tests have wikis with this id: compare the full role name.
            name = two_wikis.one.schema if "nspname" in look else f"{two_wikis.one.role}$"
            assert connection.execute(look, (f"^{name}",)).fetchall() == [], look
    with pytest.raises(IndexMissing), two_wikis.placements.get_connections(ONE).read_connection():
        pass
    assert two_wikis.placements.list_wiki_ids() == [OTHER]
    assert two_wikis.placements.remove(ONE) == []


def test_only_the_group_may_connect_and_its_grant_is_one_entry(pg: PostgresServer, database: str) -> None:
    home = Catalog(database)
    placements = PlacementCatalog(home, ConnectionPool(1))
    for number in range(3):
        placements.provision(f"aaaaaaaa{number}")
    with home.read_connection() as connection:
        order = "SELECT datacl::text[] FROM pg_database WHERE datname = current_database()"
        ((entries,),) = connection.execute(order).fetchall()
    assert len(entries) == 2, "the owner and the group"
    assert any(re.match(r"wikiholt_guests_\d+=c/", entry) for entry in entries)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'x'")
    try:
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(pg.get_dsn(str(psycopg.conninfo.conninfo_to_dict(database)["dbname"]), "stranger", "x"))
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP ROLE stranger")
        for number in range(3):
            placements.remove(f"aaaaaaaa{number}")
        home.close()


@pytest.mark.parametrize("rights", ["", "CREATEROLE"])
def test_a_login_without_rights_names_the_missing_right_and_changes_nothing(
    pg: PostgresServer, database: str, rights: str
) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE weak LOGIN PASSWORD 'x' {rights}")
    home = Catalog(pg.get_dsn(name, "weak", "x"))
    try:
        with pytest.raises(InvalidSetting) as caught, home.read_connection():
            pass
        assert "administrator" in caught.value.hint
        assert "postgresql://" not in caught.value.message
    finally:
        home.close()
        with psycopg.connect(database, autocommit=True) as connection:
            assert connection.execute("SELECT to_regnamespace('wikiholt')").fetchall() == [(None,)]
            connection.execute("DROP ROLE weak")


def test_a_database_that_refuses_wiki_logins_raises_a_clear_error(pg: PostgresServer, database: str) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
        connection.execute("CREATE ROLE weak LOGIN PASSWORD 'x' CREATEROLE")
        connection.execute(f"GRANT CONNECT, CREATE ON DATABASE {name} TO weak")
    home = Catalog(pg.get_dsn(name, "weak", "x"))
    try:
        with pytest.raises(InvalidSetting, match="may not connect") as caught, home.read_connection():
            pass
        assert "GRANT CONNECT" in caught.value.hint
    finally:
        home.close()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY weak; DROP ROLE weak")


@pytest.mark.parametrize("bad", ["", "postgresql://host", "mysql://x/y", "postgresql://u:secret@host:port/db"])
def test_an_invalid_address_is_refused_without_its_secret(bad: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Catalog(bad)
    assert "secret" not in caught.value.message
    assert caught.value.hint
