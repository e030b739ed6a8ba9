"""An agent gets tokens with OAuth 2.1: the SDK's client against the real service, and attacks on each step."""

import base64
import hashlib
import json
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from starlette.testclient import TestClient

from tests.interfaces.mcp.mcp_client import get_text, make_message, run_in_thread
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.mcp import authorization_server
from wikiholt.wikis import oauth_grants
from wikiholt.wikis.oauth_grants import GrantKind

BASE = "http://127.0.0.1:8765"
RESOURCE = f"{BASE}/w/alpha/mcp"
REDIRECT_URI = "https://agent.example.org/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    settings = {"mcp.oauth": True, "oauth.resource": BASE}
    with serve_application(tmp_path_factory.mktemp("oauth"), settings) as served:
        yield served


@dataclass
class Agent:
    """The steps of a client, one by one."""

    http: TestClient
    client_id: str = ""
    tokens: dict[str, Any] = field(default_factory=dict)

    def register(self, redirect_uri: str = REDIRECT_URI, **more: object) -> Any:
        response = self.http.post(
            "/register", json={"redirect_uris": [redirect_uri], "client_name": "<b>A</b>", **more}
        )
        if response.status_code == 201:
            self.client_id = response.json()["client_id"]
        return response

    def start(self, **changes: str) -> Any:
        """Call the authorization endpoint and return its response."""
        parameters = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT_URI,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "s1",
            "scope": "read write",
            "resource": RESOURCE,
        }
        parameters |= changes
        return self.http.get("/authorize", params={name: text for name, text in parameters.items() if text})

    def consent(self, key: str, action: str = "approve", **changes: str) -> Any:
        started = self.start(**changes)
        assert started.status_code == 302, started.text
        page = self.http.get(started.headers["location"])
        assert page.status_code == 200
        fields = {name: values[0] for name, values in parse_qs(urlsplit(started.headers["location"]).query).items()}
        return self.http.post("/oauth/consent", data={**fields, "key": key, "action": action})

    def get_code(self, key: str, **changes: str) -> str:
        response = self.consent(key, **changes)
        assert response.status_code == 303, response.text
        answer = parse_qs(urlsplit(response.headers["location"]).query)
        assert answer["state"] == ["s1"]
        return answer["code"][0]

    def exchange(self, code: str, **changes: str) -> Any:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI}
        form |= {"client_id": self.client_id, "code_verifier": VERIFIER, **changes}
        return self.http.post("/token", data=form)

    def refresh(self, token: str, **changes: str) -> Any:
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client_id, **changes}
        return self.http.post("/token", data=form)

    def call(self, token: str, slug: str = "alpha") -> Any:
        body, headers = make_message("tools/list")
        return self.http.post(f"/w/{slug}/mcp", content=body, headers={**headers, "Authorization": f"Bearer {token}"})


@pytest.fixture
def agent(served: ServedApplication) -> Agent:
    agent = Agent(TestClient(served.app, base_url=BASE, follow_redirects=False))
    assert agent.register().status_code == 201
    return agent


def get_token(served: ServedApplication, agent: Agent, key: str = "write") -> dict[str, Any]:
    response = agent.exchange(agent.get_code(served.tokens[key]))
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def list_tool_names(response: Any) -> set[str]:
    return {tool["name"] for tool in response.json()["result"]["tools"]}


def test_the_client_of_the_sdk_registers_gets_a_token_and_uses_the_wiki(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    settings = {"mcp.oauth": True, "oauth.resource": address}
    with serve_application(tmp_path_factory.mktemp("sdk"), settings) as served, run_server(served.app, port=port):
        token = served.tokens["read"]
        assert "Welcome" in run_in_thread(lambda: _use_sdk(f"{address}/w/alpha/mcp", token))


class _MemoryStorage(TokenStorage):
    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def _use_sdk(url: str, key: str) -> str:
    """Read a page with the SDK's OAuth client; the person is played by a browser without a window."""
    answers: list[AuthorizationCodeResult] = []

    async def approve(address: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True, timeout=TIMEOUT_S, verify=False) as browser:
            page = await browser.get(address)
        fields = {name: values[0] for name, values in parse_qs(urlsplit(str(page.url)).query).items()}
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=False) as browser:
            form = {**fields, "key": key, "action": "approve"}
            response = await browser.post(str(page.url).partition("?")[0], data=form)
        answer = parse_qs(urlsplit(response.headers["location"]).query)
        answers.append(AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0]))

    async def wait_for_answer() -> AuthorizationCodeResult:
        return answers[-1]

    metadata = OAuthClientMetadata(
        client_name="test", redirect_uris=[AnyUrl("http://127.0.0.1:9/callback")], scope="read write"
    )
    provider = OAuthClientProvider(url, metadata, _MemoryStorage(), approve, wait_for_answer)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=TIMEOUT_S, verify=False, follow_redirects=True) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        with anyio.fail_after(TIMEOUT_S):
            result: Any = await client.call_tool("read_page", {"path": "Home"})
        return get_text(result)


def test_a_token_has_the_scope_of_the_key_and_is_refreshed_once(served: ServedApplication, agent: Agent) -> None:
    tokens = get_token(served, agent, "read")
    assert tokens["scope"] == "read"
    assert "write_page" not in list_tool_names(agent.call(tokens["access_token"]))
    writing = get_token(served, agent, "write")
    assert "write_page" in list_tool_names(agent.call(writing["access_token"]))
    narrow = agent.refresh(writing["refresh_token"], scope="read").json()
    assert "write_page" not in list_tool_names(agent.call(narrow["access_token"]))
    assert agent.refresh(writing["refresh_token"]).json()["error"] == "invalid_grant"
    assert agent.refresh(tokens["refresh_token"], scope="write").json()["error"] == "invalid_scope"


def read_grants(served: ServedApplication) -> list[tuple[str, str]]:
    with served.application.service.registry.oauth._store.read() as connection:
        assert connection is not None
        return connection.execute("SELECT name, value FROM grants").fetchall()


def test_only_digests_are_stored(served: ServedApplication, agent: Agent) -> None:
    tokens = get_token(served, agent)
    rows = json.dumps(read_grants(served))
    assert "access-" in rows
    assert tokens["access_token"] not in rows
    assert tokens["refresh_token"] not in rows
    assert served.tokens["write"] not in rows
    assert "client_secret" not in rows


def test_a_token_of_one_wiki_is_refused_by_another(served: ServedApplication, agent: Agent) -> None:
    token = get_token(served, agent)["access_token"]
    assert agent.call(token).status_code == 200
    assert agent.call(token, "beta").status_code == 403
    assert agent.call(token, "nowhere").status_code == 403
    assert agent.http.get("/w/alpha/api/v1/pages", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_revoked_key_ends_its_tokens(served: ServedApplication, agent: Agent) -> None:
    registry = served.application.service.registry
    key, served.tokens["soon"] = registry.keys.create(registry.get("alpha").id, Scope.WRITE, "soon revoked")
    tokens, code = get_token(served, agent, "soon"), agent.get_code(served.tokens["soon"])
    registry.keys.revoke(key.id)
    assert agent.call(tokens["access_token"]).status_code == 401
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert agent.exchange(code).json()["error"] == "invalid_grant"


def test_a_token_can_be_revoked_alone(served: ServedApplication, agent: Agent) -> None:
    token = get_token(served, agent)["access_token"]
    agent.http.post("/revoke", data={"token": token, "client_id": agent.client_id, "client_secret": ""})
    assert agent.call(token).status_code == 401


def test_expired_codes_and_tokens_are_refused(
    served: ServedApplication, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth_grants, "_CODE_TTL_S", -1)
    assert agent.exchange(agent.get_code(served.tokens["write"])).json()["error"] == "invalid_grant"
    monkeypatch.undo()
    monkeypatch.setattr(oauth_grants, "ACCESS_TOKEN_TTL_S", -1)
    assert agent.call(get_token(served, agent)["access_token"]).status_code == 401


def test_a_code_works_once_for_its_client_and_verifier(served: ServedApplication, agent: Agent) -> None:
    code = agent.get_code(served.tokens["write"])
    assert agent.exchange(code, code_verifier="w" * 64).json()["error"] == "invalid_grant"
    assert agent.exchange(code, redirect_uri="https://agent.example.org/other").json()["error"] == "invalid_request"
    other = Agent(agent.http)
    other.register()
    assert other.exchange(code).json()["error"] == "invalid_grant"
    assert agent.exchange(code).status_code == 200
    assert agent.exchange(code).json()["error"] == "invalid_grant"
    assert served.application.service.registry.oauth.exchange(GrantKind.CODE, code) is None


@pytest.mark.parametrize(
    "uri",
    [
        "https://agent.example.org/callback/",
        "https://agent.example.org/callback?x=1",
        "https://evil.example.org/callback",
    ],
)
def test_a_redirect_uri_must_match_exactly(served: ServedApplication, agent: Agent, uri: str) -> None:
    started = agent.start(redirect_uri=uri)
    assert (started.status_code, "location" in started.headers) == (400, False)
    fields = {"client_id": agent.client_id, "redirect_uri": uri, "code_challenge": CHALLENGE, "resource": RESOURCE}
    form = {**fields, "key": served.tokens["write"], "action": "approve", "scope": "read"}
    assert agent.http.post("/oauth/consent", data=form).status_code == 422


UNSAFE_URIS = (
    *("http://agent.example.org/x", "https://agent.example.org/#x", "https://claude.ai@evil.example/x"),
    *("https://claude.ai:443@evil.example/x", "http://localhost@evil.example/x", "javascript:alert(1)"),
    *("data:text/html,x", "view-source:https://agent.example.org", "mailto:a@example.org", "chrome://settings"),
    *("filesystem:https://agent.example.org/x", "intent://x", "ms-settings:privacy"),
)
URIS_ON_THE_DEVICE = (
    *("http://127.0.0.1:49152/callback", "http://localhost/callback", "http://[::1]:7/callback"),
    *("org.example.agent:/callback", "cursor://anysphere.cursor-mcp/oauth/callback"),
)


@pytest.mark.parametrize(
    ("uri", "status"), [*((uri, 400) for uri in UNSAFE_URIS), *((uri, 201) for uri in URIS_ON_THE_DEVICE)]
)
def test_only_safe_redirect_uris_can_be_registered(agent: Agent, uri: str, status: int) -> None:
    assert agent.register(uri).status_code == status


def test_a_client_of_an_earlier_version_with_an_unsafe_redirect_uri_gets_no_code(
    served: ServedApplication, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = "https://claude.ai@evil.example/callback"
    monkeypatch.setattr(authorization_server, "_find_redirect_fault", lambda _: "")
    assert agent.register(uri).status_code == 201
    location = agent.start(redirect_uri=uri).headers["location"]
    monkeypatch.undo()
    assert agent.http.get(location).status_code == 422


def test_guesses_of_keys_on_the_consent_page_are_limited(tmp_path: Path) -> None:
    with serve_application(tmp_path, {"mcp.oauth": True, "oauth.resource": BASE}) as served:
        served.stop_refilling()
        agent = Agent(TestClient(served.app, base_url=BASE, follow_redirects=False))
        agent.register()
        statuses = [agent.consent(f"wh_{'a' * 12}_{number:040}").status_code for number in range(40)]
        assert statuses == [401] * 20 + [429] * 20
        assert agent.consent(served.tokens["write"]).status_code == 303


def test_strangers_keep_nobody_from_registering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_grants, "_MAX_NEW_CLIENTS", 30)
    with serve_application(tmp_path, {"mcp.oauth": True, "oauth.resource": BASE}) as served:
        agent = Agent(TestClient(served.app, base_url=BASE, follow_redirects=False))
        for number in range(40):
            client = TestClient(served.app, base_url=BASE, client=(f"203.0.113.{number % 2}", 1))
            assert Agent(client).register().status_code == 201
            if number == 30:
                assert agent.register().status_code == 201
        assert agent.exchange(agent.get_code(served.tokens["write"])).status_code == 200


@pytest.mark.parametrize(
    ("key", "status"), [("other", 403), ("none", 401), ("", 401)], ids=["of another wiki", "unknown", "empty"]
)
def test_another_key_approves_nothing(served: ServedApplication, agent: Agent, key: str, status: int) -> None:
    token = served.tokens.get(key, f"wh_{'a' * 12}_{secrets.token_hex(20)}" if key else "")
    response = agent.consent(token)
    assert response.status_code == status
    assert "location" not in response.headers
    assert 'role="alert"' in response.text


def test_an_operator_key_approves_one_wiki(served: ServedApplication, agent: Agent) -> None:
    token = get_token(served, agent, "operator")["access_token"]
    assert agent.call(token).status_code == 200
    assert agent.call(token, "beta").status_code == 403
    assert agent.consent(served.tokens["operator"], resource="").status_code == 403


def test_the_consent_page_escapes_names_and_cannot_be_framed(agent: Agent) -> None:
    page = agent.http.get(agent.start(state='"><script>x</script>').headers["location"])
    assert "<b>A</b>" not in page.text
    assert "<script>" not in page.text
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' https://agent.example.org;" in policy
    assert page.headers["cache-control"] == "no-store"


def test_the_consent_page_names_the_wiki_and_what_the_agent_may_do(agent: Agent) -> None:
    text = agent.http.get(agent.start().headers["location"]).text
    assert "read and change the pages of the wiki <strong>alpha</strong>." in text
    assert "The answer goes to <code>https://agent.example.org</code>." in text
    other = agent.http.get(agent.start(scope="read", resource="").headers["location"]).text
    assert "wants to read the pages of the wiki of your key." in other


def test_a_person_can_deny(served: ServedApplication, agent: Agent) -> None:
    response = agent.consent(served.tokens["write"], action="deny")
    assert response.headers["location"] == f"{REDIRECT_URI}?error=access_denied&state=s1"


@pytest.mark.parametrize(
    "changes",
    [{"code_challenge": ""}, {"code_challenge_method": "plain"}, {"resource": "https://evil.example.org/mcp"}],
)
def test_a_request_without_pkce_or_for_another_service_is_refused(agent: Agent, changes: dict[str, str]) -> None:
    assert "error=" in agent.start(**changes).headers["location"]


def test_the_metadata_lead_from_the_wiki_to_the_endpoints(served: ServedApplication, agent: Agent) -> None:
    body, headers = make_message("tools/list")
    refused = agent.http.post("/w/alpha/mcp", content=body, headers=headers)
    assert refused.status_code == 401
    assert (
        f'resource_metadata="{BASE}/.well-known/oauth-protected-resource/w/alpha/mcp"'
        in refused.headers["www-authenticate"]
    )
    resource = agent.http.get("/.well-known/oauth-protected-resource/w/alpha/mcp").json()
    assert (resource["resource"], resource["authorization_servers"]) == (RESOURCE, [BASE])
    issuer = agent.http.get("/.well-known/oauth-authorization-server").json()
    assert issuer["code_challenge_methods_supported"] == ["S256"]
    assert issuer["registration_endpoint"] == f"{BASE}/register"
    assert issuer["token_endpoint_auth_methods_supported"] == ["none"]


def test_clients_that_nobody_approved_expire(
    served: ServedApplication, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth_grants, "_NEW_CLIENT_TTL_S", -1)
    expired = Agent(agent.http)
    expired.register()
    assert expired.start().status_code == 400
    get_token(served, agent)
    names = [name for name, _ in read_grants(served)]
    assert f"new-client-{expired.client_id}" not in names
    assert f"client-{agent.client_id}" in names


def test_it_is_off_by_default_and_needs_the_public_url(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("off")) as served:
        assert served.make_client().get("/.well-known/oauth-authorization-server").status_code == 404
        assert served.make_client().post("/register", json={}).status_code in (404, 405)
    with pytest.raises(InvalidSetting, match=r"oauth\.resource"):
        load_settings(tmp_path_factory.mktemp("settings"), overrides={"mcp.oauth": True})
