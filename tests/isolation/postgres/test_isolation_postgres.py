"""Isolation in PostgreSQL: the wikis, queries and load of the SQLite store, and tests of SQL and roles."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.isolation import test_isolation
from tests.isolation.canaries import find_codes
from tests.isolation.isolation_environment import THREAD_COUNT, ConcurrentLoad, IsolationEnvironment, check_under_load
from tests.isolation.postgres.postgres_backend import PostgresBackend
from tests.isolation.test_isolation import service
from tests.support.git_repository import Repository
from tests.support.postgres_server import PostgresServer
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S
from wikiholt.api.documents.search_documents import build_result_document
from wikiholt.domain.git import Author
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

__all__ = ["service"]

HUGE_PAGE_COUNT, MAX_CONNECTIONS, SECOND_DATABASE = choose(400, 150), 5, "second"
_OTHER_TESTS = {
    "test_a_command_for_one_wiki_shows_only_that_wiki",
    "test_an_index_connection_has_one_file_and_cannot_attach_another",
    "test_an_unknown_slug_opens_nothing",
    "test_errors_of_a_broken_repository_name_only_its_own_wiki",
    "test_nothing_leaks_with_many_threads_during_syncs_rebuilds_and_removals",
    "test_similar_slugs_and_ids_open_nothing",
}
"""Tests of files, and tests that do not depend on where an index is stored."""
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
    """The tests of the SQLite store that are right for any store."""
    return {
        name: test
        for name, test in vars(test_isolation).items()
        if name.startswith("test_") and name not in _OTHER_TESTS
        if {"env", "backend"} & set(inspect.signature(test).parameters)
    }


globals().update(_shared_tests())


@pytest.fixture(scope="module")
def databases(pg: PostgresServer) -> Iterator[list[str]]:
    """Two databases: wikis are spread over both."""
    made = [pg.create_database() for _ in range(2)]
    yield made
    for address in made:
        pg.drop_database(address)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory, databases: list[str]) -> IsolationEnvironment:
    directory = tmp_path_factory.mktemp("pgisolation")
    limits = {"postgres__connections": MAX_CONNECTIONS, "lock__timeout": TIMEOUT_S}
    backend = PostgresBackend(directory / "data", databases[0], databases[1:], **limits)
    with closing(backend.open_service()) as opened:
        assert opened.components.databases is not None
        opened.components.databases.add(SECOND_DATABASE, databases[1], 1.0)
    return IsolationEnvironment(directory, backend, HUGE_PAGE_COUNT)


@pytest.fixture
def backend(tmp_path: Path, database: str) -> PostgresBackend:
    return PostgresBackend(tmp_path / "data", database)


def get_backend(env: IsolationEnvironment) -> "PostgresBackend":
    assert isinstance(env.backend, PostgresBackend)
    return env.backend


def list_roles(env: IsolationEnvironment) -> list[str]:
    """The roles of the wikis of this environment; the server also has roles of other tests."""
    return [role for role in get_backend(env).rows.list_roles() if role.split("_")[1] in env.ids.values()]


def test_the_tests_of_the_sqlite_store_also_run_here() -> None:
    assert len(_shared_tests()) >= 4
    assert "test_every_mode_and_filter_returns_only_the_own_wiki" in _shared_tests()


def test_the_wikis_are_in_separate_schemas_on_both_databases(env: IsolationEnvironment) -> None:
    schemas = get_backend(env).rows.list_schemas()
    for number in ("0", "1"):
        assert sum(at == number and name.startswith("w_") for at, name in schemas) >= len(env.wikis) // 3
    names = [name for _, name in schemas if name.startswith("w_")]
    assert sorted(names) == sorted(f"w_{wiki_id}" for wiki_id in env.ids.values())
    assert len(list_roles(env)) == len(names)


def test_no_query_or_filter_is_executed_as_sql(env: IsolationEnvironment, service: WikiService) -> None:
    me = env.wikis[2]
    handle, before = service.get_handle(me.slug), env.read_wikis(env.wikis)
    for text in INJECTIONS:
        for where in (PageFilter(), PageFilter(tags=(text,), categories=(text,), path_prefix=text)):
            for mode in (SearchMode.KEYWORD, SearchMode.SEMANTIC):
                answer = _get_result_text(handle.search, SearchRequest(text, 100, mode, where))
                assert find_codes(answer) <= {me.code}, f"{text!r}: {answer}"
        for call in (
            handle.pages.read,
            handle.pages.get_links,
            handle.find_similar,
            service.get_handle,
            service.remove,
        ):
            assert find_codes(_get_result_text(call, text)) <= {me.code}
    assert env.read_wikis(env.wikis) == before


def _get_result_text(call: Callable[..., object], *arguments: object) -> str:
    """The result or the error message, without the query."""
    try:
        found = call(*arguments)
    except WikiholtError as error:
        return f"{error.message} {error.hint}"
    return json.dumps(build_result_document(found)["results"]) if hasattr(found, "hits") else repr(found)


def test_sql_on_pages_is_indexed_as_text(tmp_path: Path, database: str) -> None:
    backend = PostgresBackend(tmp_path / "data", database)
    repository = Repository(tmp_path / "wiki")
    pages = {
        f"p{at}/{text.replace('/', '|')}.md": f"---\ntitle: {json.dumps(text)}\ntags: [{json.dumps(text)}]\n"
        f"category: {json.dumps(text)}\n---\n# {text}\n\nhostile{at}x {text} [[{text}]]"
        for at, text in enumerate(INJECTIONS)
    }
    repository.commit(dict(pages))
    with closing(backend.open_service()) as opened:
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
    """The load, in which wikis are also moved between the databases."""

    def __init__(self, env: IsolationEnvironment) -> None:
        super().__init__(env)
        self.moves = 0

    def get_tasks(self) -> Sequence[Callable[[WikiService], None]]:
        return *super().get_tasks(), self._move_wikis

    def _move_wikis(self, service: WikiService) -> None:
        databases = service.components.databases
        assert databases is not None
        for wiki in [*self.env.wikis[10:12], self.env.wikis[0]]:
            for to in (SECOND_DATABASE, "home"):
                self.moves += databases.move(self.env.ids[wiki.slug], to)


def test_nothing_leaks_with_few_connections_during_syncs_rebuilds_removals_and_moves(
    env: IsolationEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    assert MAX_CONNECTIONS < THREAD_COUNT
    removed_ids = [env.ids[wiki.slug] for wiki in env.wikis[-4:]]
    for wiki_id in removed_ids:
        create_leftovers(env, wiki_id)
    get_backend(env).rows.analyze()
    remaining = len(list_roles(env)) - len(removed_ids)
    load = DatabaseLoad(env)
    assert check_under_load(env, load, caplog) > 100
    assert load.moves >= 3
    assert len(list_roles(env)) == remaining


def create_leftovers(env: IsolationEnvironment, wiki_id: str) -> None:
    """Create a large object, which any role may do without a grant."""
    with closing(env.backend.open_service()) as opened:
        store = opened.components.store
        with store.get_connections(wiki_id).write_transaction() as connection:  # type: ignore[attr-defined]
            connection.execute("SELECT lo_from_bytea(0, %s)", (f"of {wiki_id}".encode(),))
