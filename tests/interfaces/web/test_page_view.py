"""The views that the server renders: a page to read, its history, files of the wiki, errors, and OpenSearch."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
MACHINE = (
    "# Machine\n\n![pump](machine/pump.svg) Hot water.\n\n## Clean\n\nRinse it.\n\n## Fill\n\nTo the line.\n\n"
    "## Repair\n\nAsk.\n"
)
PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\nThe [machine](Kitchen/Machine.md).\n",
    "Kitchen/Machine.md": "---\ntags: [hot]\n---\n" + MACHINE.replace("Hot", "Cold"),
    "Kitchen/machine/pump.svg": SVG,
    "Kitchen/Machine/notes.zip": "attached",
    "top.png": b"\x89PNG",
    "secret.py": "password = 1",
    "Kitchen/secret.zip": "of no page",
    ".hidden/pump.png": b"hidden",
}
HTML = {"Accept": "text/html,application/xhtml+xml"}


def open_test_application(place: Path) -> Application:
    settings = load_settings(place / "data", overrides={"limit.address_per_minute": 0})
    service = build_service(settings)
    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    for slug in ("alpha", "beta"):
        repository = Repository(place / slug)
        pages = {"Start.md" if file == "Home.md" else file: text for file, text in PAGES.items()}
        repository.commit({**pages, "Gone.md": "# Gone\n"})
        repository.commit({"Gone.md": None})
        repository.commit({"Start.md": None, "Home.md": PAGES["Home.md"]}, message="Rename")
        repository.commit({"Kitchen/Machine.md": "---\ntags: [hot]\n---\n" + MACHINE}, message="Water is hot")
        service.add(
            slug, str(repository.path), {"edit_url": "https://git.example.org/edit/{file}"} if slug == "alpha" else {}
        )
        service.get_handle(slug).sync()
    return open_application(settings, service=service)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    application = open_test_application(tmp_path_factory.mktemp("views"))
    yield application
    application.service.close()


@pytest.fixture
def client(application: Application) -> TestClient:
    return TestClient(create_app(application), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str]]:
    """Private wikis, of which beta is public, and a key that reads alpha."""
    application = open_test_application(tmp_path_factory.mktemp("closed"))
    wiki = application.service.registry.get("alpha")
    _, token = application.service.registry.keys.create(wiki.id, Scope.READ, "reader")
    application.service.configure("beta", {"public": "true"})
    yield TestClient(create_app(application), base_url="http://127.0.0.1"), token
    application.service.close()


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def test_a_page_has_contents_links_and_related_pages(client: TestClient) -> None:
    text = client.get("/w/alpha/read", params={"page": "Kitchen/Machine"}).text
    assert '<h1 id="machine">Machine</h1>' in text
    assert text.count("<h1") == 1
    assert re.findall(r'<li class="level2"><a href="#(\w+)">', text) == ["clean", "fill", "repair"]
    assert '<a href="browse?path=Kitchen">Kitchen</a>' in text
    assert '<img src="files/Kitchen/machine/pump.svg" alt="pump" loading="lazy">' in text
    assert '<a href="read?page=Home">Home</a>' in text
    assert 'href="history?page=Kitchen/Machine"' in text
    assert 'href="https://git.example.org/edit/Kitchen/Machine.md"' in text
    assert '<a href="files/Kitchen/Machine/notes.zip">notes.zip</a>' in text
    assert "edit/Kitchen" not in client.get("/w/beta/read", params={"page": "Kitchen/Machine"}).text


def test_headings_of_level_one_that_are_sections_are_not_the_title(tmp_path: Path) -> None:
    application = open_test_application(tmp_path)
    handle = application.service.get_handle("alpha")
    Repository(tmp_path / "alpha").commit({"Kitchen/Oven.md": "# Heat\n\nUp.\n\n# Cool\n\nDown.\n\n# Clean\n\nIt.\n"})
    handle.sync()
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    text = client.get("/w/alpha/read", params={"page": "Kitchen/Oven"}).text
    hits = client.get("/w/alpha/api/v1/search", params={"q": "title:oven"}).json()["results"]
    application.service.close()
    assert "<h1>Oven</h1>" in text
    assert re.findall(r'<h1 id="(\w+)">', text) == ["heat", "cool", "clean"]
    assert re.findall(r'<li class="level1"><a href="#(\w+)">', text) == ["heat", "cool", "clean"]
    assert [hit["name"] for hit in hits] == ["Oven"]


def test_a_page_without_text_says_so(tmp_path: Path) -> None:
    application = open_test_application(tmp_path)
    repository = Repository(tmp_path / "alpha")
    repository.commit({"Empty.md": "", "Title.md": "# Title\n"})
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    for page in ("Empty", "Title"):
        text = client.get("/w/alpha/read", params={"page": page}).text
        assert '<div class="page" dir="auto"><p class="hint">This page has no text.</p></div>' in text
    application.service.close()


def test_the_words_of_a_query_are_marked_but_function_words_are_not(client: TestClient) -> None:
    page = client.get("/w/alpha/read", params={"page": "Kitchen/Machine", "q": "rinsing to the <water>"}).text
    assert "<mark>Rinse</mark> it." in page
    assert "Hot <mark>water</mark>." in page
    assert "<p>To the line.</p>" in page
    html = client.get("/w/alpha/api/v1/preview/Kitchen/Machine", params={"q": "rinse"}).json()["html"]
    assert "<mark>Rinse</mark>" in html


def test_changes_are_shown_through_a_rename_and_of_a_deleted_page(client: TestClient) -> None:
    history = client.get("/w/alpha/history?page=Home").text
    renamed, created = re.findall(r'href="(diff\?page=Home&amp;revision=\w+)"', history)
    assert "The text of the page did not change" in client.get(f"/w/alpha/{unescape(renamed)}").text
    assert "<ins># Home</ins>" in client.get(f"/w/alpha/{unescape(created)}").text
    assert "<del># Gone</del>" in client.get("/w/alpha/diff?page=Gone").text


@pytest.mark.parametrize("view", ["read", "source"])
def test_a_view_of_a_former_name_redirects_to_the_page(client: TestClient, view: str) -> None:
    response = client.get(f"/w/alpha/{view}?page=Start&q=hot+water", follow_redirects=False)
    assert (response.status_code, response.headers["Location"]) == (302, "?page=Home&q=hot+water")
    assert client.get(f"/w/alpha/{view}?page=start").url.query == b"page=Home"


def test_the_source_is_plain_text(client: TestClient) -> None:
    answer = client.get("/w/alpha/source", params={"page": "Kitchen/Machine"})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.text.endswith(MACHINE)


def test_the_history_lists_commits_and_shows_their_changes(client: TestClient) -> None:
    history = client.get("/w/alpha/history", params={"page": "Kitchen/Machine"}).text
    first, second = re.findall(r'href="(diff\?page=Kitchen%2FMachine&amp;revision=\w{12})"', history)
    assert history.index("Water is hot") < history.index(second)
    changes = client.get(f"/w/alpha/{first.replace('&amp;', '&')}").text
    assert "<del>![pump](machine/pump.svg) Cold water.</del>" in changes
    assert "<ins>![pump](machine/pump.svg) Hot water.</ins>" in changes
    assert "<ins># Machine</ins>" in client.get(f"/w/alpha/{second.replace('&amp;', '&')}").text
    assert client.get("/w/alpha/diff?page=Kitchen/Machine&revision=0000000").status_code == 404
    assert client.get("/w/alpha/history?page=Nope").status_code == 404


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_an_image_is_served_without_anything_active(client: TestClient) -> None:
    answer = client.get("/w/alpha/files/Kitchen/machine/pump.svg")
    assert (answer.status_code, answer.text) == (200, SVG)
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "; sandbox;" in policy
    again = client.get("/w/alpha/files/Kitchen/machine/pump.svg", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/w/alpha/files/top.png").content == b"\x89PNG"


def test_other_files_are_downloads(client: TestClient) -> None:
    answer = client.get("/w/alpha/files/Kitchen/Machine/notes.zip")
    assert answer.text == "attached"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "nope.png",
            "secret.py",
            "Kitchen/secret.zip",
            ".hidden/pump.png",
            "Home.md",
            "Kitchen/Machine.md",
            ".git/config",
        ),
        *("../beta/top.png", "%2e%2e/beta/top.png", "Kitchen/%2e%2e/top.png", "Kitchen//top.png", "%00.png"),
    ],
)
def test_only_media_and_attachments_are_files_of_a_wiki(client: TestClient, path: str) -> None:
    assert client.get(f"/w/alpha/files/{path}").status_code in (404, 422)


def test_private_views_need_the_key(closed: tuple[TestClient, str]) -> None:
    client, token = closed
    paths = (
        "read?page=Home",
        "source?page=Home",
        "history?page=Home",
        "diff?page=Home",
        "files/top.png",
        "suggest?q=machine",
    )
    for path in paths:
        assert client.get(f"/w/alpha/{path}").status_code == 401, path
        assert client.get(f"/w/alpha/{path}", headers={"Authorization": f"Bearer {token}"}).status_code == 200, path
        assert client.get(f"/w/beta/{path}", headers={"Authorization": f"Bearer {token}"}).status_code == 403, path
        assert client.get(f"/w/beta/{path}").status_code == 200, path


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path", ["/nosuch", "/no/such/path", "/w/alpha/no/such", "/w/alpha/files/nope.png", "/w/nosuch/files/a.png"]
)
def test_a_browser_gets_errors_as_pages_with_a_way_back(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    back = re.search(r'<a class="button primary" href="([^"]+)"', answer.text)
    assert back
    assert client.get(str(answer.url.join(back[1]))).status_code == 200
    stylesheet = re.search(r'<link rel="stylesheet" href="([^"]+)"', answer.text)
    assert stylesheet
    assert client.get(str(answer.url.join(stylesheet[1]))).status_code == 200
    assert client.get(path).headers["content-type"] == "application/problem+json"


def test_the_api_answers_browsers_with_json(client: TestClient) -> None:
    for path in ("/api/v1/nosuch", "/w/alpha/api/v1/pages/Nope", "/static/0/nope.js"):
        assert client.get(path, headers=HTML).headers["content-type"] == "application/problem+json"


# ── OpenSearch ───────────────────────────────────────────────────────────────────────────────────


def test_the_opensearch_description_names_search_and_suggestions(client: TestClient) -> None:
    assert 'href="opensearch.xml"' in client.get("/w/alpha/").text
    answer = client.get("/w/alpha/opensearch.xml")
    assert answer.headers["content-type"].startswith("application/opensearchdescription+xml")
    assert 'template="http://127.0.0.1/w/alpha/?q={searchTerms}"' in answer.text
    assert 'template="http://127.0.0.1/w/alpha/suggest?q={searchTerms}"' in answer.text
    assert "<ShortName>&lt;b&gt;</ShortName>" in client.get("/w/<b>/opensearch.xml").text


def test_suggestions_have_the_form_that_browsers_read(client: TestClient) -> None:
    answer = client.get("/w/alpha/suggest", params={"q": "machine"})
    assert answer.headers["content-type"] == "application/x-suggestions+json"
    query, names, paths, urls = answer.json()
    assert (query, names[0], paths[0]) == ("machine", "Machine", "Kitchen/Machine")
    assert urls[0] == "http://127.0.0.1/w/alpha/read?page=Kitchen/Machine&q=machine"
    assert client.get("/w/alpha/suggest?q=mach").json()[1] == ["Machine"], "a title with the unfinished word"
    assert client.get("/w/alpha/suggest").status_code == 422


# ── several wikis, and facets of a query ─────────────────────────────────────────────────────────


def test_named_wikis_that_are_readable_without_a_key_are_searched_together(
    client: TestClient, closed: tuple[TestClient, str]
) -> None:
    found = client.get("/api/v1/search", params={"q": "machine", "wiki": ["alpha", "beta"]}).json()
    assert {hit["wiki"] for hit in found["results"]} == {"alpha", "beta"}
    private, token = closed
    assert private.get("/api/v1/search", params={"q": "machine", "wiki": ["alpha", "beta"]}).status_code == 401
    assert private.get("/api/v1/search", params={"q": "machine", "wiki": ["beta", "nosuch"]}).status_code == 401
    headers = {"Authorization": f"Bearer {token}"}
    refused = private.get("/api/v1/search", params={"q": "machine", "wiki": ["alpha", "beta"]}, headers=headers)
    assert refused.status_code == 403


def test_facets_follow_the_query_and_the_folder(client: TestClient) -> None:
    def get_facets(**params: str) -> dict[str, list[tuple[str, int]]]:
        document = client.get("/w/alpha/api/v1/facets", params=params).json()
        names = ("tags", "folders")
        return {name: [(facet["value"], facet["count"]) for facet in document[name]] for name in names}

    assert get_facets()["folders"] == [("Kitchen", 1)]
    assert get_facets(path="Kitchen")["folders"] == []
    assert get_facets(q="rinse", mode="keyword") == {"tags": [("hot", 1)], "folders": [("Kitchen", 1)]}
    assert get_facets(q="nosuchword", mode="keyword") == {"tags": [], "folders": []}


@pytest.mark.parametrize(
    ("path", "category", "is_shown"),
    [
        ("Kitchen/Machine", "Kitchen", False),
        ("House/Kitchen/Machine", "kitchen", False),
        ("House/Kitchen/Machine", "House", True),
        ("Kitchen/Machine", "Appliances", True),
        ("Machine", "Machine", True),
    ],
)
def test_a_category_with_the_name_of_the_folder_is_shown_once(
    tmp_path: Path, path: str, category: str, is_shown: bool
) -> None:
    settings = load_settings(tmp_path / "data", overrides={"limit.address_per_minute": 0})
    service = build_service(settings)
    repository = Repository(tmp_path / "wiki")
    repository.commit({f"{path}.md": f"---\ncategory: {category}\n---\n# Pump\n\nHot water.\n"})
    service.add("wiki", str(repository.path), {})
    application = open_application(settings, service=service)
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    page = client.get("/w/wiki/read", params={"page": path}, headers=HTML).text
    application.service.close()
    facts = re.search(r'<p class="facts">(.*?)</p>', page, re.DOTALL)
    assert facts is not None
    assert (f"<span>{category}</span>" in facts[1]) is is_shown


# ── browsing ─────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_lists_its_folders_and_pages(client: TestClient) -> None:
    text = client.get("/w/alpha/browse").text
    assert '<a href="browse?path=Kitchen">Kitchen</a><span class="number">1</span>' in text
    assert '<a href="read?page=Home">Home</a>' in text
    inside = client.get("/w/alpha/browse", params={"path": "/Kitchen/"}).text
    assert '<a href="browse">All pages</a>' in inside
    assert '<a href="read?page=Kitchen/Machine">Machine</a>' in inside


def test_pages_are_listed_by_tag_and_property(client: TestClient) -> None:
    tags = client.get("/w/alpha/browse?tags").text
    assert '<a href="browse?tag=hot">hot</a><span class="number">1</span>' in tags
    assert "read?page=Kitchen/Machine" in client.get("/w/alpha/browse", params={"tag": "HOT"}).text
    assert '<a href="browse?property=tags">tags</a>' in client.get("/w/alpha/browse?properties").text
    values = client.get("/w/alpha/browse", params={"property": "tags"}).text
    assert '<a href="browse?property=tags&amp;value=hot">hot</a>' in values
    found = client.get("/w/alpha/browse", params={"property": "tags", "value": "hot"}).text
    assert "read?page=Kitchen/Machine" in found


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("path=Cellar", 404, "There is no folder Cellar with a page in it."),
        ("property=nothing", 200, "No page has the property nothing."),
        ("tag=<b>", 200, "Pages with the tag “&lt;b&gt;”"),
        (f"tag={'x' * 600}", 422, "hint"),
    ],
)
def test_a_folder_or_value_that_is_missing_is_named(client: TestClient, query: str, status: int, text: str) -> None:
    answer = client.get(f"/w/alpha/browse?{query}", headers=HTML)
    assert answer.status_code == status
    assert text in answer.text


def test_browsing_needs_access_to_the_wiki(closed: tuple[TestClient, str]) -> None:
    client, token = closed
    assert client.get("/w/alpha/browse", headers=HTML).status_code == 401
    assert "Kitchen" in client.get("/w/alpha/browse", headers=HTML | {"Authorization": f"Bearer {token}"}).text
    assert client.get("/w/gamma/browse", headers=HTML).status_code in (401, 404)


def test_a_page_leads_to_those_beside_it(tmp_path: Path) -> None:
    application = open_test_application(tmp_path)
    names = ("2-setup", "10-faq", "README", "1-start")
    Repository(tmp_path / "alpha").commit({f"Guide/{name}.md": f"Text of {name}.\n" for name in names})
    application.service.get_handle("alpha").sync()
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    text = client.get("/w/alpha/read", params={"page": "Guide/2-setup"}).text
    application.service.close()
    tree = text[text.index('<nav class="tree"') : text.index("</nav>", text.index('<nav class="tree"'))]
    assert re.findall(r"read\?page=Guide/([\w-]+)", tree) == ["README", "1-start", "2-setup", "10-faq"]
    assert 'href="read?page=Guide/2-setup" aria-current=page' in tree
    assert '<a rel="prev" href="read?page=Guide/1-start"><small>Previous</small>' in text
    assert '<a rel="next" href="read?page=Guide/10-faq"><small>Next</small>' in text


def test_a_folder_with_nothing_but_its_index_page_is_listed_as_a_page(tmp_path: Path) -> None:
    application = open_test_application(tmp_path)
    files = ("index", "roles/index", "roles/tree/index", "roles/alert/index", "roles/button/index", "roles/button/x")
    Repository(tmp_path / "alpha").commit({f"{name}.md": f"Text of {name}.\n" for name in files})
    application.service.get_handle("alpha").sync()
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    folder = client.get("/w/alpha/browse?path=roles").text
    text = client.get("/w/alpha/read", params={"page": "roles/alert/index"}).text
    application.service.close()
    assert re.findall(r'class="listing">.*', folder)[0].count("<li>") == 3
    assert re.findall(r"browse\?path=([\w/]+)", folder) == ["roles/button"]
    tree = text[text.index('<nav class="tree"') : text.index("</nav>", text.index('<nav class="tree"'))]
    assert re.findall(r"read\?page=([\w/]+)", tree) == ["roles/index", "roles/alert/index", "roles/tree/index"]
    assert '<a rel="next" href="read?page=roles/tree/index">' in text


def test_the_tree_shows_the_pages_around_the_current_one(tmp_path: Path) -> None:
    application = open_test_application(tmp_path)
    Repository(tmp_path / "alpha").commit({f"Log/day-{day}.md": f"Day {day}.\n" for day in range(150)})
    application.service.get_handle("alpha").sync()
    client = TestClient(create_app(application), base_url="http://127.0.0.1")
    shown = {}
    for day in (0, 75, 149):
        text = client.get("/w/alpha/read", params={"page": f"Log/day-{day}"}).text
        tree = text[text.index('<nav class="tree"') : text.index("</nav>", text.index('<nav class="tree"'))]
        shown[day] = [int(number) for number in re.findall(r"read\?page=Log/day-(\d+)", tree)]
        assert '<a href="browse?path=Log">90 more pages</a>' in tree
    application.service.close()
    assert [(days[0], days[-1], len(days)) for days in shown.values()] == [(0, 59, 60), (45, 104, 60), (90, 149, 60)]


def test_a_value_with_nul_is_refused_and_no_damage(client: TestClient) -> None:
    answer = client.get("/w/alpha/browse?property=%00&value=x", headers=HTML)
    assert answer.status_code == 422
    assert "NUL" in answer.text
