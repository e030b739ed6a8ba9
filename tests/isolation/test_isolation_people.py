"""Isolation of persons and signed-in browsers: forged headers, foreign cookies and other sites get nothing.

`test_isolation_http` sends requests of such callers to every route. These are the cases that need a setup of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.isolation.http_cases import CHANGES, list_routes
from tests.support.served_application import ServedApplication, serve_application
from wikiholt.interfaces.http.sign_in import COOKIE_NAME, PeerMiddleware

SETTINGS = {
    "people.remember_days": 1,
    "people.proxy_user_header": "Remote-User",
    "people.proxy_groups_header": "Remote-Groups",
    "people.groups": ["alpha-readers=alpha:read", "beta-admins=beta:admin", "root=operator"],
    "serve.trusted_proxies": ["10.0.0.7"],
}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("people"), SETTINGS) as served:
        yield served


def make_client(served: ServedApplication, address: str) -> TestClient:
    return TestClient(PeerMiddleware(served.app), base_url="http://127.0.0.1", client=(address, 1))


def sign_in(client: TestClient, token: str, path: str) -> str:
    form = {"key": token, "remember": "on"}
    response = client.post(f"{path}sign-in", data=form, headers=SAME_ORIGIN, follow_redirects=False)
    assert response.status_code == 303, response.text
    return str(client.cookies[COOKIE_NAME])


def call_every_route(served: ServedApplication, client: TestClient, prefix: str, **headers: str) -> list[str]:
    """Send a request to every route below a wiki. Returns the ones that were answered with content of a wiki."""
    answered = []
    for route in list_routes(served.app):
        if route.path.startswith(("/static", "/mcp", "/sign-")):
            continue
        path = route.path.replace("{path}", "Home").replace("{slug}", "beta").replace("{key_id}", "x")
        query = "?q=betacanary&page=Home&path=Home" if not route.path.startswith("/api/") else "?q=betacanary"
        body = {"content": "x", "new_path": "y"} if route.method in CHANGES else None
        response = client.request(
            route.method, f"{prefix}{path.replace('{filename}', 'x')}{query}", headers=headers, json=body
        )
        if "canary lives" in response.text or (route.method in CHANGES and response.status_code < 300):
            answered.append(f"{route.method} {route.path}: {response.status_code}")
    return answered


def test_a_browser_signed_in_to_one_wiki_reads_no_other(served: ServedApplication) -> None:
    client = make_client(served, "203.0.113.9")
    token = sign_in(client, served.tokens["admin"], "/w/alpha/")
    assert client.get("/w/alpha/api/v1/pages/Coffee").json()["content"]
    for path in ("/w/beta/", "/"):  # a browser does not send it there, but a program can
        client.cookies.set(COOKIE_NAME, token, path=path)
    assert client.get("/w/beta/api/v1/pages/Home").status_code == 403
    assert call_every_route(served, client, "/w/beta", **SAME_ORIGIN) == []


def test_a_person_of_one_wiki_reads_no_other(served: ServedApplication) -> None:
    client = make_client(served, "10.0.0.7")
    headers = {"Remote-User": "ada", "Remote-Groups": "alpha-readers"} | SAME_ORIGIN
    assert client.get("/w/alpha/api/v1/pages/Coffee", headers=headers).status_code == 200
    assert call_every_route(served, client, "/w/beta", **headers) == []


def test_a_forged_header_is_nobody(served: ServedApplication) -> None:
    for forwarded in ("10.0.0.7", "127.0.0.1, 10.0.0.7"):
        client = make_client(served, "203.0.113.9")
        headers = {"Remote-User": "root", "Remote-Groups": "root,beta-admins", "X-Forwarded-For": forwarded}
        assert call_every_route(served, client, "/w/beta", **headers, **SAME_ORIGIN) == []
        assert client.get("/w/beta/api/v1/pages/Home", headers=headers).status_code == 401


def test_a_cookie_of_another_data_directory_is_nobody(served: ServedApplication, tmp_path: Path) -> None:
    with serve_application(tmp_path, SETTINGS) as other:
        token = sign_in(make_client(other, "203.0.113.9"), other.tokens["operator"], "/")
    client = make_client(served, "203.0.113.9")
    client.cookies.set(COOKIE_NAME, token)
    assert client.get("/api/v1/me").json()["kind"] == "anonymous"
    assert call_every_route(served, client, "/w/beta", **SAME_ORIGIN) == []


def test_another_site_changes_nothing(served: ServedApplication) -> None:
    client = make_client(served, "203.0.113.9")
    sign_in(client, served.tokens["other"], "/w/beta/")
    head = served.beta.get_head()
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"}
    changed = [
        line for line in call_every_route(served, client, "/w/beta", **headers) if not line.startswith(("GET", "HEAD"))
    ]
    assert changed == []
    assert served.beta.get_head() == head


def test_a_removed_wiki_takes_its_sign_ins_with_it(tmp_path: Path) -> None:
    with serve_application(tmp_path, SETTINGS) as served:
        client = make_client(served, "203.0.113.9")
        sign_in(client, served.tokens["other"], "/w/beta/")
        repository = served.application.service.registry.get("beta").source
        served.application.service.remove("beta")
        served.application.service.add("beta", repository, {})
        assert client.get("/w/beta/api/v1/status").status_code == 401
