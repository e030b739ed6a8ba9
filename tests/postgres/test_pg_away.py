"""A database that is away: its wikis answer 503 with Retry-After, others go on, nothing is taken for damage."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from git_repository import Repository
from pg_server import PgServer
from pg_waiting import until
from psycopg import conninfo
from starlette.testclient import TestClient

from wikiholt.errors import DatabaseAway
from wikiholt.keeper import Keeper, Pace
from wikiholt.model import Health, Scope
from wikiholt.search import Request
from wikiholt.settings import load
from wikiholt.surfaces.http.app import create_app
from wikiholt.surfaces.mcp.telling import error_text
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import Farm, open_farm


@pytest.fixture
def farm(database: str, tmp_path: Path) -> Iterator[Farm]:
    farm = open_farm(load(tmp_path / "data", overrides={"store": database, "limit.address_per_minute": 0}))
    embedder = FakeEmbedder()
    farm.service.workshop = replace(farm.service.workshop, embedder=lambda: embedder, identity=None)
    yield farm
    farm.service.close()


class Line:
    """The way to a database of the test's server, by a socket of its own, which can be cut."""

    def __init__(self, pg: PgServer, place: Path) -> None:
        self._pg = pg
        self._database = str(conninfo.conninfo_to_dict(pg.new_database())["dbname"])
        self._socket, self._ours = pg.place / ".s.PGSQL.5432", place / ".s.PGSQL.5432"
        place.mkdir()
        self._ours.symlink_to(self._socket)
        self.address = conninfo.make_conninfo(pg.dsn(self._database), host=str(place))

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let nobody reach the database, and throw out who is in."""
        self._ours.unlink()
        ending = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self._pg.dsn(), autocommit=True) as connection:
            connection.execute(ending, (self._database,))
        try:
            yield
        finally:
            self._ours.symlink_to(self._socket)

    def drop(self) -> None:
        self._pg.drop_database(self.address)


@pytest.fixture
def east(pg: PgServer, farm: Farm, tmp_path: Path) -> Iterator[Line]:
    """A second database, with the wiki `far` on it; the wiki `near` is at home."""
    line = Line(pg, tmp_path / "line")
    databases = farm.service.workshop.databases
    assert databases is not None
    databases.add("east", line.address, 1.0)
    for slug, closed in (("near", "east"), ("far", "home")):
        databases.open(closed, to_new=False)
        repository = Repository(tmp_path / slug)
        repository.commit({"Page.md": f"# Page\n\nof the wiki {slug}\n"})
        farm.service.add(slug, str(repository.path), {})
        farm.service.wiki(slug).sync()
        databases.open(closed, to_new=True)
    yield line
    line.drop()


def answers(farm: Farm, slug: str) -> bool:
    try:
        return [hit.path for hit in farm.service.wiki(slug).search(Request(slug)).hits] == ["Page"]
    except DatabaseAway:
        return False


def test_its_wikis_answer_503_and_others_go_on_and_it_comes_back_by_itself(farm: Farm, east: Line) -> None:
    _, key = farm.service.registry.keys.create(None, Scope.ADMIN)
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(create_app(farm), base_url="http://127.0.0.1") as client:

        def asked(slug: str) -> tuple[int, str | None]:
            answer = client.get(f"/w/{slug}/api/v1/search", params={"q": slug}, headers=headers)
            return answer.status_code, answer.headers.get("Retry-After")

        assert (asked("far"), asked("near")) == ((200, None), (200, None))
        with east.cut():
            assert (asked("far"), asked("near")) == ((503, "2"), (200, None))
            body = client.get("/w/far/api/v1/search", params={"q": "x"}, headers=headers).json()
            assert (body["code"], body["detail"]) == (
                "database-away",
                "The database of this wiki cannot be reached now.",
            )
            figures = client.get("/metrics", headers=headers).text
            assert 'wikiholt_database_up{database="east"} 0.0' in figures
            assert 'wikiholt_database_up{database="home"} 1.0' in figures
            listed = client.get("/api/v1/wikis", headers=headers)
            assert (listed.status_code, len(listed.json()["wikis"])) == (200, 2)
        until(lambda: asked("far") == (200, None))
        assert 'wikiholt_database_up{database="east"} 1.0' in client.get("/metrics", headers=headers).text


def test_it_is_never_taken_for_damage(farm: Farm, east: Line) -> None:
    handle = farm.service.wiki("far")
    with east.cut():
        for attempt in (handle.sync, handle.reindex, handle.examine, handle.check, handle.backups.take):
            with pytest.raises(DatabaseAway):
                attempt()
        status = handle.status()
        assert isinstance(status.error, DatabaseAway)
        assert status.head is not None
    until(lambda: answers(farm, "far"))
    assert (handle.health.condition, handle.status().aside, handle.check()) == (Health().condition, (), [])
    report = handle.sync()
    assert (report.added, report.chunks_embedded, report.rebuilt) == (0, 0, False)


def test_a_keeper_goes_on_with_the_others_and_comes_back_to_it(farm: Farm, east: Line, tmp_path: Path) -> None:
    keeper = Keeper(farm.service, Pace(1, 0.1, 0.1, lambda _: 0.1))
    keeper.start()
    try:
        with east.cut():
            for slug in ("far", "near"):
                Repository(tmp_path / slug).commit({"New.md": "# New\n"})
            until(lambda: farm.service.wiki("near").settled_at() == Repository(tmp_path / "near").head())
            assert keeper.standing(farm.service.registry.get("far").id).failures == 0, "it is no fault of the wiki"
        until(lambda: farm.service.wiki("far").settled_at() == Repository(tmp_path / "far").head())
    finally:
        assert keeper.stop(60)


def test_an_agent_is_told_how_long_to_wait() -> None:
    told = error_text(DatabaseAway("the database at 10.0.0.1 is away", retry_after=2.0))
    assert (
        told
        == "database-away: The database of this wiki cannot be reached now.\nNext: Wait 2 seconds and call it again."
    )
