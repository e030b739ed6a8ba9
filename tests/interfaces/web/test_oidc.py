"""Sign-in with a real OpenID provider."""

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider, run_oidc_provider
from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.wiki import Person, PersonOrigin
from wikiholt.interfaces.http.sign_in import COOKIE_NAME
from wikiholt.interfaces.web import oidc

pytestmark = pytest.mark.process

PERSONS = {
    "alice": {"name": "Alice Ash", "email": "alice@example.org", "groups": ["editors", "staff"]},
    "bob": {"name": "Bob <b>Birch</b>", "groups": []},
}
HTML = {"Accept": "text/html"}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with run_oidc_provider(PERSONS) as provider:
        yield provider


@pytest.fixture(scope="module")
def served(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    settings = {
        "people.oidc_issuer": provider.issuer,
        "people.oidc_client_id": CLIENT_ID,
        "people.oidc_client_secret": CLIENT_SECRET,
        "people.oidc_name": "Example & Co",
        "people.groups": ["editors=alpha:write"],
    }
    with serve_application(tmp_path_factory.mktemp("oidc"), settings) as served, pytest.MonkeyPatch.context() as patch:
        patch.setattr(oidc, "_TIMEOUT_S", TIMEOUT_S)
        yield served


def start(client: TestClient, next_url: str = "/w/alpha/") -> str:
    response = client.get("/oidc-sign-in", params={"next": next_url}, follow_redirects=False)
    assert response.status_code == 302, response.text
    return response.headers["location"]


def sign_in(served: ServedApplication, provider: OidcProvider, person: str) -> TestClient:
    client = served.make_client()
    callback = provider.sign_in(start(client), person)
    response = client.get(callback, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/w/alpha/"), response.text
    return client


def test_the_request_has_pkce_state_and_nonce(served: ServedApplication) -> None:
    first, second = (parse_qs(urlsplit(start(served.make_client())).query) for _ in range(2))
    assert first["response_type"] == ["code"]
    assert first["code_challenge_method"] == ["S256"]
    assert set(first["scope"][0].split()) == {"openid", "profile", "email"}
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) > 40
        assert first[name] != second[name]


def test_a_person_signs_in_writes_and_signs_out(served: ServedApplication, provider: OidcProvider) -> None:
    client = sign_in(served, provider, "alice")
    me = client.get("/w/alpha/api/v1/me").json()
    expected = {
        "kind": "person",
        "name": "Alice Ash",
        "method": "cookie",
        "scope": "write",
        "operator": False,
        "key": None,
        "groups": ["editors", "staff"],
    }
    assert {name: me[name] for name in expected} == expected
    assert client.get("/w/beta/api/v1/pages/Home").status_code == 403
    body = {"content": "# By Alice\n"}
    assert client.put("/w/alpha/api/v1/pages/Alice", json=body).status_code == 403  # no proof of the origin
    assert client.put("/w/alpha/api/v1/pages/Alice", json=body, headers=SAME_ORIGIN).status_code == 201
    assert served.alpha.run_git("log", "-1", "--format=%an <%ae>").strip() == b"Alice Ash <alice@example.org>"
    page = client.get("/w/alpha/", headers=HTML).text
    assert "Alice Ash" in page
    response = client.post("/sign-out", headers=HTML | SAME_ORIGIN)
    assert response.status_code == 200
    assert f"{provider.issuer}/session/end?client_id={CLIENT_ID}" in response.text
    assert COOKIE_NAME not in client.cookies
    assert client.get("/w/alpha/api/v1/pages/Home").status_code == 401


def test_a_person_without_a_group_gets_a_clear_page(served: ServedApplication, provider: OidcProvider) -> None:
    client = sign_in(served, provider, "bob")
    response = client.get("/w/alpha/read?page=Home", headers=HTML)
    assert response.status_code == 403
    assert "none of your groups has access" in response.text
    assert "Bob &lt;b&gt;Birch&lt;/b&gt;" in response.text
    assert "alphacanary" not in response.text


def test_a_callback_needs_the_browser_that_started_it(served: ServedApplication, provider: OidcProvider) -> None:
    victim, attacker = served.make_client(), served.make_client()
    callback = provider.sign_in(start(attacker), "alice")
    response = victim.get(callback, headers=HTML)
    assert response.status_code == 403
    assert "not started in this browser" in response.text
    start(victim)  # a sign-in with another state
    assert victim.get(callback, headers=HTML).status_code == 403
    assert COOKIE_NAME not in victim.cookies


def test_a_code_works_once_and_only_with_its_nonce_and_verifier(
    served: ServedApplication, provider: OidcProvider
) -> None:
    for changed in (1, 2):
        client = served.make_client()
        callback = provider.sign_in(start(client), "alice")
        cookie = client.cookies["wikiholt_oidc"]
        pending = json.loads(base64.urlsafe_b64decode(cookie.strip('"')))
        pending[changed] = "x" * 43
        client.cookies.clear()
        client.cookies.set("wikiholt_oidc", base64.urlsafe_b64encode(json.dumps(pending).encode()).decode())
        response = client.get(callback, headers=HTML)
        assert response.status_code == 403
        assert "Start again" in response.text
        assert COOKIE_NAME not in client.cookies


def test_a_refusal_of_the_provider_is_a_page_with_a_hint(served: ServedApplication, provider: OidcProvider) -> None:
    client = served.make_client()
    callback = provider.sign_in(start(client), "alice", cancel=True)
    assert "error=access_denied" in callback
    response = client.get(callback, headers=HTML)
    assert response.status_code == 403
    assert "did not sign you in" in response.text


def test_the_way_back_leads_only_to_this_service(served: ServedApplication, provider: OidcProvider) -> None:
    for url in ("https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example", "javascript:alert(1)"):
        client = served.make_client()
        callback = provider.sign_in(start(client, url), "alice")
        assert client.get(callback, follow_redirects=False).headers["location"] == "/"


def test_the_sign_in_page_escapes_the_name_of_the_provider(served: ServedApplication) -> None:
    page = served.make_client().get("/w/alpha/sign-in", headers=HTML).text
    assert "Sign in with Example &amp; Co" in page
    assert "Your key" not in page  # keys cannot be remembered by default


def test_a_public_client_signs_in_without_a_secret(tmp_path: Path) -> None:
    with run_oidc_provider(PERSONS, public=True) as provider:
        settings = {
            "people.oidc_issuer": provider.issuer,
            "people.oidc_client_id": CLIENT_ID,
            "people.groups": ["staff=*:read"],
        }
        with serve_application(tmp_path, settings, keys=False) as served:
            # Without any key, the wikis are not open to this machine either.
            assert served.make_client().get("/w/alpha/api/v1/status").status_code == 401
            client = sign_in(served, provider, "alice")
            assert client.get("/w/beta/api/v1/me").json()["scope"] == "read"
            assert {wiki["slug"] for wiki in client.get("/api/v1/wikis").json()["wikis"]} == {"alpha", "beta"}
    # A person of another provider is nobody, whatever the subject.
    settings["people.oidc_issuer"] = "http://127.0.0.1:9"
    with serve_application(tmp_path / "again", settings) as served:
        person = Person(PersonOrigin.OIDC, f"{provider.issuer} alice", groups=("staff",))
        _, token = served.application.service.registry.sign_ins.create(person, timedelta(hours=1))
        client = served.make_client()
        client.cookies.set(COOKIE_NAME, token)
        assert client.get("/api/v1/me").json()["kind"] == "anonymous"
        # No provider answers: the sign-in fails with a page, and the service goes on.
        response = served.make_client().get("/oidc-sign-in", headers=HTML)
        assert response.status_code == 503
        assert "does not answer correctly" in response.text
