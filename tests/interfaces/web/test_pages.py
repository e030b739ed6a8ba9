"""The HTML pages: content, headers, and what they must not reveal."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.git_repository import Repository
from tests.support.paths import SOURCES
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import Confidence, SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.web.page_frame import CSP, load_static_files
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle

PAGES = {
    "Home.md": "# Home\n\n[Guide](Guide.md) and [[Guide#Part two]] and [[Nowhere]]. <script>alert(1)</script>\n",
    "Guide.md": "---\ntags: [help]\ncategory: docs\n---\n# Guide\n\nHow to begin.\n\n## Part two\n\nHow to go <on>.\n",
    "deep/Ümlaut & more.md": "# Odd name\n\nBack to [[Home]].\n",
}
STATIC = SOURCES / "wikiholt" / "interfaces" / "web" / "static"


def open_test_application(place: Path, slugs: tuple[str, ...]) -> Application:
    chosen = load_settings(place / "data", overrides={"limit.address_per_minute": 0})
    service = build_service(chosen)
    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    for slug in slugs:
        repository = Repository(place / slug)
        repository.commit(dict(PAGES))
        service.add(slug, str(repository.path), {})
        service.get_handle(slug).sync()
    return open_application(chosen, service=service)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    application = open_test_application(tmp_path_factory.mktemp("pages"), ("alpha", "secret"))
    yield application
    application.service.close()


@pytest.fixture
def client(application: Application) -> TestClient:
    return TestClient(create_app(application), base_url="http://127.0.0.1")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[TestClient]:
    """Wikis that are private because a key exists."""
    application = open_test_application(tmp_path, ("alpha", "secret"))
    application.service.registry.keys.create(None, Scope.ADMIN, "operator")
    yield TestClient(create_app(application), base_url="http://127.0.0.1")
    application.service.close()


@pytest.mark.parametrize("path", ["/", "/status", "/w/alpha/", "/w/alpha/status", "/w/alpha/find?q=guide"])
def test_pages_are_html_under_a_strict_policy_without_anything_inline(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "set-cookie" not in answer.headers
    assert not re.search(r"<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son\w+=|javascript:", answer.text)
    assert not re.search(r"(?:href|src|action)=\"?(?:https?:)?//", answer.text), "nothing external"


def test_an_address_with_a_preview_has_its_layout_from_the_start(client: TestClient) -> None:
    assert '<body class="reading">' in client.get("/w/alpha/?page=Home").text
    assert '<body class="">' in client.get("/w/alpha/?q=page").text


def test_the_content_security_policy_allows_only_own_files() -> None:
    parts = dict(part.split(" ", 1) for part in CSP.split("; "))
    assert parts["default-src"] == "'none'"
    assert parts["script-src"] == parts["style-src"] == parts["connect-src"] == "'self'"
    assert parts["img-src"] == "'self' data: blob:"
    assert "unsafe" not in CSP


@pytest.mark.parametrize("base", ["/", "/w/alpha/"])
def test_every_file_of_a_page_exists_and_is_cached_forever(client: TestClient, base: str) -> None:
    names = re.findall(r'(?:href|src)="(static/[^"]+)"', client.get(base).text)
    assert len(names) > 5
    for name in names:
        answer = client.get(base + name)
        assert answer.status_code == 200, name
        assert "immutable" in answer.headers["cache-control"]
        assert len(answer.content) > 50
    old = client.get(f"{base}static/0000/search.js")
    assert old.headers["cache-control"] == "no-store"


def test_every_module_that_is_imported_is_served_and_preloaded(client: TestClient) -> None:
    served = load_static_files().files
    for name, asset in served.items():
        for wanted in re.findall(rb'from "\./([\w.]+)"', asset.data):
            assert wanted.decode() in served, f"{name} imports {wanted!r}"
    for path, entry in (("/w/alpha/", "search.js"), ("/", "wikis.js"), ("/w/alpha/status", "status.js")):
        preloaded = set(re.findall(r'modulepreload" href="static/\w+/([\w.]+)"', client.get(path).text))
        needed, waiting = set(), [entry]
        while waiting:
            for module in re.findall(rb'from "\./([\w.]+)"', served[waiting.pop()].data):
                if module.decode() not in needed:
                    needed.add(module.decode())
                    waiting.append(module.decode())
        assert preloaded == needed


def test_scripts_set_html_in_one_place_only_and_load_nothing_external() -> None:
    scripts = {file.name: file.read_text(encoding="utf-8") for file in STATIC.glob("*.js")}
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|parseFromString|document\.write|\beval\(|new Function"
        r"|createContextualFragment"
    )
    assert {name: re.findall(sinks, text) for name, text in scripts.items() if re.search(sinks, text)} == {
        "trusted_html.js": ["parseFromString"],
        "diagram_frame.js": ["innerHTML"],  # in a frame without an origin
    }
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(|@import", text), file.name


@pytest.mark.parametrize(
    "name", ["nope.js", "layout.html", "..%2frender.py", "%2e%2e/render.py", "__init__.py", "style.css%00", "STYLE.CSS"]
)
def test_nothing_but_the_pages_own_files_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/static/{load_static_files().version}/{name}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not-found"


@pytest.mark.parametrize(
    "slug", ["<script>", 'a"onload=x', "%22%3E%3Cimg", "..", "%2e%2e", "A" * 300, "ünïcode", "%00"]
)
def test_an_invalid_slug_is_escaped_on_the_page(client: TestClient, slug: str) -> None:
    answer = client.get(f"/w/{slug}/")
    assert answer.status_code in (200, 404, 422)
    assert "<script>" not in answer.text
    assert "<img" not in answer.text
    assert 'onload=x"' not in answer.text.replace("&quot;", "'")


# ── the preview ──────────────────────────────────────────────────────────────────────────────────


def get_preview(client: TestClient, path: str, slug: str = "alpha") -> Any:
    answer = client.get(f"/w/{slug}/api/v1/preview/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_preview_has_clean_html_headings_and_backlinks(client: TestClient) -> None:
    preview = get_preview(client, "Guide")
    assert preview["name"] == "Guide"
    assert preview["tags"] == ["help"]
    assert preview["category"] == "docs"
    assert [heading["anchor"] for heading in preview["headings"]] == ["guide", "part-two"]
    assert '<h2 id="part-two">Part two</h2>' in preview["html"]
    assert preview["linked_from"] == [{"path": "Home", "name": "Home"}]
    assert len(preview["revision"]) == 40


def test_links_of_a_preview_are_those_of_the_index(client: TestClient) -> None:
    html = get_preview(client, "Home")["html"]
    assert 'href="?page=Guide"' in html
    assert 'href="?page=Guide#Part%20two"' in html
    assert ">Nowhere</a>" in html
    assert "Nowhere?" not in html
    assert "script" not in html
    assert 'href="?page=Home"' in get_preview(client, "deep/Ümlaut & more")["html"]


def test_a_preview_of_a_missing_page_is_not_found(client: TestClient) -> None:
    for path in ("Nope", "../secret/Home", "Home/../../secret", ".git/config", "%00"):
        answer = client.get(f"/w/alpha/api/v1/preview/{path}")
        assert answer.status_code in (404, 422), path
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/w/alpha/api/v1/preview/Home", params={"x": "1"}).status_code == 422


def test_a_preview_requires_the_key_of_its_wiki(closed: TestClient) -> None:
    for slug in ("alpha", "secret", "no-such-wiki"):
        answer = closed.get(f"/w/{slug}/api/v1/preview/Home")
        assert answer.status_code == 401
        assert "Guide" not in answer.text


# ── without script ───────────────────────────────────────────────────────────────────────────────


def test_results_without_script_are_escaped_and_link_to_pages(client: TestClient) -> None:
    text = client.get("/w/alpha/find", params={"q": 'go <on> "now"', "mode": "keyword"}).text
    assert 'value="go &lt;on&gt; &quot;now&quot;"' in text
    assert "<on>" not in text
    page = client.get("/w/alpha/find", params={"q": "guide begin"}).text
    assert 'href="read?page=Guide' in page
    assert "<mark>" in page


def test_results_without_script_fold_less_certain_pages(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    search = WikiHandle.search

    def search_with(confidences: Sequence[Confidence]) -> str:
        def answer(*given: Any, **named: Any) -> SearchResult:
            result = search(*given, **named)
            hits = (replace(result.hits[0], path=c.value, confidence=c) for c in confidences)
            return replace(result, hits=tuple(hits))

        monkeypatch.setattr(WikiHandle, "search", answer)
        return client.get("/w/alpha/find", params={"q": "guide"}).text

    text = search_with([Confidence.HIGH, Confidence.LOW])
    assert text.count('class="card high"') == text.count('class="card folded low"') == 1
    assert "1 less likely page<" in text
    assert "less likely" not in search_with([Confidence.LOW])


def test_results_without_script_name_the_folder_and_say_that_nothing_is_found(client: TestClient) -> None:
    text = client.get("/w/alpha/find", params={"q": "odd name"}).text
    assert '<p class="place">deep</p>' in text
    nothing = client.get("/w/alpha/find", params={"q": '"zzqq blorp"', "mode": "keyword"}).text
    assert "Nothing found." in nothing
    assert "clearly relevant" not in nothing


def test_a_missing_page_leads_to_a_search_for_its_name(client: TestClient) -> None:
    text = client.get("/w/alpha/read", params={"page": "deep/Odd & old"}).text
    assert 'href="./?q=Odd+%26+old"' in text
    assert "The page path is empty." in client.get("/w/alpha/read").text


def test_a_page_without_script_is_readable(client: TestClient) -> None:
    text = client.get("/w/alpha/read", params={"page": "Guide"}).text
    assert '<h2 id="part-two">' in text
    assert "<script>" not in text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("find", 422),
        ("find?q=", 422),
        ("find?q=%00", 422),
        ("find?q=a&mode=magic", 200),
        ("read?page=Nope", 404),
        ("read", 422),
    ],
)
def test_noscript_errors_are_shown_on_a_page(client: TestClient, path: str, status: int) -> None:
    answer = client.get(f"/w/alpha/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert ("message problem" in answer.text) == (status != 200)


def test_noscript_pages_show_nothing_of_private_wikis(closed: TestClient) -> None:
    for path in ("find?q=guide", "read?page=Home"):
        there, nowhere = closed.get(f"/w/secret/{path}"), closed.get(f"/w/no-such/{path}")
        assert there.status_code == nowhere.status_code == 401
        assert there.text == nowhere.text.replace("no-such", "secret")
    start = closed.get("/")
    assert start.status_code == 200
    assert "secret" not in start.text


def test_the_root_is_the_search_page_where_there_is_one_wiki_or_the_host_names_one(
    tmp_path: Path, application: Application
) -> None:
    only = open_test_application(tmp_path, ("alpha",))
    client = TestClient(create_app(only), base_url="http://127.0.0.1")
    assert 'data-view="search"' in client.get("/").text
    assert 'data-view="status"' in client.get("/status").text
    assert client.get("/api/v1/preview/Guide").json()["name"] == "Guide"
    assert 'href="read?page=Guide' in client.get("/find?q=guide").text
    only.service.configure("alpha", {"hosts": "alpha.example.org", "public": "true"})
    hosted = TestClient(create_app(only), base_url="http://alpha.example.org")
    assert 'data-view="search"' in hosted.get("/").text
    only.service.close()
    many = TestClient(create_app(application), base_url="http://127.0.0.1")
    assert 'data-view="wikis"' in many.get("/").text
    assert 'data-view="statuses"' in many.get("/status").text


def test_a_private_wiki_and_a_missing_one_have_the_same_page(closed: TestClient) -> None:
    for path in ("", "status"):
        there, nowhere = closed.get(f"/w/secret/{path}"), closed.get(f"/w/no-such/{path}")
        assert there.status_code == nowhere.status_code == 200
        assert there.text == nowhere.text.replace("no-such", "secret")
