"""The index over HTTP: status, reindex, wake, webhooks, and the wiki administration of the operator."""

import hashlib
import hmac
import subprocess
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.served_application import ServedApplication
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.index.sync import SyncProgress
from wikiholt.sync.reindex_job import report_activity

BODY = b'{"ref": "refs/heads/main"}'
SECRET = "correct horse"


def test_a_search_in_a_wiki_without_commits_says_so_without_retry(writable: ServedApplication, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    subprocess.run(["git", "init", "--quiet", empty], check=True)
    operator = writable.make_client("operator")
    assert operator.post("/api/v1/wikis", json={"slug": "empty", "source": str(empty)}).status_code == 201

    def code() -> str:
        return str(operator.get("/w/empty/api/v1/search", params={"q": "x"}).json()["code"])

    wait_until(lambda: code() != "index-missing")
    assert code() == "no-commits"
    assert operator.get("/w/empty/api/v1/facets").json()["code"] == "no-commits"
    Repository(empty).commit({"Home.md": "# Home\n\nThe first page.\n"})
    assert operator.post("/w/empty/api/v1/wake").status_code == 202
    wait_until(lambda: operator.get("/w/empty/api/v1/search", params={"q": "first page"}).status_code == 200)


def test_a_new_wiki_says_that_it_has_no_pages_yet(writable: ServedApplication) -> None:
    operator = writable.make_client("operator")
    assert operator.post("/api/v1/wikis", json={"slug": "fresh"}).status_code == 201

    def search() -> dict[str, object]:
        return dict(operator.get("/w/fresh/api/v1/search", params={"q": "x"}).json())

    wait_until(lambda: search()["code"] != "index-missing")
    assert (search()["code"], search()["detail"]) == ("no-pages-yet", "This wiki has no pages yet.")
    status = operator.get("/w/fresh/api/v1/status").json()
    assert (status["error"]["code"], status["waiting"], status["missing"]) == ("no-pages-yet", False, False)
    assert "wikiholt_scheduler_failing 0.0" in operator.get("/metrics").text


def test_status_says_what_is_indexed_and_names_no_path(writable: ServedApplication) -> None:
    client = writable.make_client("read")
    writable.alpha.commit({"Broken.md": b"\x00\x01\x02" * 100, "Open.md": "---\ntitle: Open\n\nText.\n"})
    client.get("/api/v1/search", params={"q": "x", "fresh": "true"})
    answer = client.get("/api/v1/status")
    document = answer.json()
    assert (document["slug"], document["pages"], document["stale"]) == ("alpha", document["pages"], False)
    assert document["pages"] + len(document["problems"]) == 5
    assert (document["pages_with_warnings"], document["warnings"][0]["file"]) == (1, "Open.md")
    assert document["error"] is None
    assert str(writable.alpha.path.parent) not in answer.text
    writable.alpha.path.rename(writable.alpha.path.with_name("away"))
    answer = client.get("/api/v1/status")
    assert answer.json()["error"]["code"] == "source-missing"
    assert str(writable.alpha.path.parent) not in answer.text
    search = client.get("/api/v1/search", params={"q": "printer"})
    assert search.status_code == 200
    assert search.json()["notes"]
    assert str(writable.alpha.path.parent) not in search.text


def test_pages_are_listed_from_git_before_and_during_the_first_sync(
    writable: ServedApplication, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "large")
    repository.commit({f"page-{number:03}.md": f"# Page {number}\n" for number in range(120)})
    assert writable.application.scheduler.stop(TIMEOUT_S)
    service, operator = writable.application.service, writable.make_client("operator")
    service.add("large", str(repository.path), {})
    seen = []

    def list_pages(progress: SyncProgress | None = None) -> None:
        document = operator.get("/w/large/api/v1/pages", params={"limit": 1}).json()
        seen.append((progress.pages_done if progress else 0, document["total"], document["pages"][0]["name"]))

    list_pages()
    service.get_handle("large").sync(list_pages)
    list_pages()
    assert {(total, name) for _, total, name in seen} == {(120, "Page 0")}
    assert any(0 < done < 120 for done, *_ in seen), "some pages were indexed, and others were not"


def test_a_missing_index_is_no_error_before_and_during_the_first_sync(
    writable: ServedApplication, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "slow")
    repository.commit({"Home.md": "# Home\n"})
    assert writable.application.scheduler.stop(TIMEOUT_S)
    service, operator = writable.application.service, writable.make_client("operator")
    wiki = service.add("slow", str(repository.path), {})
    before = operator.get("/w/slow/api/v1/status").json()
    assert (before["error"], before["waiting"], before["activity"]) == (None, True, None)
    with report_activity(service, wiki.id, "sync"):
        during = operator.get("/w/slow/api/v1/status").json()
    assert (during["error"], during["activity"]["kind"]) == (None, "sync")


def test_reindex_is_a_job_with_a_lasting_status(writable: ServedApplication) -> None:
    admin, reader = writable.make_client("admin"), writable.make_client("read")
    assert reader.get("/api/v1/reindex/status").json()["status"] == "idle"
    before = reader.get("/api/v1/status").json()["generation"]
    response = admin.post("/w/alpha/api/v1/reindex")
    assert (response.status_code, response.json()) == (202, {"status": "started"})
    assert response.headers["location"] == "/w/alpha/api/v1/reindex/status"
    wait_until(lambda: reader.get(response.headers["location"]).json()["status"] == "complete")
    job = reader.get("/api/v1/reindex/status").json()
    assert (job["pages_indexed"], job["error_message"]) == (3, None)
    assert job["chunks_created"] >= 3
    assert job["started_at"] < job["completed_at"]
    assert reader.get("/api/v1/status").json()["generation"] > before


def test_a_second_reindex_at_the_same_time_is_a_conflict(
    writable: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writable.application.scheduler.stop(TIMEOUT_S)  # nothing runs the job
    admin = writable.make_client("admin")
    assert admin.post("/api/v1/reindex").status_code == 202
    again = admin.post("/api/v1/reindex")
    assert (again.status_code, again.json()["code"]) == (409, "busy")
    assert admin.get("/api/v1/reindex/status").json()["status"] == "in_progress"


def test_wake_indexes_a_commit_before_the_next_interval(writable: ServedApplication) -> None:
    client = writable.make_client("write")
    head = writable.alpha.commit({"Owl.md": "# Owl\n\nnight"})
    assert client.post("/api/v1/wake").status_code == 202
    wait_until(lambda: client.get("/api/v1/status").json()["indexed_revision"] == head)


def sign(secret: str = SECRET, body: bytes = BODY) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hub-Signature-256": f"sha256={sign()}"},
        {"X-Gitea-Signature": sign()},
        {"X-Forgejo-Signature": sign()},
        {"X-Gitlab-Token": SECRET},
    ],
    ids=["github", "gitea", "forgejo", "gitlab"],
)
def test_a_signed_webhook_triggers_a_sync(writable: ServedApplication, headers: dict[str, str]) -> None:
    writable.application.service.configure("alpha", {"webhook_secret": SECRET})
    head = writable.alpha.commit({"Owl.md": "# Owl\n\nnight"})
    answer = writable.make_client().post("/w/alpha/api/v1/webhook", content=BODY, headers=headers)
    assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
    wait_until(lambda: writable.make_client("read").get("/api/v1/status").json()["indexed_revision"] == head)


def test_a_webhook_secret_may_contain_any_characters(writable: ServedApplication) -> None:
    writable.application.service.configure("alpha", {"webhook_secret": "pässwörd"})
    for headers in ({"X-Gitlab-Token": "pässwörd".encode()}, {"X-Gitea-Signature": sign("pässwörd").encode()}):
        sent = writable.make_client().post("/w/alpha/api/v1/webhook", content=BODY, headers=headers)  # type: ignore[arg-type]
        assert sent.status_code == 202


def test_every_invalid_webhook_gets_the_same_answer(writable: ServedApplication) -> None:
    writable.application.service.configure("alpha", {"webhook_secret": SECRET})
    right: dict[str, str | bytes] = {"X-Hub-Signature-256": f"sha256={sign()}"}
    empty: dict[str, str | bytes] = {"X-Hub-Signature-256": f"sha256={sign('')}", "X-Gitlab-Token": ""}
    tries: list[tuple[str, dict[str, str | bytes]]] = [
        ("alpha", {}),
        ("alpha", {"X-Hub-Signature-256": f"sha256={sign('wrong')}"}),
        ("alpha", {"X-Hub-Signature-256": "sha256="}),
        ("alpha", {"X-Hub-Signature": "sha1=" + "0" * 40}),
        ("alpha", {"X-Gitlab-Token": "é".encode()}),
        ("beta", right),
        ("beta", empty),
        ("nosuch", right),
        ("Not-A-Slug", right),
    ]
    answers = [
        writable.make_client().post(f"/w/{slug}/api/v1/webhook", content=BODY, headers=each)  # type: ignore[arg-type]
        for slug, each in tries
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1


def test_the_operator_adds_changes_and_removes_a_wiki(
    writable: ServedApplication, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("more") / "gamma"
    Repository(place).commit({"Gamma.md": "# Gamma\n\ngammacanary"})
    operator = writable.make_client("operator")
    response = operator.post("/api/v1/wikis", json={"slug": "gamma", "source": str(place)})
    assert response.status_code == 201
    assert operator.get(response.headers["location"]).json()["source"] == str(place)
    document = operator.get("/w/gamma/api/v1/search", params={"q": "gammacanary", "fresh": "true"}).json()
    assert document["results"][0]["path"] == "Gamma"
    changed = operator.patch("/api/v1/wikis/gamma", json={"settings": {"webhook_secret": "s3cret", "public": "true"}})
    assert changed.json()["settings"]["public"] == "true"
    assert "s3cret" not in changed.text
    assert writable.make_client().get("/w/gamma/api/v1/status").status_code == 200
    operator.post("/w/gamma/api/v1/keys", json={})
    gone = operator.delete("/api/v1/wikis/gamma").json()
    assert gone["wiki"] == "gamma"
    assert any(name.endswith(".sqlite") for name in gone["removed"])
    assert len(gone["keys"]) == 1
    assert operator.get("/api/v1/wikis/gamma").status_code == 404
    data = writable.application.settings.data
    assert subprocess.run(["grep", "-rl", "gammacanary", str(data)], check=False, capture_output=True).stdout == b""
    assert place.exists()


def test_the_operator_adds_a_directory_whose_pages_are_written_on_disk(
    writable: ServedApplication, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vault = tmp_path_factory.mktemp("vault")
    (vault / "Delta.md").write_text("# Delta\n\ndeltacanary\n")
    operator = writable.make_client("operator")
    response = operator.post("/api/v1/wikis", json={"slug": "delta", "source": str(vault)})
    assert response.json()["settings"] == {"kind": "directory"}
    found = operator.get("/w/delta/api/v1/search", params={"q": "deltacanary", "fresh": "true"}).json()
    assert found["results"][0]["path"] == "Delta"
    page = operator.get("/w/delta/api/v1/pages/Delta").json()
    body = {"content": "# Delta\n\nriver\n", "revision": page["revision"]}
    assert operator.put("/w/delta/api/v1/pages/Delta", json=body).status_code == 200
    assert (vault / "Delta.md").read_text() == "# Delta\n\nriver\n"
    assert operator.put("/w/delta/api/v1/pages/Delta", json=body).json()["code"] == "revision-mismatch"
    (vault / "Epsilon.md").write_text("# Epsilon\n\nepsiloncanary\n")
    found = operator.get("/w/delta/api/v1/search", params={"q": "epsiloncanary", "fresh": "true"}).json()
    assert found["results"][0]["path"] == "Epsilon"
    status = operator.get("/w/delta/api/v1/status").json()
    assert (status["head_revision"], status["watched"]) == (found["indexed_revision"], False)
    operator.delete("/api/v1/wikis/delta")
    assert sorted(file.name for file in vault.iterdir()) == ["Delta.md", "Epsilon.md"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"slug": "Bad", "source": "/nowhere"}, 422),
        ({"slug": "new-one", "source": "/nowhere"}, 422),
        ({"slug": "new-one", "source": "relative/path"}, 422),
        ({"slug": "new-one", "source": "/nowhere", "settings": {"colour": "red"}}, 422),
        ({"slug": "new-one", "source": ""}, 422),
        ({}, 422),
        ({"slug": "new-one", "source": "/nowhere", "owner": "x"}, 422),
    ],
    ids=str,
)
def test_an_invalid_wiki_is_not_registered(shared: ServedApplication, body: dict[str, object], status: int) -> None:
    operator = shared.make_client("operator")
    before = operator.get("/api/v1/wikis").json()
    assert operator.post("/api/v1/wikis", json=body).status_code == status
    assert operator.get("/api/v1/wikis").json() == before
    response = operator.post("/api/v1/wikis", json={"slug": "alpha", "source": str(shared.beta.path)})
    assert response.status_code == 409
