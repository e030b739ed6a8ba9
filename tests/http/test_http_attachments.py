"""Files attached to pages, over HTTP: what otterwiki-mcp reads and sends, and what is refused."""

from base64 import b64decode, b64encode

from served_farm import Served

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
ALL = "/api/v1/pages/Coffee/attachments"


def attach(served: Served, name: str, data: bytes, key: str = "write", path: str = ALL, **more: str) -> int:
    document = {"filename": name, "content": b64encode(data).decode(), **more}
    return served.client(key).post(path, json=document).status_code


def test_a_file_is_attached_listed_read_and_deleted(own: Served) -> None:
    client = own.client("write")
    document = {"filename": "cup 1.png", "content": b64encode(PNG).decode(), "commit_message": "[mcp] A cup"}
    made = client.post(ALL, json=document)
    assert made.status_code == 201
    assert made.json() == {
        "filename": "cup 1.png",
        "path": "Coffee",
        "size": len(PNG),
        "mime_type": "image/png",
        "revision": own.alpha.head(),
        "created": True,
    }
    listed = client.get(ALL).json()
    assert (listed["path"], listed["total"]) == ("Coffee", 1)
    assert listed["attachments"][0].items() >= {"filename": "cup 1.png", "size": len(PNG)}.items()
    assert listed["attachments"][0]["last_modified"]
    read = client.get(f"{ALL}/cup%201.png").json()
    assert b64decode(read["content"]) == PNG
    assert (read["filename"], read["mime_type"], read["size"]) == ("cup 1.png", "image/png", len(PNG))
    assert own.alpha.git("log", "-1", "--format=%an|%s").decode().strip() == "alpha write|[mcp] A cup"
    gone = client.request("DELETE", f"{ALL}/cup%201.png", json={"commit_message": "[mcp] No cup"})
    assert gone.json().items() >= {"deleted": True, "filename": "cup 1.png"}.items()
    assert client.get(ALL).json()["total"] == 0
    assert client.get(f"{ALL}/cup%201.png").status_code == 404
    assert client.delete(f"{ALL}/cup%201.png").json()["code"] == "attachment-not-found"


def test_a_file_takes_the_place_of_one_of_its_name_unless_only_new_ones_are_wanted(own: Served) -> None:
    assert attach(own, "cup.txt", b"one") == 201
    assert attach(own, "cup.txt", b"two") == 200
    document = {"filename": "cup.txt", "content": ""}
    refused = own.client("write").post(ALL, json=document, headers={"If-None-Match": "*"})
    assert refused.status_code == 412
    assert own.client("read").get(f"{ALL}/cup.txt", params={"raw": "true"}).content == b"two"


def test_raw_bytes_are_to_be_saved_and_never_run(own: Served) -> None:
    unsaid = "application/octet-stream"
    for name, kind in (("a.png", "image/png"), ("a.html", unsaid), ("a.svg", unsaid), ("a.js", unsaid)):
        attach(own, name, b"<script>alert(1)</script>")
        raw = own.client("read").get(f"{ALL}/{name}", params={"raw": "true"})
        assert raw.content == b"<script>alert(1)</script>"
        assert raw.headers["content-type"] == kind
        assert raw.headers["content-disposition"].startswith("attachment;")
        assert raw.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in raw.headers["content-security-policy"]


def test_names_that_lead_elsewhere_and_what_is_no_base64_are_refused(own: Served) -> None:
    head = own.alpha.head()
    for name in ("../Home.md", "..", ".git", "../../.git/config", "x.md", "a/b", "a\\b", "a\n", " a", "x" * 256, ""):
        assert attach(own, name, b"x") == 422, name
    wrong = own.client("write").post(ALL, json={"filename": "a.txt", "content": "no base64!"})
    assert wrong.status_code == 422
    for path in ("..%2F..%2F.git%2Fconfig", "%2e%2e%2fHome.md", "..%5cHome.md", "%00", ".hidden"):
        for method in ("GET", "DELETE"):
            answer = own.client("write").request(method, f"{ALL}/{path}")
            assert answer.status_code in (404, 422), (method, path, answer.text)
    assert own.alpha.head() == head


def test_a_large_file_is_refused_and_of_ten_megabytes_taken(own: Served) -> None:
    assert attach(own, "large.bin", bytes(10 * 1024 * 1024 + 1)) == 413
    assert attach(own, "large.bin", bytes(10 * 1024 * 1024)) == 201
    assert own.client("read").get(ALL).json()["attachments"][0]["size"] == 10 * 1024 * 1024


def test_only_who_may_write_attaches_and_deletes(own: Served) -> None:
    attach(own, "a.txt", b"alphasecret")
    for key, status in ((None, 401), ("read", 403), ("other", 404)):
        client = own.client(key)
        assert client.post(ALL, json={"filename": "b.txt", "content": ""}).status_code == status
        assert client.delete(f"{ALL}/a.txt").status_code == status
        assert client.get(f"{ALL}/a.txt").status_code == (200 if key == "read" else status)
    assert own.client("read").get(ALL).json()["total"] == 1


def test_a_page_may_be_called_attachments_or_lie_below_one(own: Served) -> None:
    own.alpha.commit({"talk/attachments.md": "# Seals\n", "talk/attachments/wax.md": "# Wax\n"})
    client = own.client("write")
    assert client.get("/api/v1/pages/talk/attachments").json()["name"] == "Seals"
    assert client.get("/api/v1/pages/talk/attachments/wax").json()["name"] == "Wax"
    assert client.delete("/api/v1/pages/talk/attachments/wax").json()["deleted"] is True
    assert client.get("/api/v1/pages/talk/attachments/wax").status_code == 404
    assert client.get("/api/v1/pages/nowhere/attachments").json()["code"] == "page-not-found"
