"""An unavailable database: its wikis answer 503 with Retry-After, others work, nothing is treated as damage."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.support.database_link import DatabaseLink
from tests.support.git_repository import Repository
from tests.support.postgres_server import PostgresServer
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import Application, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import IndexHealth
from wikiholt.domain.wiki import Scope
from wikiholt.errors import DatabaseUnavailable
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.mcp.errors import format_error
from wikiholt.search.request import SearchRequest
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder


@pytest.fixture
def application(database: str, tmp_path: Path) -> Iterator[Application]:
    application = open_application(
        load_settings(tmp_path / "data", overrides={"store": database, "limit.address_per_minute": 0})
    )
    embedder = FakeEmbedder()
    application.service.components = replace(application.service.components, embedder=lambda: embedder, identity=None)
    yield application
    application.service.close()


@pytest.fixture
def east(pg: PostgresServer, application: Application, tmp_path: Path) -> Iterator[DatabaseLink]:
    """A second database with the wiki `far`; the wiki `near` is in the home database."""
    line = DatabaseLink(pg, tmp_path / "line")
    databases = application.service.components.databases
    assert databases is not None
    databases.add("east", line.address, 1.0)
    for slug, closed in (("near", "east"), ("far", "home")):
        databases.set_open(closed, accept_new=False)
        repository = Repository(tmp_path / slug)
        repository.commit({"Page.md": f"# Page\n\nof the wiki {slug}\n"})
        application.service.add(slug, str(repository.path), {})
        application.service.get_handle(slug).sync()
        databases.set_open(closed, accept_new=True)
    yield line
    line.drop_database()


def can_answer(application: Application, slug: str) -> bool:
    try:
        return [hit.path for hit in application.service.get_handle(slug).search(SearchRequest(slug)).hits] == ["Page"]
    except DatabaseUnavailable:
        return False


def test_wikis_of_an_unavailable_database_answer_503_and_recover_by_themselves(
    application: Application, east: DatabaseLink
) -> None:
    _, key = application.service.registry.keys.create(None, Scope.ADMIN)
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(create_app(application), base_url="http://127.0.0.1") as client:

        def search(slug: str) -> tuple[int, str | None]:
            answer = client.get(f"/w/{slug}/api/v1/search", params={"q": slug}, headers=headers)
            return answer.status_code, answer.headers.get("Retry-After")

        assert (search("far"), search("near")) == ((200, None), (200, None))
        with east.disconnected():
            assert (search("far"), search("near")) == ((503, "2"), (200, None))
            body = client.get("/w/far/api/v1/search", params={"q": "x"}, headers=headers).json()
            assert (body["code"], body["detail"]) == (
                "database-unavailable",
                "The database of this wiki is unavailable.",
            )
            metrics = client.get("/metrics", headers=headers).text
            assert 'wikiholt_database_up{database="east"} 0.0' in metrics
            assert 'wikiholt_database_up{database="home"} 1.0' in metrics
            listed = client.get("/api/v1/wikis", headers=headers)
            assert (listed.status_code, len(listed.json()["wikis"])) == (200, 2)
        wait_until(lambda: search("far") == (200, None))
        assert 'wikiholt_database_up{database="east"} 1.0' in client.get("/metrics", headers=headers).text


def test_an_unavailable_database_is_never_treated_as_damage(application: Application, east: DatabaseLink) -> None:
    handle = application.service.get_handle("far")
    with east.disconnected():
        for attempt in (
            handle.sync,
            partial(handle.sync, from_scratch=True),
            handle.check_integrity,
            handle.check,
            handle.backups.create,
        ):
            with pytest.raises(DatabaseUnavailable):
                attempt()
        status = handle.get_status()
        assert isinstance(status.error, DatabaseUnavailable)
        assert status.head is not None
    wait_until(lambda: can_answer(application, "far"))
    assert (handle.health.condition, handle.get_status().quarantined, handle.check()) == (
        IndexHealth().condition,
        (),
        [],
    )
    report = handle.sync()
    assert (report.added, report.chunks_embedded, report.rebuilt) == (0, 0, False)


def test_the_scheduler_continues_with_other_wikis_and_returns_to_it(
    application: Application, east: DatabaseLink, tmp_path: Path
) -> None:
    scheduler = Scheduler(application.service, SchedulerConfig(1, 0.1, 0.1, lambda _: 0.1))
    scheduler.start()
    try:
        with east.disconnected():
            for slug in ("far", "near"):
                Repository(tmp_path / slug).commit({"New.md": "# New\n"})
            wait_until(
                lambda: (
                    application.service.get_handle("near").get_indexed_revision()
                    == Repository(tmp_path / "near").get_head()
                )
            )
            assert scheduler.get_sync_state(application.service.registry.get("far").id).failures == 0, (
                "not counted as a failure of the wiki"
            )
        wait_until(
            lambda: (
                application.service.get_handle("far").get_indexed_revision() == Repository(tmp_path / "far").get_head()
            )
        )
    finally:
        assert scheduler.stop(60)


def test_an_agent_sees_how_long_to_wait() -> None:
    message = format_error(DatabaseUnavailable("the database at 10.0.0.1 is away", retry_after=2.0))
    assert (
        message
        == "database-unavailable: The database of this wiki is unavailable.\nNext: Wait 2 seconds and call it again."
    )
