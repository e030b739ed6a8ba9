"""The isolation gate in PostgreSQL: the farm, the questions and the storm of the embedded store, and what SQL adds."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import test_isolation
from canaries import codes
from git_repository import Repository
from isolation_farm import THREADS, Farm, Storm, weather
from pg_ground import InPostgres
from pg_server import PgServer
from psycopg import sql
from test_isolation import service

from wikiholt.errors import WikiholtError
from wikiholt.model import Author, Filter, Mode
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.surfaces import documents

__all__ = ["service"]

HUGE, CONNECTIONS, SECOND = 400, 5, "second"
_OF_FILES = {
    "test_an_index_reaches_one_file_and_can_attach_no_other",
    "test_under_threads_and_during_syncs_rebuilds_and_removals_nothing_leaks",
}
INJECTIONS = (
    "'; DROP SCHEMA wikiholt CASCADE; --",
    "' UNION SELECT secret FROM wikiholt.placements --",
    "'); SELECT set_config('search_path', 'wikiholt', false); --",
    '"; RESET ROLE; SELECT slug FROM wikiholt.wikis; --',
    "$$; TRUNCATE state; $$",
    "\\'; SELECT pg_sleep(9); --",
    "%s %(name)s %% {0} {schema} $1 :name",
    "a' & 'b' | !c:* <-> ('d')",
    "E'\\x27 OR 1=1' /* */ ; ;",
    "{x,\"y\"} ARRAY['a'] '{}'::text[]",
)


def _shared() -> dict[str, Callable[..., None]]:
    """The tests of the embedded store's gate that know nothing of files."""
    return {
        name: test
        for name, test in vars(test_isolation).items()
        if name.startswith("test_") and name not in _OF_FILES
        if {"farm", "ground"} & set(inspect.signature(test).parameters)
    }


globals().update(_shared())


@pytest.fixture(scope="module")
def databases(pg: PgServer) -> Iterator[list[str]]:
    """Two databases: wikis are spread over both."""
    made = [pg.new_database() for _ in range(2)]
    yield made
    for each in made:
        pg.drop_database(each)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory, databases: list[str]) -> Farm:
    place = tmp_path_factory.mktemp("pgfarm")
    ground = InPostgres(place / "data", databases[0], databases[1:], postgres__connections=CONNECTIONS)
    with closing(ground.open()) as opened:
        assert opened.workshop.databases is not None
        opened.workshop.databases.add(SECOND, databases[1], 1.0)
    return Farm(place, ground, HUGE)


@pytest.fixture
def ground(tmp_path: Path, database: str) -> InPostgres:
    return InPostgres(tmp_path / "data", database)


def rows(farm: Farm) -> "InPostgres":
    assert isinstance(farm.ground, InPostgres)
    return farm.ground


def roles(farm: Farm) -> list[str]:
    """The roles of the farm's wikis; the server has others, of other tests."""
    return [role for role in rows(farm).rows.roles() if role.split("_")[1] in farm.ids.values()]


def test_the_questions_of_the_embedded_store_are_asked_here_too() -> None:
    assert len(_shared()) >= 8
    assert "test_every_mode_and_filter_shows_the_wiki_itself_and_no_other" in _shared()


def test_the_wikis_are_spread_over_both_databases_each_in_a_schema_of_its_own(farm: Farm) -> None:
    schemas = rows(farm).rows.schemas()
    for number in ("0", "1"):
        assert sum(at == number and name.startswith("w_") for at, name in schemas) >= len(farm.wikis) // 3
    names = [name for _, name in schemas if name.startswith("w_")]
    assert sorted(names) == sorted(f"w_{wiki_id}" for wiki_id in farm.ids.values())
    assert len(roles(farm)) == len(names)


def test_no_word_of_a_query_or_filter_is_taken_for_sql(farm: Farm, service: Service) -> None:
    me = farm.wikis[2]
    handle, before = service.wiki(me.slug), farm.held(farm.wikis)
    for text in INJECTIONS:
        filters = (Filter(), Filter(tags=(text,)), Filter(categories=(text,)), Filter(path_prefix=text))
        for where in filters:
            for mode in Mode:
                answer = _said(handle.search, Request(text, 100, mode, where))
                assert codes(answer) <= {me.code}, f"{text!r}: {answer}"
        for ask in (handle.contents.read, handle.contents.links, handle.similar, service.wiki, service.remove):
            assert codes(_said(ask, text)) <= {me.code}
    assert farm.held(farm.wikis) == before


def _said(ask: Callable[..., object], *arguments: object) -> str:
    """What is answered, or the error in words, without the echo of the question."""
    try:
        found = ask(*arguments)
    except WikiholtError as error:
        return f"{error.message} {error.hint}"
    return json.dumps(documents.answer_document(found)["results"]) if hasattr(found, "hits") else repr(found)


def test_sql_on_pages_is_text(tmp_path: Path, database: str) -> None:
    ground = InPostgres(tmp_path / "data", database)
    repository = Repository(tmp_path / "wiki")
    pages = {
        f"p{at}/{text.replace('/', '|')}.md": f"---\ntitle: {json.dumps(text)}\ntags: [{json.dumps(text)}]\n"
        f"category: {json.dumps(text)}\n---\n# {text}\n\nhostile{at}x {text} [[{text}]]"
        for at, text in enumerate(INJECTIONS)
    }
    repository.commit(dict(pages))
    with closing(ground.open()) as opened:
        opened.add("hostile", str(repository.path), {})
        wiki = opened.wiki("hostile")
        assert not wiki.sync().problems
        assert wiki.check() == []
        for at, text in enumerate(INJECTIONS):
            for mode in (Mode.KEYWORD, Mode.HYBRID):
                hits = wiki.search(Request(f"hostile{at}x", 5, mode)).hits
                assert hits[0].path.startswith(f"p{at}/"), mode
            found = wiki.search(Request(f"hostile{at}x", 50, Mode.SEMANTIC, Filter(tags=(text,)))).hits
            assert [hit.path.split("/")[0] for hit in found] == [f"p{at}"]
            path = f"p{at}/{text.replace('/', '|')}".replace("\\", "|")
            wiki.contents.put(path, f"# Again\n\n{text}", Author("'; --", "ada@example.org"), text)
        assert wiki.sync().revision == repository.head()
        assert wiki.check() == []
        assert len(wiki.status().wiki.slug) == len("hostile")


class StormOverDatabases(Storm):
    """The storm, in which wikis also wander from one database to the other and back."""

    def __init__(self, farm: Farm) -> None:
        super().__init__(farm)
        self.moves = 0

    def works(self) -> Sequence[Callable[[Service], None]]:
        return *super().works(), self._move

    def _move(self, service: Service) -> None:
        databases = service.workshop.databases
        assert databases is not None
        for wiki in [*self.farm.wikis[10:12], self.farm.wikis[0]]:
            for to in (SECOND, "home"):
                self.moves += databases.move(self.farm.ids[wiki.slug], to)


def test_under_threads_with_few_connections_and_during_syncs_rebuilds_removals_and_moves_nothing_leaks(
    farm: Farm, caplog: pytest.LogCaptureFixture
) -> None:
    assert CONNECTIONS < THREADS
    doomed = [farm.ids[wiki.slug] for wiki in farm.wikis[-4:]]
    for wiki_id in doomed:
        leave_more(farm, wiki_id)
    rows(farm).rows.analyze()
    kept = len(roles(farm)) - len(doomed)
    storm = StormOverDatabases(farm)
    assert weather(farm, storm, caplog) > 100
    assert storm.moves >= 3
    assert len(roles(farm)) == kept


def leave_more(farm: Farm, wiki_id: str) -> None:
    """What any role may leave behind in a database, whatever it is granted: a large object."""
    with closing(farm.ground.open()) as opened:
        store = opened.workshop.store
        with store.door(wiki_id).writing() as connection:  # type: ignore[attr-defined]
            connection.execute("SELECT lo_from_bytea(0, %s)", (f"of {wiki_id}".encode(),))


def test_sql_under_a_wikis_role_finds_that_wiki_alone(farm: Farm, service: Service) -> None:
    """Whatever gets through, gets through as the wiki's own role, which sees its schema and can become no other."""
    me, others = farm.wikis[1], farm.wikis[2:8]
    door = service.workshop.store.door(farm.ids[me.slug])  # type: ignore[attr-defined]
    hostile = ["RESET ROLE", "RESET SESSION AUTHORIZATION", "SET search_path TO wikiholt, public", "RESET ALL"]
    hostile += ["SET ROLE operator", "SET SESSION AUTHORIZATION operator", "SET default_transaction_read_only TO off"]
    told: list[object] = []
    with closing(door.alone()) as raw:
        for order in hostile:
            _tried(raw, sql.SQL(order))
        for other in others:
            told += _everything_of(raw, f"w_{farm.ids[other.slug]}")
        told += _everything_of(raw, "wikiholt")
        for function in ("pg_read_file('/etc/passwd')", "pg_ls_dir('.')", "lo_import('/etc/passwd')"):
            told += _tried(raw, sql.SQL(f"SELECT {function}"))
        told += _tried(raw, sql.SQL("COPY (SELECT 1) TO PROGRAM 'true'"))
        own = _tried(raw, sql.SQL("SELECT name FROM {}.g1_pages").format(sql.Identifier(f"w_{farm.ids[me.slug]}")))
    assert told == []
    assert own
    assert codes(service.wiki(me.slug).search(Request("pump", 50)).hits.__repr__()) == {me.code}


def _everything_of(connection: "psycopg.Connection[tuple[object, ...]]", schema: str) -> list[object]:
    found: list[object] = []
    for table in ("state", "notes", "g1_pages", "g1_chunks", "placements", "wikis", "keys", "databases"):
        name = sql.Identifier(schema, table)
        for order in (
            "SELECT * FROM {}",
            "TABLE {}",
            "DELETE FROM {} RETURNING *",
            "DROP TABLE {}",
            "COPY {} TO STDOUT",
        ):
            found += _tried(connection, sql.SQL(order).format(name))
    return found


def _tried(connection: "psycopg.Connection[tuple[object, ...]]", order: sql.Composable) -> list[object]:
    try:
        done = connection.execute(order)
        return list(done.fetchall()) if done.description else []
    except psycopg.Error:
        return []
