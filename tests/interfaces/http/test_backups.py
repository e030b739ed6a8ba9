"""Backups over HTTP: admins manage the backups of their own wiki only."""

import pytest

from tests.support.served_application import ServedApplication


def test_an_admin_backs_up_lists_and_restores(writable: ServedApplication) -> None:
    client = writable.make_client("admin")
    response = client.post("/api/v1/backup")
    assert response.status_code == 201
    assert response.json()["revision"] == writable.alpha.get_head()
    writable.alpha.commit({"New.md": "# New\n\nA kingfisher."})
    document = client.get("/api/v1/search", params={"q": "kingfisher", "mode": "keyword", "fresh": "true"}).json()
    assert [hit["path"] for hit in document["results"]] == ["New"]
    listed = client.get("/api/v1/backups").json()
    assert listed == {"backups": [response.json()], "total": 1, "error": None}
    restored = client.post("/api/v1/restore", params={"at": response.json()["taken_at"]})
    assert (restored.status_code, restored.json()) == (200, response.json())
    again = client.get("/api/v1/search", params={"q": "kingfisher", "mode": "keyword", "fresh": "true"}).json()
    assert [hit["path"] for hit in again["results"]] == ["New"]
    assert again["stale"] is False
    assert client.get("/api/v1/backups").json()["total"] == 2


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({}, 404, "backup-not-found"),
        ({"at": "2001-01-01"}, 404, "backup-not-found"),
        ({"at": "someday"}, 422, "invalid-input"),
        ({"at": ""}, 422, "invalid-input"),
        ({"when": "2001-01-01"}, 422, "invalid-input"),
    ],
)
def test_an_impossible_restore_is_rejected_and_changes_nothing(
    shared: ServedApplication, params: dict[str, str], status: int, code: str
) -> None:
    client = shared.make_client("admin")
    before = client.get("/api/v1/status").json()["generation"]
    answer = client.post("/api/v1/restore", params=params)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "/" not in answer.json()["detail"].replace("openapi.json", "")
    assert client.get("/api/v1/status").json()["generation"] == before
