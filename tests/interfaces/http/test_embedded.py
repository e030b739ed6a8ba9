"""The API embedded in a host process: only the grant of the host decides what is allowed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as CallScope

from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_host_app
from wikiholt.interfaces.http.request_context import HOST_GRANT_KEY, HostGrant
from wikiholt.wikis.session import ChangeKind


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("guests")) as served:
        yield served


@pytest.fixture(scope="module")
def app(served: ServedApplication) -> ASGIApp:
    return create_host_app(served.application)


def make_guest_client(app: ASGIApp, admission: object) -> TestClient:
    """A client whose requests carry this host grant."""

    async def admitted(scope: CallScope, receive: Receive, send: Send) -> None:
        await app({**scope, HOST_GRANT_KEY: admission} if admission else scope, receive, send)

    return TestClient(admitted)


def make_grant(served: ServedApplication, *scopes: Scope, slug: str = "alpha", **more: bool) -> HostGrant:
    wiki = served.application.service.registry.get(slug)
    return HostGrant(wiki, frozenset(scopes), Author("Gil", "gil@example.org"), **more)  # type: ignore[arg-type]


def test_without_a_host_grant_every_key_is_rejected(served: ServedApplication, app: ASGIApp) -> None:
    for forged in (None, "admin", {"scopes": ["admin"]}):
        client = make_guest_client(app, forged)
        for key in (None, "read", "admin", "operator"):
            headers = {"Authorization": f"Bearer {served.tokens[key]}"} if key else {}
            for path in ("/api/v1/pages", "/w/alpha/api/v1/pages", "/api/v1/keys", "/api/v1/search?q="):
                answer = client.get(path, headers=headers)
                assert (answer.status_code, "canary" in answer.text) == (401, False), (key, path)
            assert client.put("/api/v1/pages/X", json={"content": "x"}, headers=headers).status_code == 401


def test_the_granted_wiki_is_used_regardless_of_key_path_or_host(served: ServedApplication, app: ASGIApp) -> None:
    client = make_guest_client(app, make_grant(served, Scope.READ, slug="beta"))
    headers = {"Authorization": f"Bearer {served.tokens['operator']}", "Host": "alpha.example.org"}
    for path in (
        "/api/v1/search?q=alphacanary",
        "/w/alpha/api/v1/search?q=alphacanary",
        "/api/v1/pages",
        "/api/v1/links",
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 200
        assert "alphacanary" not in answer.text.replace('"query":"alphacanary"', "")
        assert "Coffee" not in answer.text


def test_routes_for_all_wikis_or_the_process_do_not_exist(served: ServedApplication, app: ASGIApp) -> None:
    client = make_guest_client(app, make_grant(served, *Scope, can_manage_keys=True))
    for path in ("/api/v1/wikis", "/metrics", "/healthz", "/readyz", "/", "/docs", "/openapi.json", "/w/alpha/"):
        assert client.get(path).status_code == 404, path
    assert client.post("/api/v1/webhook").status_code == 404


def test_every_scope_is_independent(served: ServedApplication, app: ASGIApp) -> None:
    file = {"filename": "a.txt", "content": ""}

    def statuses(client: TestClient) -> tuple[int, ...]:
        return (
            client.get("/api/v1/pages").status_code,
            client.put("/api/v1/pages/Home", json={"content": "x"}).status_code,
            client.post("/api/v1/pages/Nowhere/attachments", json=file).status_code,
            client.get("/api/v1/backups").status_code,
        )

    assert statuses(make_guest_client(app, make_grant(served))) == (401, 401, 401, 401)
    assert statuses(make_guest_client(app, make_grant(served, is_signed_in=True))) == (403, 403, 403, 403)
    assert statuses(make_guest_client(app, make_grant(served, Scope.READ, is_signed_in=True))) == (200, 403, 403, 403)
    assert statuses(make_guest_client(app, make_grant(served, Scope.WRITE, is_signed_in=True))) == (403, 409, 403, 403)
    assert statuses(make_guest_client(app, make_grant(served, Scope.ADMIN, is_signed_in=True))) == (403, 403, 403, 200)
    assert statuses(make_guest_client(app, make_grant(served, can_attach=True, is_signed_in=True))) == (
        403,
        403,
        404,
        403,
    )


def test_the_host_is_notified_of_a_commit(served: ServedApplication, app: ASGIApp) -> None:
    grant = make_grant(served, Scope.READ, Scope.WRITE)
    client = make_guest_client(app, grant)
    response = client.put("/api/v1/pages/Noted", json={"content": "noted", "commit_message": "Note"})
    assert response.status_code == 201
    same = client.put("/api/v1/pages/Noted", json={"content": "noted", "revision": response.json()["revision"]})
    assert same.json()["changed"] is False
    assert client.put("/api/v1/pages/Noted", json={"content": "unread"}).status_code == 409
    (commit,) = grant.commits
    assert (commit.kind, commit.path, commit.files) == (ChangeKind.SAVED, "Noted", ("Noted.md",))
    assert (commit.author, commit.message) == (Author("Gil", "gil@example.org"), "Note")


def test_a_write_that_waits_is_in_lists_and_links_at_once(served: ServedApplication, app: ASGIApp) -> None:
    client = make_guest_client(app, replace(make_grant(served, Scope.READ, Scope.WRITE), index_wait_s=TIMEOUT_S))
    for number in range(3):
        client.put(f"/api/v1/pages/Soon {number}", json={"content": "See [[Coffee]]."})
        assert f"Soon {number}" in [page["path"] for page in client.get("/api/v1/pages").json()["pages"]]
        assert f"Soon {number}" in client.get("/api/v1/links/Coffee").json()["linked_from"]


def test_only_users_with_the_key_grant_manage_keys(served: ServedApplication, app: ASGIApp) -> None:
    assert make_guest_client(app, make_grant(served, Scope.ADMIN)).get("/api/v1/keys").status_code == 403
    listed = (
        make_guest_client(app, make_grant(served, Scope.ADMIN, can_manage_keys=True)).get("/api/v1/keys").json()["keys"]
    )
    assert {key["wiki"] for key in listed} == {"alpha"}, "no keys of other wikis or operators"
