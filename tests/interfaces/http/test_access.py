"""Permissions: every route with every kind of key."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.support.served_application import ServedApplication, serve_application

KEYS = (None, "other", "read", "past", "write", "admin", "operator")
_ALLOWED_KEYS = {
    "open": KEYS,
    "me": (None, "read", "past", "write", "admin", "operator"),
    "read": ("read", "past", "write", "admin", "operator"),
    "past": ("past", "write", "admin", "operator"),
    "write": ("write", "admin", "operator"),
    "admin": ("admin", "operator"),
    "operator": ("operator",),
}


@dataclass(frozen=True)
class RouteCall:
    method: str
    path: str
    access: str
    body: object = None
    template: str = ""

    @property
    def route(self) -> tuple[str, str]:
        return self.method, self.template or self.path


PAGE = "/api/v1/pages/{path}"
FILE = {"filename": "a.txt", "content": "YQ=="}
CALLS = (
    RouteCall("GET", "/healthz", "open"),
    RouteCall("GET", "/readyz", "open"),
    RouteCall("GET", "/metrics", "operator"),
    RouteCall("GET", "/api/v1/health", "open"),
    RouteCall("GET", "/api/v1/me", "me"),
    RouteCall("GET", "/api/v1/settings", "operator"),
    RouteCall("POST", "/api/v1/preview/Home", "write", {"content": "new"}, "/api/v1/preview/{path}"),
    RouteCall("GET", "/api/v1/search?q=printer", "read", template="/api/v1/search"),
    RouteCall("GET", "/api/v1/semantic-search?q=printer", "read", template="/api/v1/semantic-search"),
    RouteCall("GET", "/api/v1/similar?path=Home", "read", template="/api/v1/similar"),
    RouteCall("GET", "/api/v1/ask?q=printer", "read", template="/api/v1/ask"),
    RouteCall("GET", "/api/v1/facets", "read"),
    RouteCall("GET", "/api/v1/pages", "read"),
    RouteCall("GET", "/api/v1/changelog", "read"),
    RouteCall("GET", "/api/v1/pages/Home", "read", template=PAGE),
    RouteCall("GET", "/api/v1/pages/Home/history", "read", template=f"{PAGE}/history"),
    RouteCall("PUT", "/api/v1/pages/New", "write", {"content": "new"}, PAGE),
    RouteCall(
        "PATCH", "/api/v1/pages/Home", "write", {"old_string": "a", "new_string": "b", "revision": "0" * 40}, PAGE
    ),
    RouteCall("DELETE", "/api/v1/pages/Absent", "write", template=PAGE),
    RouteCall("POST", "/api/v1/pages/Absent/rename", "write", {"new_path": "Else"}, f"{PAGE}/rename"),
    RouteCall("POST", "/api/v1/pages:bulk", "write", {"path": "New", "content": "new"}),
    RouteCall("GET", "/api/v1/pages/Home/attachments", "read", template=f"{PAGE}/attachments"),
    RouteCall("GET", "/api/v1/pages/Home/attachments/a.txt", "read", template=f"{PAGE}/attachments/{{filename}}"),
    RouteCall("POST", "/api/v1/pages/Home/attachments", "write", FILE, f"{PAGE}/attachments"),
    RouteCall("DELETE", "/api/v1/pages/Home/attachments/b.txt", "write", template=f"{PAGE}/attachments/{{filename}}"),
    RouteCall("GET", "/api/v1/preview/Home", "read", template="/api/v1/preview/{path}"),
    RouteCall("GET", "/api/v1/links", "read"),
    RouteCall("GET", "/api/v1/links/Home", "read", template="/api/v1/links/{path}"),
    RouteCall("GET", "/api/v1/orphans", "read"),
    RouteCall("GET", "/api/v1/status", "read"),
    RouteCall("GET", "/api/v1/duplicates", "write"),
    RouteCall("GET", "/api/v1/past", "past"),
    RouteCall("GET", "/api/v1/past/search?q=x&at=HEAD", "past", template="/api/v1/past/search"),
    RouteCall("GET", "/api/v1/report", "admin"),
    RouteCall("POST", "/api/v1/reindex", "admin"),
    RouteCall("GET", "/api/v1/reindex/status", "read"),
    RouteCall("POST", "/api/v1/wake", "write"),
    RouteCall("POST", "/api/v1/backup", "admin"),
    RouteCall("GET", "/api/v1/backups", "admin"),
    RouteCall("POST", "/api/v1/restore", "admin"),
    RouteCall("GET", "/api/v1/wikis", "read"),
    RouteCall("POST", "/api/v1/wikis", "operator", {"slug": "alpha", "source": "nowhere"}),
    RouteCall("GET", "/api/v1/wikis/alpha", "operator", template="/api/v1/wikis/{slug}"),
    RouteCall("PATCH", "/api/v1/wikis/alpha", "operator", {"settings": {}}, "/api/v1/wikis/{slug}"),
    RouteCall("DELETE", "/api/v1/wikis/gamma", "operator", template="/api/v1/wikis/{slug}"),
    RouteCall("GET", "/api/v1/keys", "admin"),
    RouteCall("POST", "/api/v1/keys", "admin", {"label": "made by a test"}),
    RouteCall("DELETE", "/api/v1/keys/absent", "admin", template="/api/v1/keys/{key_id}"),
)
_BY_SIGNATURE = {("POST", "/api/v1/webhook")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("access")) as served:
        yield served


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_every_route_accepts_exactly_the_expected_keys(
    served: ServedApplication, call: RouteCall, key: str | None
) -> None:
    answer = served.make_client(key).request(call.method, f"/w/alpha{call.path}", json=call.body)
    if key in _ALLOWED_KEYS[call.access]:
        assert answer.status_code not in (401, 403), answer.text
        assert answer.status_code < 500
    else:
        assert answer.status_code == (401 if key is None else 403)
        assert answer.headers["content-type"] == "application/problem+json"
        assert "canary" not in answer.text


def test_the_permission_table_covers_every_route(served: ServedApplication) -> None:
    document = served.make_client().get("/openapi.json").json()
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {call.route for call in CALLS} | _BY_SIGNATURE


@pytest.mark.parametrize("slug", ["..", "Alpha", "alphа", "a" * 64, "%00", "a%20b", "alpha%2F..", "xn--alpha"])
def test_an_invalid_slug_in_the_path_is_rejected_with_a_reason(served: ServedApplication, slug: str) -> None:
    answer = served.make_client("operator").get(f"/w/{slug}/api/v1/status")
    assert 400 <= answer.status_code < 500
    assert "canary" not in answer.text


def test_a_key_selects_its_wiki(served: ServedApplication) -> None:
    assert served.make_client("read").get("/api/v1/status").json()["slug"] == "alpha"
    assert served.make_client("other").get("/api/v1/status").json()["slug"] == "beta"


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer x", "Basic YTpi", "bearer\twh_x"])
def test_a_malformed_key_is_rejected(served: ServedApplication, header: str) -> None:
    answer = served.make_client().get("/w/alpha/api/v1/status", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_public_wiki_is_read_without_a_key_and_not_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("public")) as served:
        served.application.service.configure("alpha", {"public": "true"})
        client = served.make_client()
        assert client.get("/w/alpha/api/v1/search?q=printer").json()["total"] > 0
        assert client.put("/w/alpha/api/v1/pages/X", json={"content": "x"}).status_code == 401
        assert client.get("/w/beta/api/v1/search?q=printer").status_code == 401
        assert [wiki["slug"] for wiki in client.get("/api/v1/wikis").json()["wikis"]] == ["alpha"]


def test_without_keys_only_local_requests_with_a_local_host_name_may_read(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serve_application(tmp_path_factory.mktemp("keyless"), keys=False) as served:
        assert served.make_client().get("/w/alpha/api/v1/status").status_code == 200
        assert served.make_client().get("/metrics").status_code == 200
        assert served.make_client().put("/w/alpha/api/v1/pages/X", json={"content": "x"}).status_code == 401
        rebound = served.make_client(host="evil.example.org")
        assert rebound.get("/w/alpha/api/v1/status").status_code == 401
        assert rebound.get("/metrics").status_code == 401
        served.make_keys()
        assert served.make_client().get("/w/alpha/api/v1/status").status_code == 401
        assert served.make_client().get("/metrics").status_code == 401


def test_a_host_name_selects_its_wiki(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("hosts"), {"serve.domain": "wiki.example.org"}) as served:
        served.application.service.configure("beta", {"hosts": "beta.example.org"})
        assert (
            served.make_client("operator", host="alpha.wiki.example.org").get("/api/v1/status").json()["slug"]
            == "alpha"
        )
        assert served.make_client("operator", host="beta.example.org").get("/api/v1/status").json()["slug"] == "beta"
        assert served.make_client("read", host="beta.example.org").get("/api/v1/status").status_code == 403
        crossed = served.make_client("operator", host="beta.example.org").get("/w/alpha/api/v1/status")
        assert crossed.status_code == 403


def test_an_admin_manages_the_keys_of_their_wiki_only(writable: ServedApplication) -> None:
    admin, operator = writable.make_client("admin"), writable.make_client("operator")
    mine = admin.get("/api/v1/keys").json()
    assert {key["wiki"] for key in mine["keys"]} == {"alpha"}
    everybody = operator.get("/api/v1/keys").json()["keys"]
    assert {key["wiki"] for key in everybody} == {"alpha", "beta", None}
    betas = next(key["id"] for key in everybody if key["wiki"] == "beta")
    assert admin.delete(f"/api/v1/keys/{betas}").status_code == 404
    assert admin.post("/api/v1/keys", json={"wiki": "beta"}).status_code == 403
    assert writable.make_client("other").get("/api/v1/status").status_code == 200
    response = admin.post(
        "/api/v1/keys", json={"scope": "read", "label": "reader", "expires_at": "2100-01-01T00:00:00Z"}
    )
    assert response.status_code == 201
    assert response.headers["cache-control"] == "no-store"
    writable.tokens["made"] = response.json()["token"]
    assert writable.make_client("made").get("/api/v1/status").json()["slug"] == "alpha"
    assert writable.make_client("made").post("/api/v1/wake").status_code == 403
    assert response.json()["token"] not in admin.get("/api/v1/keys").text
    assert admin.delete(f"/api/v1/keys/{response.json()['id']}").json()["label"] == "reader"
    assert writable.make_client("made").get("/api/v1/status").status_code == 401


def test_an_operator_creates_wiki_keys_and_operator_keys(writable: ServedApplication) -> None:
    operator = writable.make_client("operator")
    key = operator.post("/api/v1/keys", json={"wiki": "beta", "scope": "write"}).json()
    assert (key["wiki"], key["scope"]) == ("beta", "write")
    assert operator.post("/w/alpha/api/v1/keys", json={}).json()["wiki"] == "alpha"
    assert operator.post("/api/v1/keys", json={}).json()["wiki"] is None
    assert operator.post("/api/v1/keys", json={"wiki": "nosuch"}).status_code == 404
    assert operator.post("/api/v1/keys", json={"scope": "read"}).status_code == 422
    past = operator.post("/api/v1/keys", json={"wiki": "beta", "expires_at": "2001-01-01T00:00:00Z"})
    assert past.status_code == 422


@pytest.mark.parametrize("guess", ["wh_wrong", "wh_wrong{}", "{right}x", "eyJh.{}.eyJh"])
def test_wrong_keys_are_rate_limited_without_blocking_valid_keys(writable: ServedApplication, guess: str) -> None:
    right = writable.tokens["read"]
    writable.stop_refilling()

    def guessed(number: int) -> httpx.Response:
        token = guess.format(number, right=right)
        return writable.make_client().get("/api/v1/status", headers={"Authorization": f"Bearer {token}"})

    answers = [guessed(number) for number in range(40)]
    assert [answer.status_code for answer in answers][:20] == [401] * 20
    assert {answer.status_code for answer in answers} == {401, 429}
    last = answers[-1]
    assert (last.status_code, int(last.headers["retry-after"]) >= 1) == (429, True)
    assert "unknown" in last.json()["detail"]
    assert writable.make_client("read").get("/api/v1/status").status_code == 200
    assert writable.make_client("operator").get("/api/v1/wikis").status_code == 200
    assert writable.make_client().get("/api/v1/status").status_code == 401, (
        "requests without a key are not counted as wrong keys"
    )
    assert guessed(99).status_code == 429


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"content": 5}'], ids=["none", "cut", "deep", "wrong"])
def test_the_key_is_checked_before_the_body_is_read(served: ServedApplication, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for key, status in ((None, 401), ("other", 403), ("read", 403)):
        answer = served.make_client(key).put("/w/alpha/api/v1/pages/X", content=body, headers=headers)
        assert answer.status_code == status
    assert served.make_client().get("/w/alpha/api/v1/search?q=%FF").status_code == 401


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, (None, None, False, False)),
        ("read", ("alpha", "read", False, False)),
        ("write", ("alpha", "write", True, False)),
        ("admin", ("alpha", "admin", True, False)),
        ("operator", ("alpha", "admin", True, True)),
    ],
)
def test_a_client_learns_what_it_may_do(
    served: ServedApplication, key: str | None, expected: tuple[str | None, str | None, bool, bool]
) -> None:
    document = served.make_client(key).get("/w/alpha/api/v1/me").json()
    assert tuple(document[name] for name in ("wiki", "scope", "writable", "operator")) == expected


def test_the_operator_lists_the_settings_of_wikis(served: ServedApplication) -> None:
    listed = served.make_client("operator").get("/api/v1/settings").json()["settings"]
    by_name = {setting["name"]: setting for setting in listed}
    assert by_name["dialect"]["choices"][0] == by_name["dialect"]["default"] == "auto"
    assert by_name["languages"]["kind"] == "list"
    assert by_name["webhook_secret"]["secret"]
