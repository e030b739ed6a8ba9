"""Pages over HTTP: read, list, and write with the revision that was read."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.served_application import ServedApplication

PRINTER = "/api/v1/pages/Equipment/Printer"


def test_a_page_is_read_with_its_links_and_its_revision(shared: ServedApplication) -> None:
    page = shared.make_client("read").get("/api/v1/pages/Home").json()
    assert page["content"].startswith("# Home")
    assert page["links_to"] == ["Equipment/Printer", "Coffee"]
    assert page["frontmatter"] is None
    assert page["revision"] == page["last_commit"]["revision"] == shared.alpha.get_head()
    assert page["last_commit"]["author"] == "Ada"
    printer = shared.make_client("read").get(PRINTER).json()
    assert printer["linked_from"] == ["Home"]
    assert printer["frontmatter"]["tags"] == ["paper", "repair"]
    assert shared.make_client("read").get("/api/v1/pages/Equipment%2FPrinter.md").json() == printer


def test_pages_are_listed_with_filters_and_paging(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    every = client.get("/api/v1/pages").json()
    assert [page["path"] for page in every["pages"]] == ["Coffee", "Equipment/Printer", "Home"]
    assert every["total"] == 3
    assert every["pages"][0]["content_length"] > 3
    part = client.get("/api/v1/pages", params={"limit": 1, "offset": 1}).json()
    assert ([page["path"] for page in part["pages"]], part["total"]) == (["Equipment/Printer"], 3)
    tagged = client.get("/api/v1/pages", params={"tag": "kitchen", "updated_since": "2020-01-01"}).json()
    assert [page["path"] for page in tagged["pages"]] == ["Coffee"]
    assert client.get("/api/v1/pages", params={"updated_since": "soon"}).status_code == 422


def test_links_history_and_changelog_have_otterwikis_fields(shared: ServedApplication) -> None:
    client, head = shared.make_client("read"), shared.alpha.get_head()
    assert client.get("/api/v1/links").json()["edges"] == [
        {"source": "Home", "target": "Coffee"},
        {"source": "Home", "target": "Equipment/Printer"},
    ]
    assert client.get("/api/v1/links/Coffee").json()["linked_from"] == ["Home"]
    assert [page["path"] for page in client.get("/api/v1/orphans").json()["pages"]] == ["Home"]
    assert client.get("/api/v1/pages/Coffee/history").json()["history"][0]["revision"] == head
    entry = client.get("/api/v1/changelog", params={"limit": 1}).json()["entries"][0]
    assert set(entry["pages_affected"]) == {"Home", "Coffee", "Equipment/Printer"}


def test_a_new_page_is_a_commit_of_its_author_and_is_found_at_once(writable: ServedApplication) -> None:
    client = writable.make_client("write")
    response = client.put(
        "/api/v1/pages/Notes/Otter", json={"content": "# Otter\n\nwhiskers", "commit_message": "Begin"}
    )
    assert response.status_code == 201
    assert response.json()["created"]
    assert response.json()["revision"] == writable.alpha.get_head()
    assert writable.alpha.run_git("log", "-1", "--format=%an|%s").decode() == "alpha write|Begin"
    document = client.get("/api/v1/search", params={"q": "whiskers", "fresh": "true"}).json()
    assert document["results"][0]["path"] == "Notes/Otter"
    by = {"author": {"name": "Bob Ö", "email": "bob@example.org"}, "content": "x"}
    assert client.put("/api/v1/pages/B", json=by).status_code == 201
    assert writable.alpha.run_git("log", "-1", "--format=%an <%ae>").decode() == "Bob Ö <bob@example.org>"
    header = {"X-Author": "Eve <eve@example.org>"}
    assert client.put("/api/v1/pages/E", json={"content": "x"}, headers=header).status_code == 201
    assert writable.alpha.run_git("log", "-1", "--format=%an <%ae>").decode() == "Eve <eve@example.org>"


def test_an_existing_page_is_not_overwritten_by_accident(writable: ServedApplication) -> None:
    client, before = writable.make_client("write"), writable.alpha.get_head()
    page = client.get(PRINTER)
    blind = client.put(PRINTER, json={"content": "gone"})
    assert blind.status_code == 409
    assert blind.json()["current_revision"] == page.json()["revision"]
    assert "revision" in blind.json()["hint"]
    wrong = client.put(PRINTER, json={"content": "gone", "revision": "0" * 40})
    assert (wrong.status_code, wrong.json()["current_revision"]) == (409, page.json()["revision"])
    tagged = client.put(PRINTER, json={"content": "gone"}, headers={"If-Match": f'"{"0" * 40}"'})
    assert (tagged.status_code, tagged.json()["code"]) == (412, "precondition-failed")
    exists = client.put(PRINTER, json={"content": "x"}, headers={"If-None-Match": "*"})
    assert (exists.status_code, exists.json()["detail"]) == (412, "The page exists already.")
    weak = client.put(PRINTER, json={"content": "x"}, headers={"If-Match": f'W/"{page.json()["revision"]}"'})
    assert weak.status_code == 412
    assert client.put("/api/v1/pages/Absent", json={"content": "x"}, headers={"If-Match": "*"}).status_code == 412
    assert writable.alpha.get_head() == before
    assert client.get(PRINTER).json()["content"] == page.json()["content"]


@pytest.mark.parametrize("form", ["revision", "tag", "star", "short"])
def test_a_page_is_written_with_the_revision_that_was_read(writable: ServedApplication, form: str) -> None:
    client = writable.make_client("write")
    page = client.get(PRINTER)
    revision = page.json()["revision"]
    headers = {"tag": {"If-Match": page.headers["etag"]}, "star": {"If-Match": "*"}}.get(form, {})
    body = {"revision": {"revision": revision}, "short": {"revision": revision[:7].upper()}}.get(form, {})
    written = client.put(PRINTER, json={"content": "# Printer\n\nnew", **body}, headers=headers)
    assert written.status_code == 200
    assert not written.json()["created"]
    again = client.put(PRINTER, json={"content": "# Printer\n\nnewer"}, headers={"If-Match": written.headers["etag"]})
    assert again.status_code == 200
    old = client.get(PRINTER, params={"revision": revision}).json()
    assert old["content"] == page.json()["content"]


def test_one_of_two_concurrent_writers_gets_a_conflict(writable: ServedApplication) -> None:
    revision = writable.make_client("read").get(PRINTER).json()["revision"]

    def write(number: int) -> int:
        body = {"content": f"# Printer\n\nversion {number}", "revision": revision}
        return writable.make_client("write").put(PRINTER, json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(write, range(8)))
    assert codes == [200] + [409] * 7


def test_a_delete_or_rename_may_send_the_etag_that_was_read(writable: ServedApplication) -> None:
    client, stale = writable.make_client("write"), {"If-Match": f'"{"1" * 40}"'}
    client.get("/api/v1/search", params={"q": "x", "fresh": "true"})
    body, read = {"new_path": "Machines/Laser"}, {"If-Match": client.get(PRINTER).headers["etag"]}
    assert client.post(f"{PRINTER}/rename", json=body, headers=stale).status_code == 412
    renamed = client.post(f"{PRINTER}/rename", json=body, headers=read)
    assert renamed.json().items() >= {"old_path": "Equipment/Printer", "updated_pages": ["Home"], **body}.items()
    taken = client.post("/api/v1/pages/Home/rename", json=body, headers={"If-Match": "*"})
    assert (taken.status_code, taken.json()["code"]) == (409, "page-exists")
    laser = "/api/v1/pages/Machines/Laser"
    assert client.delete(laser, headers=stale).status_code == 412
    gone = client.request("DELETE", laser, json={"commit_message": "Away"}, headers={"If-Match": "*"})
    assert gone.json().items() >= {"deleted": True, "path": "Machines/Laser"}.items()


@pytest.mark.parametrize("path", ["../x", "a/../../x", ".git/config", "%00", "x%0Ay", "a//b", "x" * 300, "x" * 1200])
def test_an_invalid_path_writes_nothing(writable: ServedApplication, path: str) -> None:
    before = writable.alpha.get_head()
    answer = writable.make_client("write").put(f"/api/v1/pages/{path.replace('..', '%2E%2E')}", json={"content": "x"})
    assert 400 <= answer.status_code < 500
    assert writable.alpha.get_head() == before
    assert str(writable.alpha.path) not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"content": 5}',
        b'{"content": null}',
        b'{"content": "a\\u0000"}',
        b'{"content": "\\ud800"}',
        b'{"content": "x", "extra": 1}',
        b'{"content": "x", "revision": "abc"}',
        b'{"content": "x", "author": {"name": "A"}}',
        b'{"content": "x", "author": {"name": "A\\n", "email": "a@b"}}',
        b'{"content": "x", "author": {"name": "A", "email": "a@b>\\nX: y"}}',
        b'{"content": "\xff"}',
        b'"' + b"[" * 5000 + b'"',
        b"[" * 100_000,
    ],
    ids=range(15),
)
def test_an_invalid_body_writes_nothing(writable: ServedApplication, body: bytes) -> None:
    before = writable.alpha.get_head()
    headers = {"Content-Type": "application/json"}
    answer = writable.make_client("write").put("/api/v1/pages/X", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert writable.alpha.get_head() == before


@pytest.mark.parametrize("name", ["...", '"', "<>", " ", "a\x7f", "\u202e", "Ann O'Nym; rm -rf", "名前"])
def test_unusual_author_names_are_accepted_or_rejected_without_a_500(writable: ServedApplication, name: str) -> None:
    before, body = writable.alpha.get_head(), {"content": "x", "author": {"name": name, "email": "a@example.org"}}
    answer = writable.make_client("write").put("/api/v1/pages/Odd", json=body)
    assert answer.status_code in (201, 422)
    assert (writable.alpha.get_head() == before) == (answer.status_code == 422)


def test_a_key_with_an_unusual_label_can_write(writable: ServedApplication) -> None:
    for label in ("<script>", "...", "Bot <bot@example.org>", ""):
        response = writable.make_client("admin").post("/api/v1/keys", json={"scope": "write", "label": label})
        writable.tokens["odd"] = response.json()["token"]
        written = writable.make_client("odd").put(f"/api/v1/pages/By {len(label)}", json={"content": "x"})
        assert written.status_code == 201, (label, written.text)


def test_calls_of_otterwiki_mcp_return_the_fields_it_reads(writable: ServedApplication) -> None:
    client = writable.make_client("write")
    base = "/w/alpha/api/v1"
    listed = client.get(
        f"{base}/pages", params={"prefix": "Equipment", "category": "Equipment", "tag": "repair"}
    ).json()
    assert {"path", "category", "content_length", "last_updated"} <= listed["pages"][0].keys()
    document = client.get(f"{base}/search", params={"q": "printer"}).json()
    assert all(isinstance(hit["score"], float) and hit["snippet"] for hit in document["results"])
    near = client.get(f"{base}/semantic-search", params={"q": "printer", "n": 5}).json()
    assert near["mode"] == "semantic"
    assert all(isinstance(hit["distance"], float) for hit in near["results"])
    result = client.put(
        f"{base}/pages/Memo", json={"content": "# Memo\n\nfirst", "commit_message": "[mcp] Create"}
    ).json()
    assert result["created"]
    page = client.get(f"{base}/pages/Memo").json()
    edit = {"revision": page["revision"], "old_string": "first", "new_string": "second", "commit_message": "[mcp] Edit"}
    assert client.patch(f"{base}/pages/Memo", json=edit).json()["revision"] != page["revision"]
    blind = client.put(f"{base}/pages/Memo", json={"content": "third"})
    assert (blind.status_code, isinstance(blind.json()["error"], str)) == (409, True)
    moved = client.post(f"{base}/pages/Memo/rename", json={"new_path": "Notes/Memo", "commit_message": "[mcp] Move"})
    assert {"old_path", "new_path", "revision", "updated_pages"} <= moved.json().keys()
    history = client.get(f"{base}/pages/Notes/Memo/history", params={"limit": 2}).json()["history"]
    assert [len(history), isinstance(history[0]["author"], str)] == [2, True]
    assert {"links_to", "linked_from", "path"} <= client.get(f"{base}/links/Home").json().keys()
    changes = client.get(f"{base}/changelog", params={"limit": 20}).json()
    assert (changes["total"], changes["more"]) == (len(changes["entries"]), False)
    first = client.get(f"{base}/changelog", params={"limit": 1}).json()
    assert (first["entries"], first["total"], first["more"]) == (changes["entries"][:1], 1, True)
    rest = {"limit": changes["total"] - 1, "offset": 1}
    assert client.get(f"{base}/changelog", params=rest).json()["more"] is False
    assert changes["entries"][0]["pages_affected"]
    gone = client.request("DELETE", f"{base}/pages/Notes/Memo", json={"commit_message": "[mcp] Delete: Notes/Memo"})
    assert gone.json()["path"] == "Notes/Memo"


def test_a_draft_is_rendered_and_compared_but_not_saved(shared: ServedApplication) -> None:
    client, head = shared.make_client("write"), shared.alpha.get_head()
    text = "# Coffee\n\nSee [[Home]] <script>x</script>and [[Nowhere]].\n"
    draft = client.post("/api/v1/preview/Coffee", json={"content": text}).json()
    assert 'href="?page=Home"' in draft["html"]
    assert "<script" not in draft["html"]
    assert "<del>Descale the machine every month. alphacanary</del>" in draft["changes"]
    assert draft["revision"] == client.get("/api/v1/pages/Coffee").json()["revision"]
    as_opened = {"content": text, "revision": draft["revision"]}
    assert client.post("/api/v1/preview/Coffee", json=as_opened).json()["changes"] == draft["changes"]
    as_new = client.post("/api/v1/preview/Coffee", json={"content": text, "revision": ""}).json()
    assert "<del>" not in as_new["changes"]
    unknown = client.post("/api/v1/preview/Coffee", json={"content": text, "revision": "f" * 40})
    assert unknown.status_code == 404
    new = client.post("/api/v1/preview/Notes/Tea", json={"content": "# Tea\n"}).json()
    assert (new["name"], new["path"], new["revision"]) == ("Tea", "Notes/Tea", "")
    assert client.post("/api/v1/preview/x", json={"content": "a\0b"}).status_code == 422
    assert shared.alpha.get_head() == head
