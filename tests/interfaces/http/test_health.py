"""A broken index over HTTP: an error with a reason, never an empty list. After the repair the status says so."""

from pathlib import Path

from tests.support.served_application import ServedApplication
from tests.support.wait import TIMEOUT_S


def get_index_file(writable: ServedApplication) -> Path:
    service = writable.application.service
    directory = service.components.store.get_directory(service.registry.get("alpha").id)
    return max(directory.glob("g??????.sqlite"))


def break_index(writable: ServedApplication) -> None:
    """Delete the index while it is not open, as if the disk had lost it."""
    writable.application.service.get_handle("alpha").close()
    for file in get_index_file(writable).parent.glob("g??????.sqlite-*"):
        file.unlink()
    get_index_file(writable).write_bytes(b"no index " * 5000)


def test_a_broken_index_answers_503_with_a_reason_and_is_repaired(writable: ServedApplication) -> None:
    assert writable.application.scheduler.stop(TIMEOUT_S)  # so that the state before the repair can be checked
    reader = writable.make_client("read")
    break_index(writable)
    answer = reader.get("/api/v1/search", params={"q": "printer"})
    assert (answer.status_code, answer.json()["code"]) == (503, "index-corrupt")
    assert int(answer.headers["retry-after"]) > 0
    assert str(writable.alpha.path.parent) not in answer.text
    status = reader.get("/api/v1/status")
    assert status.json()["health"]["condition"] == "broken"
    assert status.json()["health"]["reason"]
    assert str(writable.alpha.path.parent) not in status.text
    ready = writable.make_client().get("/readyz")
    assert (ready.status_code, ready.json()["indexes"]) == (200, {"repairing": 1, "broken": 0})
    assert writable.make_client("other").get("/api/v1/search", params={"q": "printer"}).status_code == 200, (
        "other wikis still answer"
    )
    writable.application.service.get_handle("alpha").sync()
    answer = reader.get("/api/v1/search", params={"q": "printer"})
    assert (answer.status_code, answer.json()["results"][0]["path"]) == (200, "Equipment/Printer")
    health = reader.get("/api/v1/status").json()["health"]
    assert (health["condition"], health["reason"]) == ("ok", None)
    assert health["checked_at"]


def test_a_dry_run_estimates_a_reindex_and_starts_none(writable: ServedApplication) -> None:
    admin = writable.make_client("admin")
    answer = admin.post("/api/v1/reindex", params={"dry_run": "true"})
    assert answer.status_code == 200
    document = answer.json()
    assert (document["pages"], document["exact"]) == (3, True)
    assert document["reusable_vectors"] == document["chunks_to_embed"] <= document["chunks"]
    assert document["disk_free"] > document["disk_bytes"] > 0
    assert admin.get("/api/v1/reindex/status").json()["status"] == "idle"
