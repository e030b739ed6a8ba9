"""`wikiholt doctor --fix` and the next sync repair a wiki whose role has another password."""

from pathlib import Path

import psycopg
import pytest

from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S
from wikiholt.api.doctor import fix_logins
from wikiholt.errors import LoginRefused
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.search.request import SearchRequest


def change_password(served: ServedApplication, database: str) -> str:
    """Change the password of alpha's role, as SQL in its session can. Returns the wiki's id."""
    service = served.application.service
    store, wiki_id = service.components.store, service.registry.get("alpha").id
    assert isinstance(store, PostgresStore)
    placement = store.placements.get(wiki_id)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {placement.role} PASSWORD 'other'")
    store.placements._pool.close_idle(store.placements.make_login(placement))
    return wiki_id


def test_a_changed_password_is_reported_and_repaired(tmp_path: Path, database: str) -> None:
    with serve_application(tmp_path, {"store": database}) as served:
        service = served.application.service
        # A sync would repair the password before the search sees it.
        assert served.application.scheduler.stop(TIMEOUT_S)
        change_password(served, database)
        with pytest.raises(LoginRefused):
            service.get_handle("alpha").search(SearchRequest("printer"))
        assert [result.subject for result in fix_logins(service)] == ["wiki alpha"]
        assert list(fix_logins(service)) == []
        assert service.get_handle("alpha").search(SearchRequest("printer")).hits

        change_password(served, database)
        head = served.alpha.commit({"New.md": "# New\n\nA page after the change.\n"})
        assert service.get_handle("alpha").sync().revision == head
        assert service.get_handle("alpha").search(SearchRequest("printer")).hits
