"""OAuth tokens of other issuers: which tokens are accepted, and where clients can get one."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.interfaces.mcp.mcp_client import Agent, make_message
from tests.interfaces.mcp.test_tools import READ_TOOLS
from tests.support.http_server import run_handler
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.mcp import oauth
from wikiholt.interfaces.mcp.oauth import KeySet
from wikiholt.wikis.rate_limit import _SECRET_BYTES

ISSUER, BASE = "https://login.example", "https://wiki.example"
Sign = Callable[..., str]
HTTP = httpx.Client(verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))


def _make_public_key(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    jwk: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)  # type: ignore[arg-type]
    return {**jwk, "kid": kid, "use": "sig"}


@pytest.fixture(scope="module")
def signing() -> dict[str, Any]:
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "stranger": rsa.generate_private_key(65537, 2048),
    }


@pytest.fixture(scope="module")
def keys_file(signing: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("issuer") / "keys.json"
    place.write_text(
        json.dumps({"keys": [_make_public_key(signing["rsa"], "rsa"), _make_public_key(signing["ec"], "ec")]})
    )
    return place


@pytest.fixture(scope="module")
def sign(signing: dict[str, Any]) -> Sign:
    def signed(kid: str = "rsa", by: str | None = None, **claims: Any) -> str:
        now = int(time.time())
        usual = {"iss": ISSUER, "aud": f"{BASE}/w/alpha/mcp", "sub": "ada", "exp": now + 600, "scope": "read"}
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(payload, signing[by or kid], "ES256" if kid == "ec" else "RS256", headers={"kid": kid})

    return signed


@pytest.fixture(scope="module")
def issued(keys_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedApplication, str]]:
    settings = {"oauth.issuers": [ISSUER], "oauth.resource": BASE, "oauth.jwks": str(keys_file)}
    with serve_application(tmp_path_factory.mktemp("oauth"), settings) as served, run_server(served.app) as base:
        yield served, base


def get_status(url: str, token: str) -> int:
    body, headers = make_message("tools/list")
    answer = HTTP.post(url, content=body, headers={**headers, "Authorization": f"Bearer {token}"})
    return answer.status_code


def forget_wrong_keys(served: ServedApplication) -> None:
    counted = served.application.rate_limiter._wrong_keys[0]._table._map
    counted[_SECRET_BYTES:] = bytes(len(counted) - _SECRET_BYTES)


def test_wrong_tokens_and_keys_do_not_block_valid_ones(issued: tuple[ServedApplication, str], sign: Sign) -> None:
    served, base = issued
    forget_wrong_keys(served)
    served.stop_refilling()
    url, good = f"{base}/w/alpha/mcp", sign()
    guesses = [good[:-4] + "AAAA", sign(by="stranger"), sign(exp=1000), "wh_aaaaaaaaaaaa_" + "a" * 40] * 10
    assert {get_status(url, guess) for guess in guesses} == {401, 429}
    assert get_status(url, good) == get_status(url, served.tokens["read"]) == 200
    assert get_status(url, "a.b.c") == 429
    forget_wrong_keys(served)


def test_a_token_grants_its_scope_on_the_wiki_of_its_audience(
    issued: tuple[ServedApplication, str], sign: Sign
) -> None:
    served, base = issued
    url = f"{base}/w/alpha/mcp"
    reader, writer = Agent(url, sign()), Agent(url, sign(scope="read write", name="Ada <L>", email="ada@example.org"))
    assert "Welcome" in reader.get("read_page", path="Home")["content"]
    assert Agent(url, sign("ec")).get("search", query="coffee")["results"]
    reader.fail("write_page", path="Mine", content="x")
    writer.get("write_page", path="Mine", content="x")
    assert served.alpha.run_git("log", "-1", "--format=%an <%ae>").decode().strip() == "Ada L <ada@example.org>"
    assert Agent(f"{base}/mcp", sign()).get("read_page", path="Home")["title"] == "Home"
    both = sign(aud=["https://elsewhere.example", f"{BASE}/w/alpha/mcp"], scope=None, scp=["write"])
    assert get_status(url, both) == 200
    # The HTTP API takes no such token.
    headers = {"Authorization": f"Bearer {sign()}"}
    assert HTTP.get(f"{base}/w/alpha/api/v1/search?q=coffee", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": f"{BASE}/w/beta/mcp"},
        {"aud": BASE},
        {"aud": f"{BASE}/mcp"},
        {"aud": "https://elsewhere.example/w/alpha/mcp"},
        {"aud": [f"{BASE}/w/alpha/mcp", f"{BASE}/w/beta/mcp"]},
        {"aud": None},
        {"iss": "https://other.example"},
        {"iss": None},
        {"sub": None},
        {"exp": 1000},
        {"exp": None},
        {"nbf": 4_102_444_800},  # the year 2100
        {"scope": "everything"},
        {"scope": None},
        {"by": "stranger"},
        {"kid": "ec", "by": "ec", "iss": "https://other.example"},
        {"aud": f"{BASE}/w/no-such/mcp"},
    ],
    ids=str,
)
def test_a_token_for_another_wiki_is_rejected(
    issued: tuple[ServedApplication, str], sign: Sign, claims: dict[str, Any]
) -> None:
    served, base = issued
    forget_wrong_keys(served)
    assert get_status(f"{base}/w/alpha/mcp", sign(**claims)) in (401, 403)


def _encode_base64(document: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_forged_tokens_are_rejected(issued: tuple[ServedApplication, str], sign: Sign, signing: dict[str, Any]) -> None:
    served, base = issued
    forget_wrong_keys(served)
    url = f"{base}/w/alpha/mcp"
    claims = jwt.decode(sign(), options={"verify_signature": False})
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    public = signing["rsa"].public_key().public_bytes(serialization.Encoding.PEM, shape)
    signing_input = ".".join(map(_encode_base64, ({"alg": "HS256", "typ": "JWT", "kid": "rsa"}, claims)))
    digest = hmac.new(public, signing_input.encode(), "sha256").digest()
    forged = f"{signing_input}.{urlsafe_b64encode(digest).decode().rstrip('=')}"
    unsigned = jwt.encode(claims, None, "none", headers={"kid": "rsa"})
    good = sign()
    for token in (forged, unsigned, good[:-4] + "AAAA", "a.b.c", "..", good + "."):
        assert get_status(url, token) == 401, token
    assert get_status(url, good) == 200


def test_a_request_without_a_token_learns_where_to_get_one(issued: tuple[ServedApplication, str]) -> None:
    served, base = issued
    body, headers = make_message("tools/list")
    refused = HTTP.post(f"{base}/w/alpha/mcp", content=body, headers=headers)
    assert refused.status_code == 401
    where = f"{BASE}/.well-known/oauth-protected-resource/w/alpha/mcp"
    assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
    document = HTTP.get(f"{base}{where.removeprefix(BASE)}").json()
    assert document["resource"] == f"{BASE}/w/alpha/mcp"
    assert document["authorization_servers"] == [ISSUER]
    assert document["scopes_supported"] == ["read", "write"]
    # The response does not reveal which wikis exist.
    nowhere = HTTP.get(f"{base}/.well-known/oauth-protected-resource/w/no-such/mcp")
    assert nowhere.json() == json.loads(json.dumps(document).replace("alpha", "no-such"))
    assert HTTP.get(f"{base}/.well-known/oauth-protected-resource/w/..%22/mcp").status_code == 404
    # API keys still work.
    Agent(f"{base}/w/alpha/mcp", served.tokens["read"]).get("read_page", path="Home")


def test_without_issuers_there_is_no_metadata_route(served: ServedApplication, base: str) -> None:
    assert HTTP.get(f"{base}/.well-known/oauth-protected-resource/w/alpha/mcp").status_code == 404
    assert [tool.name for tool in Agent(f"{base}/mcp", served.tokens["read"]).list_tools()] == READ_TOOLS


def test_new_issuer_keys_work_once_they_are_in_the_file(
    signing: dict[str, Any], sign: Sign, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("rotating") / "keys.json"
    place.write_text(json.dumps({"keys": [_make_public_key(signing["ec"], "ec")]}))
    settings = {"oauth.issuers": [ISSUER], "oauth.resource": BASE, "oauth.jwks": str(place)}
    with serve_application(tmp_path_factory.mktemp("rotated"), settings) as served, run_server(served.app) as base:
        url = f"{base}/w/alpha/mcp"
        assert get_status(url, sign()) == 401
        place.write_text(
            json.dumps({"keys": [_make_public_key(signing["ec"], "ec"), _make_public_key(signing["rsa"], "rsa")]})
        )
        assert get_status(url, sign()) == 200
        place.write_text("{")  # old keys stay valid
        assert get_status(url, sign()) == 200


class _KeyServer(BaseHTTPRequestHandler):
    """A JWKS server of an issuer that counts its requests; after the first one it can wait."""

    document: ClassVar[bytes] = b""
    requests: ClassVar[list[str]] = []
    may_answer: ClassVar[Event] = Event()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if len(self.requests) > 1:
            self.may_answer.wait(TIMEOUT_S)
        self.send_response(200 if self.path == "/keys" else 302)
        self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(self.document)))
        self.end_headers()
        self.wfile.write(self.document)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def key_server(signing: dict[str, Any]) -> Iterator[str]:
    _KeyServer.document = json.dumps({"keys": [_make_public_key(signing["rsa"], "rsa")]}).encode()
    _KeyServer.requests.clear()
    _KeyServer.may_answer.set()
    with run_handler(_KeyServer) as port:
        yield f"http://127.0.0.1:{port}"


def test_jwks_fetches_are_limited_and_not_repeated_for_every_unknown_key(
    key_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "_MIN_REFETCH_INTERVAL_S", TIMEOUT_S)
    keys = KeySet(f"{key_server}/keys")
    assert keys.get_key("rsa").key_id == "rsa"
    for _ in range(20):
        with pytest.raises(ValueError, match="no such key"):
            keys.get_key("made up")
        assert keys.get_key("rsa").key_id == "rsa"
    assert len(_KeyServer.requests) == 1
    for address in (f"{key_server}/elsewhere", "http://127.0.0.1:1/keys"):  # a redirect, and nobody there
        with pytest.raises(ValueError, match="no such key"):
            KeySet(address).get_key("rsa")


def test_an_issuer_that_no_longer_answers_delays_no_token(key_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _KeyServer.may_answer.clear()
    with ThreadPoolExecutor(1) as pool:
        keys = KeySet(f"{key_server}/keys")
        first = keys.get_key("rsa")
        monkeypatch.setattr(oauth, "_CACHE_TTL_S", 0.0)
        waits = pool.submit(keys.get_key, "rsa")
        wait_until(lambda: len(_KeyServer.requests) == 2)
        assert keys.get_key("rsa") is first
        with pytest.raises(ValueError, match="no such key"):
            keys.get_key("unknown")
        assert not waits.done()
        _KeyServer.may_answer.set()
        assert waits.result().key_id == "rsa"


@pytest.mark.parametrize(
    "settings",
    [
        {"oauth.issuers": [ISSUER]},
        {"oauth.issuers": [ISSUER], "oauth.resource": BASE},
        {"oauth.resource": "wiki.example"},
        {"oauth.resource": f"{BASE}/"},
        {"oauth.jwks": "http://login.example/keys"},
        {"oauth.jwks": "ftp://login.example/keys"},
        {"mcp.max_tokens": 10},
    ],
)
def test_invalid_oauth_settings_are_rejected(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        load_settings(tmp_path, overrides=settings)
