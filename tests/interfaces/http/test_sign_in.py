"""Sign-in by cookie and by the headers of a trusted proxy."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie

import pytest
from fastapi.testclient import TestClient

from tests.support.served_application import ServedApplication, serve_application
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.cli.http_server import add_proxy_headers
from wikiholt.interfaces.http import sign_in
from wikiholt.interfaces.http.sign_in import COOKIE_NAME, PeerMiddleware, is_trusted_peer

HTML = {"Accept": "text/html"}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
PROXY = "10.0.0.7"
SETTINGS = {
    "people.remember_days": 30,
    "people.groups": ["editors=alpha:write", "staff=*:read", "admins=operator"],
    "people.proxy_user_header": "Remote-User",
    "people.proxy_groups_header": "Remote-Groups",
    "people.proxy_email_header": "Remote-Email",
    "people.proxy_sign_out_url": "https://auth.example.org/logout",
    "serve.trusted_proxies": [PROXY, "192.168.7.0/24"],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("sign-in"), SETTINGS) as served:
        yield served


@pytest.fixture(autouse=True)
def _log_again() -> None:
    sign_in._last_report_s = -sign_in._LOG_INTERVAL_S


def make_client(served: ServedApplication, address: str = "203.0.113.9", scheme: str = "http") -> TestClient:
    return TestClient(PeerMiddleware(served.app), base_url=f"{scheme}://127.0.0.1", client=(address, 1))


def post_key(
    client: TestClient, token: str, path: str = "/", remember: str = "on", headers: dict[str, str] | None = None
) -> SimpleCookie:
    """Sign in with a key and return the cookies that were set."""
    form, sent = {"key": token, "remember": remember}, HTML | SAME_ORIGIN | (headers or {})
    response = client.post(f"{path}sign-in", data=form, headers=sent, follow_redirects=False)
    assert response.status_code == 303, response.text
    return SimpleCookie("; ".join(response.headers.get_list("set-cookie")))


# Cookies


def test_a_remembered_key_reads_until_the_browser_signs_out(served: ServedApplication) -> None:
    client = make_client(served)
    cookie = post_key(client, served.tokens["read"], "/w/alpha/")[COOKIE_NAME]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/w/alpha/")
    assert (cookie["max-age"], cookie["secure"]) == (str(30 * 86_400), "")
    assert served.tokens["read"] not in str(client.cookies)
    assert client.get("/w/alpha/api/v1/pages/Home").status_code == 200
    page = client.get("/w/alpha/read?page=Home", headers=HTML)
    assert "Sign out" in page.text
    assert "alpha read" in page.text
    assert page.headers["cache-control"] == "private, no-cache"
    me = client.get("/w/alpha/api/v1/me").json()
    assert (me["kind"], me["method"], me["scope"]) == ("key", "cookie", "read")
    token = client.cookies[COOKIE_NAME]
    assert client.post("/w/alpha/sign-out", headers=HTML | SAME_ORIGIN).status_code == 200
    assert COOKIE_NAME not in client.cookies
    # The sign-in has ended on the server, too.
    client.cookies.set(COOKIE_NAME, token)
    assert client.get("/w/alpha/api/v1/pages/Home").status_code == 401


def test_without_the_check_box_the_cookie_ends_with_the_browser(served: ServedApplication) -> None:
    cookie = post_key(make_client(served), served.tokens["operator"], remember="")[COOKIE_NAME]
    assert (cookie["max-age"], cookie["path"]) == ("", "/")


def test_the_cookie_is_secure_under_https(served: ServedApplication) -> None:
    cookie = post_key(make_client(served, scheme="https"), served.tokens["read"], "/w/alpha/")[COOKIE_NAME]
    assert cookie["secure"] is True


def test_each_wiki_can_have_its_own_key(served: ServedApplication) -> None:
    client = make_client(served)
    post_key(client, served.tokens["read"], "/w/alpha/")
    post_key(client, served.tokens["other"], "/w/beta/")
    assert client.get("/w/alpha/api/v1/pages/Home").status_code == 200
    assert client.get("/w/beta/api/v1/me").json()["scope"] == "admin"


def test_revoking_a_key_ends_its_sign_ins_at_once(served: ServedApplication) -> None:
    registry = served.application.service.registry
    key, token = registry.keys.create(registry.get("alpha").id, Scope.READ)
    client = make_client(served)
    post_key(client, token, "/w/alpha/")
    assert client.get("/w/alpha/api/v1/status").status_code == 200
    registry.keys.revoke(key.id)
    assert client.get("/w/alpha/api/v1/status").status_code == 401


def test_a_sign_in_ends_with_the_expiry_of_its_key(served: ServedApplication) -> None:
    registry = served.application.service.registry
    expires = datetime.now(UTC) + timedelta(hours=1)
    key, token = registry.keys.create(registry.get("alpha").id, Scope.READ, "", expires)
    client = make_client(served)
    post_key(client, token, "/w/alpha/")
    assert client.get("/w/alpha/api/v1/status").status_code == 200
    with registry._store.write() as writer:
        (row,) = writer.delete("keys", "id", key.id)
        writer.insert("keys", (*row[:5], (datetime.now(UTC) - timedelta(hours=1)).isoformat(), row[6]))
    assert client.get("/w/alpha/api/v1/status").status_code == 401


def test_an_unknown_key_shows_the_form_again(served: ServedApplication) -> None:
    response = make_client(served).post("/sign-in", data={"key": "wh_nonsense"}, headers=HTML | SAME_ORIGIN)
    assert response.status_code == 401
    assert "This key is unknown" in response.text
    assert 'name="remember"' in response.text
    assert COOKIE_NAME not in response.cookies


def test_many_unknown_keys_are_limited(served: ServedApplication) -> None:
    served.stop_refilling()
    client = make_client(served, "203.0.113.77")
    statuses = {
        client.post("/sign-in", data={"key": f"wh_{number}"}, headers=HTML | SAME_ORIGIN).status_code
        for number in range(40)
    }
    assert statuses == {401, 429}


@pytest.mark.parametrize(
    "url", ["//elsewhere.example/", "//[", "https://elsewhere.example/", "/\\elsewhere.example", "x"]
)
def test_the_form_leads_only_to_pages_of_this_service(served: ServedApplication, url: str) -> None:
    form = {"key": served.tokens["operator"], "next": url}
    response = make_client(served).post("/sign-in", data=form, headers=SAME_ORIGIN, follow_redirects=False)
    assert response.headers["location"] == "/"
    form["next"] = "/w/alpha/read?page=Home"
    response = make_client(served).post("/sign-in", data=form, headers=SAME_ORIGIN, follow_redirects=False)
    assert response.headers["location"] == form["next"]


def test_a_form_with_too_many_fields_has_no_key(served: ServedApplication) -> None:
    form = {"key": served.tokens["operator"]} | {f"field {number}": "x" for number in range(25)}
    response = make_client(served).post("/sign-in", data=form, headers=HTML | SAME_ORIGIN)
    assert response.status_code == 401
    assert COOKIE_NAME not in response.cookies


def test_a_private_page_leads_to_the_sign_in_page_and_back(served: ServedApplication) -> None:
    client = make_client(served)
    page = client.get("/w/alpha/read?page=Home", headers=HTML)
    assert page.status_code == 401
    link = "sign-in?next=%2Fw%2Falpha%2Fread%3Fpage%3DHome"
    assert f'href="{link}"' in page.text
    assert 'value="/w/alpha/read?page=Home"' in client.get(f"/w/alpha/{link}", headers=HTML).text


CROSS_SITE = (
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://elsewhere.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:8000"},
    {},
)


@pytest.mark.parametrize("headers", CROSS_SITE, ids=str)
def test_a_change_from_another_site_is_refused(served: ServedApplication, headers: dict[str, str]) -> None:
    client = make_client(served)
    post_key(client, served.tokens["write"], "/w/alpha/")
    response = client.put("/w/alpha/api/v1/pages/Forged", json={"content": "x"}, headers=headers)
    assert response.status_code == 403
    assert "another site" in response.json()["detail"]
    for path in ("/sign-out", "/sign-in"):
        assert client.post(f"/w/alpha{path}", headers=headers, data={"key": "x"}).status_code == 403
    assert client.get("/w/alpha/api/v1/status", headers=headers).status_code == 200
    assert client.get("/w/alpha/api/v1/pages/Forged").status_code == 404
    # A browser never adds a key in a header without a script.
    bearer = {"Authorization": f"Bearer {served.tokens['write']}"}
    wake = client.post("/w/alpha/api/v1/wake", headers=headers | bearer)
    assert wake.status_code == 202, wake.text


@pytest.mark.parametrize("headers", [SAME_ORIGIN, {"Origin": "http://127.0.0.1"}], ids=str)
def test_a_change_from_a_page_of_this_service_is_accepted(served: ServedApplication, headers: dict[str, str]) -> None:
    client = make_client(served)
    post_key(client, served.tokens["write"], "/w/alpha/")
    assert client.post("/w/alpha/api/v1/wake", headers=headers).status_code == 202


def test_an_unknown_cookie_is_nobody(served: ServedApplication) -> None:
    client = make_client(served)
    client.cookies.set(COOKIE_NAME, "stale")
    assert client.get("/api/v1/me").json()["kind"] == "anonymous"
    assert client.get("/w/alpha/api/v1/status").status_code == 401


# Trusted proxies


def test_a_person_of_a_trusted_proxy_has_the_scopes_of_the_groups(served: ServedApplication) -> None:
    client = make_client(served, PROXY)
    client.headers.update({"Remote-User": "ada", "Remote-Groups": "editors, Others", "Remote-Email": "ada@example.org"})
    me = client.get("/w/alpha/api/v1/me").json()
    assert (me["kind"], me["name"], me["method"], me["scope"]) == ("person", "ada", "proxy", "write")
    assert me["groups"] == ["editors", "Others"]
    assert client.get("/w/beta/api/v1/pages/Home").status_code == 403
    body = {"content": "# By a person\n"}
    assert client.put("/w/alpha/api/v1/pages/Ada", json=body).status_code == 403
    assert client.put("/w/alpha/api/v1/pages/Ada", json=body, headers=SAME_ORIGIN).status_code == 201
    assert served.alpha.run_git("log", "-1", "--format=%an <%ae>").strip() == b"ada <ada@example.org>"
    forged = {**body, "author": {"name": "root", "email": "root@example.org"}}
    response = client.put("/w/alpha/api/v1/pages/Ada2", json=forged, headers=SAME_ORIGIN)
    assert "another author" in response.json()["detail"]


def test_a_missing_group_is_a_clear_page(served: ServedApplication) -> None:
    client = make_client(served, PROXY)
    headers = {"Remote-User": "mallory", "Remote-Groups": "others"}
    response = client.get("/w/alpha/read?page=Home", headers=HTML | headers)
    assert response.status_code == 403
    assert "none of your groups has access to this wiki" in response.text
    assert "mallory" in response.text
    assert "alphacanary" not in response.text
    assert client.get("/api/v1/wikis", headers=headers).json() == {"wikis": [], "total": 0}


def test_an_operator_of_a_proxy_manages_wikis_and_keys(served: ServedApplication) -> None:
    client = make_client(served, PROXY)
    client.headers.update({"Remote-User": "root", "Remote-Groups": "admins"})
    assert client.get("/api/v1/wikis/alpha").json()["source"]
    assert client.get("/api/v1/keys").json()["total"] >= 5
    assert client.get("/api/v1/me").json()["operator"] is True


def test_a_header_from_elsewhere_is_ignored_counted_and_logged(
    served: ServedApplication, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Remote-User": "root", "Remote-Groups": "admins", "X-Forwarded-For": PROXY}
    before = served.app.state.metrics.registry.get_sample_value("wikiholt_untrusted_identity_headers_total")
    with caplog.at_level(logging.WARNING):
        for client in (make_client(served), served.make_client()):  # the second has no address of the connection
            assert client.get("/api/v1/me", headers=headers).json()["kind"] == "anonymous"
            assert client.get("/w/alpha/api/v1/status", headers=headers).status_code == 401
    after = served.app.state.metrics.registry.get_sample_value("wikiholt_untrusted_identity_headers_total")
    assert after - before == 4
    assert caplog.text.count("ignored the name of a person from 203.0.113.9") == 1
    assert "root" not in caplog.text


def test_the_address_of_the_connection_counts_behind_a_proxy(served: ServedApplication) -> None:
    """The server replaces the address of the client, but not that of the proxy which sent the name."""
    app = add_proxy_headers(served.app, SETTINGS["serve.trusted_proxies"])
    headers = {"Remote-User": "ada", "Remote-Groups": "staff", "X-Forwarded-For": "203.0.113.9"}
    client = TestClient(app, base_url="http://127.0.0.1", client=(PROXY, 1))
    assert client.get("/api/v1/me", headers=headers).json()["kind"] == "person"
    cookie = post_key(client, served.tokens["read"], "/w/alpha/", headers={"X-Forwarded-Proto": "https"})[COOKIE_NAME]
    assert cookie["secure"] is True
    stranger = TestClient(app, base_url="http://127.0.0.1", client=("203.0.113.9", 1))
    headers["X-Forwarded-For"] = PROXY
    assert stranger.get("/api/v1/me", headers=headers).json()["kind"] == "anonymous"


@pytest.mark.parametrize("twice", ["Remote-User", "Remote-Groups", "Remote-Email"])
def test_a_header_that_is_sent_twice_is_refused(served: ServedApplication, twice: str) -> None:
    headers = [("Remote-User", "ada"), ("Remote-Groups", "staff"), ("Remote-Email", "a@example.org"), (twice, "admins")]
    response = make_client(served, PROXY).get("/api/v1/wikis", headers=headers)
    assert response.status_code == 403
    assert "more than once" in response.json()["detail"]


def test_a_key_wins_over_the_header(served: ServedApplication) -> None:
    headers = {"Remote-User": "root", "Remote-Groups": "admins", "Authorization": f"Bearer {served.tokens['read']}"}
    me = make_client(served, PROXY).get("/w/alpha/api/v1/me", headers=headers).json()
    assert (me["kind"], me["method"], me["operator"]) == ("key", "key", False)


def test_signing_out_of_a_proxy_names_its_address(served: ServedApplication) -> None:
    headers = HTML | SAME_ORIGIN | {"Remote-User": "ada", "Remote-Groups": "staff"}
    response = make_client(served, PROXY).post("/sign-out", headers=headers)
    assert 'href="https://auth.example.org/logout"' in response.text


@pytest.mark.parametrize(
    ("peer", "proxies", "trusted"),
    [
        (PROXY, (PROXY,), True),
        ("192.168.7.200", ("192.168.7.0/24",), True),
        ("192.168.8.1", ("192.168.7.0/24",), False),
        ("::1", ("::1",), True),
        (PROXY, ("*",), False),
        (PROXY, ("", "proxy.example"), False),
        ("", ("0.0.0.0/0",), False),
        ("testclient", ("testclient",), False),
    ],
)
def test_only_listed_addresses_are_trusted(peer: str, proxies: tuple[str, ...], trusted: bool) -> None:
    assert is_trusted_peer(peer, proxies) is trusted


# Off by default


def test_by_default_there_is_no_sign_in(shared: ServedApplication) -> None:
    client = TestClient(PeerMiddleware(shared.app), base_url="http://127.0.0.1", client=(PROXY, 1))
    headers = HTML | {"Remote-User": "root", "Remote-Groups": "admins"}
    for path in ("/sign-in", "/oidc-sign-in", "/oidc-callback"):
        assert client.get(path, headers=headers).status_code == 404
    _, token = shared.application.service.registry.sign_ins.create(
        shared.application.service.registry.keys.list()[0], timedelta(hours=1)
    )
    client.cookies.set(COOKIE_NAME, token)
    assert client.get("/api/v1/me", headers=headers).json()["kind"] == "anonymous"
    page = client.get("/w/alpha/", headers=HTML).text
    assert "Sign in" not in page
