"""Permissions of the API inside Otterwiki: the same as in Otterwiki itself, with no way around them."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_client import (
    NO_KEEPALIVE,
    PAGES,
    PRIVATE_SETTINGS,
    SHARED_KEY,
    ApiClient,
    create_registry_key,
    run_git,
)
from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.wiki import Scope

pytestmark = pytest.mark.model

WRITE = {"content": "x"}
READS = (
    "pages",
    "pages/Sea",
    "pages/Sea/history",
    "pages/Sea/attachments",
    "pages/Sea/attachments/a.txt",
    "search?q=boats",
    "semantic-search?q=boats",
    "similar?path=Sea",
    "facets",
    "links",
    "links/Sea",
    "orphans",
    "changelog",
    "status",
    "reindex/status",
    "backups",
    "keys",
)
CHANGES = (
    ("PUT", "pages/Forged", WRITE),
    ("PATCH", "pages/Sea", {"revision": "0" * 40, "old_string": "a", "new_string": "b"}),
    ("DELETE", "pages/Sea", None),
    ("POST", "pages/Sea/rename", {"new_path": "Ocean"}),
    ("POST", "pages/Sea/attachments", {"filename": "a.txt", "content": ""}),
    ("DELETE", "pages/Sea/attachments/a.txt", None),
    ("POST", "reindex", None),
    ("POST", "wake", None),
    ("POST", "backup", None),
    ("POST", "restore", None),
    ("POST", "keys", {"label": "forged"}),
)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A wiki that only registered users may read and write."""
    place = tmp_path_factory.mktemp("private")
    with OtterwikiServer.start(
        place, "dev", PRIVATE_SETTINGS, None, {"OTTERWIKI_API_KEY": SHARED_KEY}, PAGES
    ) as server:
        server.wait_until_found("boats", "sea")
        with contextlib.closing(server.login()):  # the first user who registers is the administrator
            yield server


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A wiki behind a proxy that authenticates users; its page names keep their case."""
    place = tmp_path_factory.mktemp("proxied")
    settings = {"AUTH_METHOD": "PROXY_HEADER", "READ_ACCESS": "ANONYMOUS", "RETAIN_PAGE_NAME_CASE": True}
    pages = {"Home.md": "# Home\n", "Reed Beds.md": "Boats among the reeds.\n"}
    with OtterwikiServer.start(place, "dev", settings, None, {"OTTERWIKI_API_KEY": SHARED_KEY}, pages) as server:
        server.wait_until_found("boats", "Reed Beds")
        yield server


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A wiki that everyone may read and write."""
    with OtterwikiServer.start(tmp_path_factory.mktemp("public"), "dev", None, None, None, PAGES) as server:
        server.wait_until_found("boats", "sea")
        yield server


def sign_in(otter: OtterwikiServer, email: str, *, register: bool = True) -> ApiClient:
    session = otter.login(email, register=register)
    cookies = session.cookies
    session.close()
    return ApiClient(
        otter, client=httpx.Client(base_url=otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, cookies=cookies)
    )


def assert_refused(client: ApiClient, statuses: set[int], *, reads: bool = True, **headers: str) -> None:
    """Every request is rejected, nothing changes and no response contains wiki text."""
    head = client.server.get_head()
    tries = [*((("GET", path, None) for path in READS) if reads else ()), *CHANGES]
    for method, path, body in tries:
        answer = client(method, path, body, **headers)
        assert answer.status_code in statuses, (method, path, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert "canary" not in answer.text.lower()
        assert "boats" not in answer.text.lower()
    assert client.server.get_head() == head


def test_users_without_read_permission_get_nothing_of_the_wiki(private: OtterwikiServer) -> None:
    assert_refused(ApiClient(private), {401})
    assert ApiClient(private).get_json("health")["status"] == "ok"


def test_a_wrong_key_is_rejected_even_in_a_valid_session(private: OtterwikiServer) -> None:
    member = sign_in(private, "beaver@example.org")
    for key in ("wh_aaaaaaaaaaaa_wrong", "nonsense", SHARED_KEY[:-1], SHARED_KEY + "x"):
        for method, path, body in (("GET", "search?q=boats", None), ("PUT", "pages/Forged", WRITE)):
            answer = member(method, path, body, Authorization=f"Bearer {key}")
            assert (answer.status_code, "canary" in answer.text) == (401, False), (key, answer.text)
    assert member.get_json("pages")["total"]


def test_client_input_cannot_replace_the_host_grant(private: OtterwikiServer) -> None:
    names = ("wikiholt.host_grant", "wikiholt-host-grant", "x-wikiholt-host-grant", "wsgi.wikiholt.host_grant")
    forged = dict.fromkeys(names, "{'scopes': ['read', 'write', 'admin'], 'signed_in': true}")
    forged |= {"x-otterwiki-name": "Otto", "x-otterwiki-email": "otto@example.org", "x-otterwiki-permissions": "ADMIN"}
    forged |= {"x-author": "Otto <otto@example.org>", "x-forwarded-user": "otto", "x-script-name": "/w/other"}
    assert_refused(ApiClient(private, **forged), {401})
    assert ApiClient(private, **forged).get_json("health")["status"] == "ok", "the headers alone are not rejected"
    assert set(private.list_head_files()) == set(private.wait_until_equal()) & set(PAGES), "no page was added or lost"


def test_a_session_reads_but_needs_the_csrf_token_to_write(private: OtterwikiServer) -> None:
    member = sign_in(private, "heron@example.org")
    assert member.get_json("search", q="boats")["results"][0]["path"] == "Sea"
    assert_refused(member, {403}, reads=False)
    assert_refused(member, {403}, reads=False, **{"X-CSRFToken": "guessed"})
    another = ApiClient(private).make_csrf_header()
    assert_refused(member, {403}, reads=False, **another)


def test_a_session_with_the_csrf_token_writes_only_as_its_user(private: OtterwikiServer) -> None:
    member = sign_in(private, "newt@example.org")
    token = member.make_csrf_header()
    response = member("PUT", "pages/By Newt", WRITE, **token)
    assert response.status_code == 201
    assert run_git(private, "log", "-1", "--format=%an <%ae>") == "Newt <newt@example.org>"
    head = private.get_head()
    other = {"name": "Otto", "email": "otto@example.org"}
    assert member("PUT", "pages/As Otto", WRITE | {"author": other}, **token).status_code == 403
    header = {"X-Author": "Otto <otto@example.org>"}
    assert member("PUT", "pages/As Otto", WRITE, **token, **header).status_code == 403
    for method, path in (("POST", "reindex"), ("POST", "backup"), ("POST", "keys"), ("GET", "keys")):
        assert member(method, path, **token).status_code == 403, path
    assert private.get_head() == head


def test_an_administrator_reindexes_and_manages_keys_but_the_shared_key_does_not(private: OtterwikiServer) -> None:
    admin = sign_in(private, "otto@example.org", register=False)
    assert admin("POST", "reindex").status_code == 403, "rejected without the CSRF token"
    assert admin("POST", "reindex", **admin.make_csrf_header()).status_code in (202, 409)
    as_a_form = {"csrf_token": admin.make_csrf_header()["X-CSRFToken"]}
    assert admin.client.post("/api/v1/wake", data=as_a_form).status_code == 202
    response = admin("POST", "keys", {"label": "Bot", "scope": "read"}, **admin.make_csrf_header())
    assert response.status_code == 201
    assert ApiClient(private, response.json()["token"]).get_json("pages")["total"]
    shared = ApiClient(private, SHARED_KEY)
    assert shared("POST", "keys", {"label": "stays"}).status_code == 403
    assert shared("GET", "keys").status_code == 403
    assert [key["label"] for key in admin.get_json("keys")["keys"]] == ["Bot"]


def test_a_public_wiki_is_read_by_everyone_and_written_with_the_csrf_token(public: OtterwikiServer) -> None:
    anybody = ApiClient(public)
    assert anybody.get_json("semantic-search", q="vessels on the ocean")["results"][0]["path"] == "Sea"
    assert_refused(anybody, {401, 403}, reads=False)
    assert anybody("PUT", "pages/By Anybody", WRITE, **anybody.make_csrf_header()).status_code == 201
    assert run_git(public, "log", "-1", "--format=%an") == "Anonymous"
    assert anybody("POST", "reindex", **anybody.make_csrf_header()).status_code == 401


def make_proxied_client(otter: OtterwikiServer, permissions: str) -> ApiClient:
    headers = {"name": "Rikki", "email": "r@example.org", "permissions": permissions}
    headers = {f"x-otterwiki-{name}": text for name, text in headers.items()}
    return ApiClient(
        otter, client=httpx.Client(base_url=otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, headers=headers)
    )


def test_every_proxy_permission_is_applied_separately(behind_proxy: OtterwikiServer) -> None:
    assert_refused(ApiClient(behind_proxy), {401})
    assert_refused(make_proxied_client(behind_proxy, "WRITE UPLOAD ADMIN"), {403})
    reader = make_proxied_client(behind_proxy, "READ")
    assert reader.get_json("pages")["total"] == 2
    assert_refused(reader, {403}, reads=False)
    writer = make_proxied_client(behind_proxy, "READ,WRITE")
    token = writer.make_csrf_header()
    assert writer("PUT", "pages/Otters", WRITE, **token).status_code == 201
    assert run_git(behind_proxy, "log", "-1", "--format=%an <%ae>") == "Rikki <r@example.org>"
    file = {"filename": "a.txt", "content": ""}
    assert writer("POST", "pages/Otters/attachments", file, **token).status_code == 403
    uploader = make_proxied_client(behind_proxy, "READ,UPLOAD")
    assert uploader("POST", "pages/Otters/attachments", file, **uploader.make_csrf_header()).status_code == 201
    assert uploader("DELETE", "pages/Otters", **uploader.make_csrf_header()).status_code == 403
    admin = make_proxied_client(behind_proxy, "READ,ADMIN")
    assert admin("POST", "reindex", **admin.make_csrf_header()).status_code in (202, 409)
    assert admin("PUT", "pages/No Writer", WRITE, **admin.make_csrf_header()).status_code == 403


def test_a_bearer_token_meant_for_the_proxy_is_ignored(behind_proxy: OtterwikiServer) -> None:
    assert (
        make_proxied_client(behind_proxy, "READ")
        .client.get("/api/v1/pages", headers={"Authorization": "Bearer eyJ"})
        .is_success
    )
    assert ApiClient(behind_proxy, "eyJhbGciOi")("GET", "pages").status_code == 401
    assert ApiClient(behind_proxy, SHARED_KEY)("PUT", "pages/By Program", WRITE).status_code == 201, (
        "no user is named by the proxy"
    )


KEY = {"Authorization": f"Bearer {SHARED_KEY}"}
MADE = {"PUT": {201}, "POST": {200, 201, 202, 409}}


def agents_tools(asker: ApiClient, **headers: str) -> tuple[int, set[str]]:
    """The MCP tools that a client is offered inside the wiki."""
    accepts = {"Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = asker("POST", "mcp", body, **accepts, **headers)
    tools = answer.json()["result"]["tools"] if answer.status_code == 200 else []
    return answer.status_code, {tool["name"] for tool in tools}


@pytest.mark.parametrize("permissions", ["", "WRITE,UPLOAD,ADMIN", "NOTHING"])
def test_the_shared_key_gives_nothing_to_a_user_without_proxy_permissions(
    behind_proxy: OtterwikiServer, permissions: str
) -> None:
    assert_refused(make_proxied_client(behind_proxy, permissions), {403}, **KEY)
    assert agents_tools(make_proxied_client(behind_proxy, permissions), **KEY) == (403, set())


def test_the_shared_key_gives_nothing_without_a_proxy_user(behind_proxy: OtterwikiServer) -> None:
    for name, text in {"permissions": "READ,WRITE,ADMIN", "name": "Rikki", "email": "r@example.org"}.items():
        assert_refused(ApiClient(behind_proxy, **{f"x-otterwiki-{name}": text}), {403}, **KEY)


def test_the_shared_key_gives_a_user_no_more_than_the_proxy_permissions(behind_proxy: OtterwikiServer) -> None:
    reader = make_proxied_client(behind_proxy, "READ")
    assert reader("GET", "pages", **KEY).status_code == 200
    assert_refused(reader, {403}, reads=False, **KEY)
    for path in ("backups", "keys"):
        assert reader("GET", path, **KEY).status_code == 403
    assert not {"write_page", "edit_page", "delete_page"} & agents_tools(reader, **KEY)[1]
    writer = make_proxied_client(behind_proxy, "READ,WRITE")
    assert writer("PUT", "pages/By Writer", WRITE, **KEY).status_code == 201
    assert "write_page" in agents_tools(writer, **KEY)[1]
    file = {"filename": "a.txt", "content": ""}
    for method, path, body in (*CHANGES[6:], ("POST", "pages/By Writer/attachments", file)):
        assert writer(method, path, body, **KEY).status_code == (202 if path == "wake" else 403), path
    uploader = make_proxied_client(behind_proxy, "READ,UPLOAD")
    assert uploader("POST", "pages/By Writer/attachments", file, **KEY).status_code == 201
    assert uploader("DELETE", "pages/By Writer", **KEY).status_code == 403
    admin = make_proxied_client(behind_proxy, "READ,ADMIN")
    assert admin("POST", "backup", **KEY).status_code in MADE["POST"]
    assert admin("GET", "backups", **KEY).status_code == 200
    assert admin("PUT", "pages/By Admin", WRITE, **KEY).status_code == 403
    assert admin("GET", "keys", **KEY).status_code == 403, "the shared key cannot manage keys"


def test_proxy_headers_do_not_change_a_keys_scope_without_a_trusted_proxy(
    private: OtterwikiServer,
) -> None:
    headers = {"x-otterwiki-name": "Rikki", "x-otterwiki-email": "r@example.org", "x-otterwiki-permissions": "READ"}
    assert ApiClient(private, SHARED_KEY, **headers)("PUT", "pages/By Program", WRITE).status_code == 201
    assert_refused(ApiClient(private, **(headers | {"x-otterwiki-permissions": "READ,WRITE,UPLOAD,ADMIN"})), {401})


def test_wrong_keys_block_neither_the_shared_key_nor_the_keys_of_a_wiki(private: OtterwikiServer) -> None:
    own = create_registry_key(private, Scope.READ)
    changed = own[:-1] + ("3" if own.endswith("2") else "2")
    guesses = [f"wrong{number}" for number in range(15)] + [SHARED_KEY + "x"] * 15 + [changed] * 15
    # A token comes back every two seconds, so the guesses arrive together.
    with ThreadPoolExecutor(15) as pool:
        answers = list(pool.map(lambda guess: ApiClient(private, guess)("GET", "pages"), guesses))
    assert {answer.status_code for answer in answers} == {401, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert ApiClient(private, SHARED_KEY)("GET", "pages").status_code == 200
    assert ApiClient(private, own)("GET", "pages").status_code == 200
    wait_until(lambda: ApiClient(private, "wrong again")("GET", "pages").status_code == 429)


def test_page_names_keep_their_case_where_the_wiki_retains_it(behind_proxy: OtterwikiServer) -> None:
    writer = make_proxied_client(behind_proxy, "READ,WRITE")
    assert "Reed Beds" in [page["path"] for page in writer.get_json("pages")["pages"]]
    response = writer("PUT", "pages/Banks/mossy Stone", WRITE, **writer.make_csrf_header())
    assert response.json()["path"] == "Banks/mossy Stone"
    assert (behind_proxy.repository / "Banks" / "mossy Stone.md").exists()
