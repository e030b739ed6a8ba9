"""The isolation gate in PostgreSQL: the farm, the questions and the storm of the embedded store, and what SQL adds."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.isolation import test_isolation
from tests.isolation.canaries import find_codes
from tests.isolation.isolation_farm import THREAD_COUNT, ConcurrentLoad, IsolationFarm, check_under_load
from tests.isolation.postgres.postgres_backend import PostgresBackend
from tests.isolation.test_isolation import service
from tests.support.git_repository import Repository
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.git import Author
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

__all__ = ["service"]

HUGE_PAGE_COUNT, MAX_CONNECTIONS, SECOND_DATABASE = 400, 5, "second"
_FILE_ONLY_TESTS = {
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


def _shared_tests() -> dict[str, Callable[..., None]]:
    """The tests of the embedded store's gate that know nothing of files."""
    return {
        name: test
        for name, test in vars(test_isolation).items()
        if name.startswith("test_") and name not in _FILE_ONLY_TESTS
        if {"farm", "ground"} & set(inspect.signature(test).parameters)
    }


globals().update(_shared_tests())


@pytest.fixture(scope="module")
def databases(pg: PostgresServer) -> Iterator[list[str]]:
    """Two databases: wikis are spread over both."""
    made = [pg.create_database() for _ in range(2)]
    yield made
    for each in made:
        pg.drop_database(each)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory, databases: list[str]) -> IsolationFarm:
    place = tmp_path_factory.mktemp("pgfarm")
    ground = PostgresBackend(place / "data", databases[0], databases[1:], postgres__connections=MAX_CONNECTIONS)
    with closing(ground.open_service()) as opened:
        assert opened.components.databases is not None
        opened.components.databases.add(SECOND_DATABASE, databases[1], 1.0)
    return IsolationFarm(place, ground, HUGE_PAGE_COUNT)


@pytest.fixture
def ground(tmp_path: Path, database: str) -> PostgresBackend:
    return PostgresBackend(tmp_path / "data", database)


def get_backend(farm: IsolationFarm) -> "PostgresBackend":
    assert isinstance(farm.backend, PostgresBackend)
    return farm.backend


def list_roles(farm: IsolationFarm) -> list[str]:
    """The roles of the farm's wikis; the server has others, of other tests."""
    return [role for role in get_backend(farm).rows.list_roles() if role.split("_")[1] in farm.ids.values()]


def test_the_questions_of_the_embedded_store_are_asked_here_too() -> None:
    assert len(_shared_tests()) >= 8
    assert "test_every_mode_and_filter_shows_the_wiki_itself_and_no_other" in _shared_tests()


def test_the_wikis_are_spread_over_both_databases_each_in_a_schema_of_its_own(farm: IsolationFarm) -> None:
    schemas = get_backend(farm).rows.list_schemas()
    for number in ("0", "1"):
        assert sum(at == number and name.startswith("w_") for at, name in schemas) >= len(farm.wikis) // 3
    names = [name for _, name in schemas if name.startswith("w_")]
    assert sorted(names) == sorted(f"w_{wiki_id}" for wiki_id in farm.ids.values())
    assert len(list_roles(farm)) == len(names)


def test_no_word_of_a_query_or_filter_is_taken_for_sql(farm: IsolationFarm, service: WikiService) -> None:
    me = farm.wikis[2]
    handle, before = service.get_handle(me.slug), farm.read_wikis(farm.wikis)
    for text in INJECTIONS:
        filters = (PageFilter(), PageFilter(tags=(text,)), PageFilter(categories=(text,)), PageFilter(path_prefix=text))
        for where in filters:
            for mode in SearchMode:
                answer = _get_result_text(handle.search, SearchRequest(text, 100, mode, where))
                assert find_codes(answer) <= {me.code}, f"{text!r}: {answer}"
        for ask in (handle.pages.read, handle.pages.get_links, handle.find_similar, service.get_handle, service.remove):
            assert find_codes(_get_result_text(ask, text)) <= {me.code}
    assert farm.read_wikis(farm.wikis) == before


def _get_result_text(ask: Callable[..., object], *arguments: object) -> str:
    """What is answered, or the error in words, without the echo of the question."""
    try:
        found = ask(*arguments)
    except WikiholtError as error:
        return f"{error.message} {error.hint}"
    return json.dumps(build_result_document(found)["results"]) if hasattr(found, "hits") else repr(found)


def test_sql_on_pages_is_text(tmp_path: Path, database: str) -> None:
    ground = PostgresBackend(tmp_path / "data", database)
    repository = Repository(tmp_path / "wiki")
    pages = {
        f"p{at}/{text.replace('/', '|')}.md": f"---\ntitle: {json.dumps(text)}\ntags: [{json.dumps(text)}]\n"
        f"category: {json.dumps(text)}\n---\n# {text}\n\nhostile{at}x {text} [[{text}]]"
        for at, text in enumerate(INJECTIONS)
    }
    repository.commit(dict(pages))
    with closing(ground.open_service()) as opened:
        opened.add("hostile", str(repository.path), {})
        wiki = opened.get_handle("hostile")
        assert not wiki.sync().problems
        assert wiki.check() == []
        for at, text in enumerate(INJECTIONS):
            for mode in (SearchMode.KEYWORD, SearchMode.HYBRID):
                hits = wiki.search(SearchRequest(f"hostile{at}x", 5, mode)).hits
                assert hits[0].path.startswith(f"p{at}/"), mode
            found = wiki.search(SearchRequest(f"hostile{at}x", 50, SearchMode.SEMANTIC, PageFilter(tags=(text,)))).hits
            assert [hit.path.split("/")[0] for hit in found] == [f"p{at}"]
            path = f"p{at}/{text.replace('/', '|')}".replace("\\", "|")
            wiki.pages.write(path, f"# Again\n\n{text}", Author("'; --", "ada@example.org"), text)
        assert wiki.sync().revision == repository.get_head()
        assert wiki.check() == []
        assert len(wiki.get_status().wiki.slug) == len("hostile")


class DatabaseLoad(ConcurrentLoad):
    """The storm, in which wikis also wander from one database to the other and back."""

    def __init__(self, farm: IsolationFarm) -> None:
        super().__init__(farm)
        self.moves = 0

    def get_tasks(self) -> Sequence[Callable[[WikiService], None]]:
        return *super().get_tasks(), self._move_wikis

    def _move_wikis(self, service: WikiService) -> None:
        databases = service.components.databases
        assert databases is not None
        for wiki in [*self.farm.wikis[10:12], self.farm.wikis[0]]:
            for to in (SECOND_DATABASE, "home"):
                self.moves += databases.move(self.farm.ids[wiki.slug], to)


def test_under_threads_with_few_connections_and_during_syncs_rebuilds_removals_and_moves_nothing_leaks(
    farm: IsolationFarm, caplog: pytest.LogCaptureFixture
) -> None:
    assert MAX_CONNECTIONS < THREAD_COUNT
    doomed = [farm.ids[wiki.slug] for wiki in farm.wikis[-4:]]
    for wiki_id in doomed:
        create_leftovers(farm, wiki_id)
    get_backend(farm).rows.analyze()
    kept = len(list_roles(farm)) - len(doomed)
    storm = DatabaseLoad(farm)
    assert check_under_load(farm, storm, caplog) > 100
    assert storm.moves >= 3
    assert len(list_roles(farm)) == kept


def create_leftovers(farm: IsolationFarm, wiki_id: str) -> None:
    """What any role may leave behind in a database, whatever it is granted: a large object."""
    with closing(farm.backend.open_service()) as opened:
        store = opened.components.store
        with store.get_connections(wiki_id).write_transaction() as connection:  # type: ignore[attr-defined]
            connection.execute("SELECT lo_from_bytea(0, %s)", (f"of {wiki_id}".encode(),))


def test_sql_under_a_wikis_role_finds_that_wiki_alone(farm: IsolationFarm, service: WikiService) -> None:
    """Whatever gets through, gets through as the wiki's own role, which sees its schema and can become no other."""
    me, others = farm.wikis[1], farm.wikis[2:8]
    connections = service.components.store.get_connections(farm.ids[me.slug])  # type: ignore[attr-defined]
    hostile = ["RESET ROLE", "RESET SESSION AUTHORIZATION", "SET search_path TO wikiholt, public", "RESET ALL"]
    hostile += ["SET ROLE operator", "SET SESSION AUTHORIZATION operator", "SET default_transaction_read_only TO off"]
    told: list[object] = []
    with closing(connections.open_dedicated()) as raw:
        for order in hostile:
            _try_statement(raw, sql.SQL(order))
        for other in others:
            told += _read_everything(raw, f"w_{farm.ids[other.slug]}")
        told += _read_everything(raw, "wikiholt")
        for function in ("pg_read_file('/etc/passwd')", "pg_ls_dir('.')", "lo_import('/etc/passwd')"):
            told += _try_statement(raw, sql.SQL(f"SELECT {function}"))
        told += _try_statement(raw, sql.SQL("COPY (SELECT 1) TO PROGRAM 'true'"))
        own = _try_statement(
            raw, sql.SQL("SELECT name FROM {}.g1_pages").format(sql.Identifier(f"w_{farm.ids[me.slug]}"))
        )
    assert told == []
    assert own
    assert find_codes(service.get_handle(me.slug).search(SearchRequest("pump", 50)).hits.__repr__()) == {me.code}


def _read_everything(connection: "psycopg.Connection[tuple[object, ...]]", schema: str) -> list[object]:
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
            found += _try_statement(connection, sql.SQL(order).format(name))
    return found


def _try_statement(connection: "psycopg.Connection[tuple[object, ...]]", statement: sql.Composable) -> list[object]:
    try:
        done = connection.execute(statement)
        return list(done.fetchall()) if done.description else []
    except psycopg.Error:
        return []
