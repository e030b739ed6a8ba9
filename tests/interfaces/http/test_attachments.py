"""Attachments over HTTP: the calls of otterwiki-mcp, and rejected input."""

from base64 import b64decode, b64encode

from tests.support.served_application import ServedApplication

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
ATTACHMENTS_URL = "/api/v1/pages/Coffee/attachments"


def upload(
    served: ServedApplication, name: str, data: bytes, key: str = "write", path: str = ATTACHMENTS_URL, **more: str
) -> int:
    document = {"filename": name, "content": b64encode(data).decode(), **more}
    return served.make_client(key).post(path, json=document).status_code


def test_a_file_is_attached_listed_read_and_deleted(writable: ServedApplication) -> None:
    client = writable.make_client("write")
    document = {"filename": "cup 1.png", "content": b64encode(PNG).decode(), "commit_message": "[mcp] A cup"}
    response = client.post(ATTACHMENTS_URL, json=document)
    assert response.status_code == 201
    assert response.json() == {
        "filename": "cup 1.png",
        "path": "Coffee",
        "size": len(PNG),
        "mime_type": "image/png",
        "revision": writable.alpha.get_head(),
        "created": True,
    }
    listed = client.get(ATTACHMENTS_URL).json()
    assert (listed["path"], listed["total"]) == ("Coffee", 1)
    assert listed["attachments"][0].items() >= {"filename": "cup 1.png", "size": len(PNG)}.items()
    assert listed["attachments"][0]["last_modified"]
    read = client.get(f"{ATTACHMENTS_URL}/cup%201.png").json()
    assert b64decode(read["content"]) == PNG
    assert (read["filename"], read["mime_type"], read["size"]) == ("cup 1.png", "image/png", len(PNG))
    assert writable.alpha.run_git("log", "-1", "--format=%an|%s").decode().strip() == "alpha write|[mcp] A cup"
    gone = client.request("DELETE", f"{ATTACHMENTS_URL}/cup%201.png", json={"commit_message": "[mcp] No cup"})
    assert gone.json().items() >= {"deleted": True, "filename": "cup 1.png"}.items()
    assert client.get(ATTACHMENTS_URL).json()["total"] == 0
    assert client.get(f"{ATTACHMENTS_URL}/cup%201.png").status_code == 404
    assert client.delete(f"{ATTACHMENTS_URL}/cup%201.png").json()["code"] == "attachment-not-found"


def test_an_upload_replaces_a_file_unless_if_none_match_is_sent(writable: ServedApplication) -> None:
    assert upload(writable, "cup.txt", b"one") == 201
    assert upload(writable, "cup.txt", b"two") == 200
    document = {"filename": "cup.txt", "content": ""}
    refused = writable.make_client("write").post(ATTACHMENTS_URL, json=document, headers={"If-None-Match": "*"})
    assert refused.status_code == 412
    assert writable.make_client("read").get(f"{ATTACHMENTS_URL}/cup.txt", params={"raw": "true"}).content == b"two"


def test_raw_attachments_are_downloads_and_never_executed(writable: ServedApplication) -> None:
    unsaid = "application/octet-stream"
    for name, kind in (("a.png", "image/png"), ("a.html", unsaid), ("a.svg", unsaid), ("a.js", unsaid)):
        upload(writable, name, b"<script>alert(1)</script>")
        raw = writable.make_client("read").get(f"{ATTACHMENTS_URL}/{name}", params={"raw": "true"})
        assert raw.content == b"<script>alert(1)</script>"
        assert raw.headers["content-type"] == kind
        assert raw.headers["content-disposition"].startswith("attachment;")
        assert raw.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in raw.headers["content-security-policy"]


def test_path_traversal_and_invalid_base64_are_rejected(writable: ServedApplication) -> None:
    head = writable.alpha.get_head()
    for name in ("../Home.md", "..", ".git", "../../.git/config", "x.md", "a/b", "a\\b", "a\n", " a", "x" * 256, ""):
        assert upload(writable, name, b"x") == 422, name
    wrong = writable.make_client("write").post(ATTACHMENTS_URL, json={"filename": "a.txt", "content": "no base64!"})
    assert wrong.status_code == 422
    for path in ("..%2F..%2F.git%2Fconfig", "%2e%2e%2fHome.md", "..%5cHome.md", "%00", ".hidden"):
        for method in ("GET", "DELETE"):
            answer = writable.make_client("write").request(method, f"{ATTACHMENTS_URL}/{path}")
            assert answer.status_code in (404, 422), (method, path, answer.text)
    assert writable.alpha.get_head() == head


def test_ten_megabytes_are_accepted_and_a_larger_file_is_rejected(writable: ServedApplication) -> None:
    assert upload(writable, "large.bin", bytes(10 * 1024 * 1024 + 1)) == 413
    assert upload(writable, "large.bin", bytes(10 * 1024 * 1024)) == 201
    assert writable.make_client("read").get(ATTACHMENTS_URL).json()["attachments"][0]["size"] == 10 * 1024 * 1024


def test_a_page_may_be_named_attachments_or_be_below_one(writable: ServedApplication) -> None:
    writable.alpha.commit({"talk/attachments.md": "# Seals\n", "talk/attachments/wax.md": "# Wax\n"})
    client = writable.make_client("write")
    assert client.get("/api/v1/pages/talk/attachments").json()["name"] == "Seals"
    assert client.get("/api/v1/pages/talk/attachments/wax").json()["name"] == "Wax"
    assert client.delete("/api/v1/pages/talk/attachments/wax").json()["deleted"] is True
    assert client.get("/api/v1/pages/talk/attachments/wax").status_code == 404
    assert client.get("/api/v1/pages/nowhere/attachments").json()["code"] == "page-not-found"
