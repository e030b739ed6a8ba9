"""`wikiholt serve --workers 2` over PostgreSQL: a write through one worker is found through the other."""

from pathlib import Path

from tests.support.worker_service import make_worker_service

PAGES = {"garden": {"Home.md": "# Home\n\nThe cat sleeps on the sofa.\n"}}


def test_a_write_through_one_worker_is_seen_by_the_next_search_through_the_other(tmp_path: Path, database: str) -> None:
    with make_worker_service(tmp_path, PAGES, store=database) as service:
        service.start(forks=False)
        first, second = service.list_workers()
        with service.only(first):
            body = {"content": "A couch named quoll.\n"}
            response = service.send("PUT", "/w/garden/api/v1/pages/Couch", "garden", body)
            assert response.status_code == 201, response.text
        with service.only(second):
            assert service.find("garden", "quoll", at_least=response.json()["revision"]) == ["Couch"]
            assert service.send("GET", "/metrics", "operator").text.count("wikiholt_database_up{") == 1
        assert service.stop() == 0
