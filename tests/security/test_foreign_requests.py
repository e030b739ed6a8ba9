"""Nothing that a stranger, a page or a repository says makes the service send a request to another host."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi.testclient import TestClient

from tests.interfaces.mcp.mcp_client import make_message
from tests.support.git_repository import Repository
from tests.support.git_servers import LocalServer, make_redirect_handler, run_http_server
from tests.support.served_application import serve_application
from wikiholt.errors import SourceError, WikiholtError
from wikiholt.git.remote import FetchLimits, RemoteSource
from wikiholt.wikis.service import WikiService

BASE = "https://wiki.example"


@pytest.fixture
def canary() -> Iterator[LocalServer]:
    """A server in the network of the service, which nobody should ask."""
    with run_http_server(lambda request: request.send_response(200)) as server:
        yield server


def test_urls_in_the_metadata_of_an_agent_are_not_fetched(tmp_path: Path, canary: LocalServer) -> None:
    url = canary.get_url("metadata")
    names = ("client_uri", "logo_uri", "tos_uri", "policy_uri", "jwks_uri", "sector_identifier_uri")
    document: dict[str, object] = dict.fromkeys(names, url) | {
        "redirect_uris": [url],
        "client_name": url,
        "software_id": url,
    }
    with serve_application(tmp_path, {"mcp.oauth": True, "oauth.resource": BASE}) as served:
        client = TestClient(served.app, base_url=BASE, follow_redirects=False)
        registered = client.post("/register", json=document)
        assert registered.status_code == 201, registered.text
        query = {"response_type": "code", "redirect_uri": url, "code_challenge": "c" * 43, "state": "s"}
        query["code_challenge_method"] = "S256"
        for client_id in (url, f"https://127.0.0.1:{canary.port}/metadata"):  # a metadata document as the id
            assert client.get("/authorize", params=query | {"client_id": client_id}).status_code == 400
        query["client_id"] = registered.json()["client_id"]
        consent = client.get("/authorize", params=query).headers["location"]
        assert client.get(consent).status_code == 200
        form = {name: values[0] for name, values in parse_qs(urlsplit(consent).query).items()}
        form |= {"key": served.tokens["write"], "action": "approve"}
        assert client.post("/oauth/consent", data=form).status_code == 303
    assert canary.requested_paths == []


def test_urls_in_a_token_are_not_fetched(tmp_path: Path, canary: LocalServer) -> None:
    url, key = canary.get_url("keys"), ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "keys.json").write_text('{"keys": []}')
    settings = {"oauth.issuers": [url], "oauth.resource": BASE, "oauth.jwks": str(tmp_path / "keys.json")}
    claims = {"iss": url, "aud": f"{BASE}/w/alpha/mcp", "sub": "ada", "exp": 4e9, "scope": "read"}
    with serve_application(tmp_path / "served", settings) as served:
        body, headers = make_message("tools/list")
        for name in ("jku", "x5u", "kid", "iss"):
            token = jwt.encode(claims, key, "ES256", headers={name: url})
            response = TestClient(served.app, base_url=BASE).post(
                "/w/alpha/mcp", content=body, headers={**headers, "Authorization": f"Bearer {token}"}
            )
            assert response.status_code == 401
    assert canary.requested_paths == []


@pytest.mark.parametrize("redirected", ["/.well-known/openid-configuration", "/token"])
def test_a_redirect_of_the_openid_provider_is_not_followed(
    tmp_path: Path, canary: LocalServer, redirected: str
) -> None:
    redirect = make_redirect_handler(f"http://127.0.0.1:{canary.port}")

    def answer(request: object) -> None:
        path = request.path  # type: ignore[attr-defined]
        if path == redirected:
            redirect(request)  # type: ignore[arg-type]
            return
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        endpoints = dict(zip(names, (f"{issuer}/{name}" for name in ("authorize", "token", "keys")), strict=True))
        request.send_response(200)  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]
        request.wfile.write(json.dumps({"issuer": issuer, **endpoints}).encode())  # type: ignore[attr-defined]

    with run_http_server(answer) as provider:
        issuer = f"http://127.0.0.1:{provider.port}"
        settings = {"people.oidc_issuer": issuer, "people.oidc_client_id": "wikiholt"}
        with serve_application(tmp_path, settings) as served:
            client = served.make_client()
            started = client.get("/oidc-sign-in", follow_redirects=False)
            if redirected == "/token":
                state = parse_qs(urlsplit(started.headers["location"]).query)["state"][0]
                started = client.get("/oidc-callback", params={"state": state, "code": "c"}, follow_redirects=False)
            assert started.status_code in (403, 503), started.text
        assert redirected in provider.requested_paths
    assert canary.requested_paths == []


def test_a_repository_leads_to_no_other_server(tmp_path: Path, canary: LocalServer) -> None:
    url = canary.get_url("other.git")
    repository = Repository(tmp_path / "hostile")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    page = f"---\nimage: {url}\n---\n# Home\n\n![x]({url}) <img src='{url}'> <{url}> [[{url}]]\n"
    repository.commit(
        {
            "Home.md": page,
            "Big.md": pointer,
            ".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = {url}\n',
            ".lfsconfig": f"[lfs]\n\turl = {url}\n",
        }
    )
    bare = tmp_path / "served" / "wiki.git"
    subprocess.run(["git", "clone", "-q", "--bare", repository.path, bare], check=True)
    subprocess.run(["git", "repack", "-adq"], cwd=bare, check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    for name in ("http-alternates", "alternates"):
        (bare / "objects" / "info" / name).write_text(f"{url}/objects\n")

    def serve_file(request: object) -> None:
        """Serve the files of the repository, as a server without git does."""
        file = bare.parent / urlsplit(request.path).path.lstrip("/")  # type: ignore[attr-defined]
        request.send_response(200 if file.is_file() else 404)  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]
        if file.is_file():
            request.wfile.write(file.read_bytes())  # type: ignore[attr-defined]

    limits = FetchLimits(("http",), allow_private=True)
    with run_http_server(serve_file) as server:
        source = RemoteSource(server.get_url("wiki.git"), tmp_path / "place", limits)
        source.fetch()
        assert source.get_head() == repository.get_head()
        for pack in (bare / "objects" / "pack").iterdir():
            pack.unlink()
        with pytest.raises(SourceError):  # now the objects are only at the other server
            RemoteSource(server.get_url("wiki.git"), tmp_path / "again", limits).fetch()
    with serve_application(tmp_path / "app") as served:
        served.application.service.add("hostile", str(repository.path), {})
        served.application.service.get_handle("hostile").sync()
        page_html = served.make_client("operator").get("/w/hostile/read?page=Home")
        assert page_html.status_code == 200
        assert f'src="{url}' not in page_html.text
    assert canary.requested_paths == []


HOSTS = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]"]
HOSTS += ["[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "127.0.0.1.", "LOCALHOST"]
HOSTS += ["169.254.169.254", "[fe80::1%25lo]", "user@127.0.0.1", "example.org@127.0.0.1"]


def add_and_sync(service: WikiService, slug: str, source: str) -> None:
    service.add(slug, source, {})
    service.get_handle(slug).sync()


def test_no_source_leads_to_this_machine(tmp_path: Path, canary: LocalServer) -> None:
    with serve_application(tmp_path, {"remote.schemes": ["http", "https", "ssh", "git"]}) as served:
        service = served.application.service
        for number, host in enumerate(HOSTS):
            for scheme in ("http", "https", "git", "ssh"):
                with pytest.raises(WikiholtError):
                    add_and_sync(service, f"{scheme}-{number}", f"{scheme}://{host}:{canary.port}/wiki.git")
    assert canary.requested_paths == []
