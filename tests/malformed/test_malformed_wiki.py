"""A wiki with malformed pages: each is indexed or listed with a reason, and the healthy pages are not affected."""

import asyncio
import json
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.malformed.malformed_pages import LARGE_PAGES, MALFORMED_PAGES
from tests.malformed.malformed_wiki import HEALTHY_PAGES, MalformedWiki, commit_files, open_malformed_wiki
from tests.support.tiers import IS_FULL, choose
from wikiholt import models
from wikiholt.domain.search import SearchMode
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.cli.main import main
from wikiholt.search.query import has_word_or_symbol
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.keyword_query import parse_fields, parse_query
from wikiholt.text.page_names import get_page_path

REASONS = {"binary", "lfs-pointer", "too-costly", "too-large", "symlink", "submodule"}
PROBLEMS = {
    "nasty/lfs.md": "lfs-pointer",
    "nasty/png.md": "binary",
    "nasty/noise.md": "binary",
    "nasty/noise-with-head.md": "binary",
    "nasty/nothing-but-nul.md": "binary",
    "nasty/fifty-megabytes.md": "too-large",
    "link.md": "symlink",
    "module.md": "submodule",
}
READABLE = sorted({f"nasty/{name}" for name in MALFORMED_PAGES | LARGE_PAGES if f"nasty/{name}.md" not in PROBLEMS})
QUERIES = [
    "canary",
    "kettlecanary",
    '"in good health"',
    "-canary text",
    "שלום",
    "漢字",
    "👩‍👩‍👧‍👦",
    "'; DROP TABLE pages; --",
    "NEAR(a b)",
]


def get_paths(answer: list[dict[str, object]]) -> set[object]:
    return {hit["path"] for hit in answer}


def test_every_page_is_indexed_or_listed_with_its_reason(wiki: MalformedWiki) -> None:
    status = wiki.handle.get_status()
    problems = {problem.file: problem for problem in status.problems}
    listed = wiki.client.get("/api/v1/pages").json()
    indexed = {page["file"] for page in listed["pages"]}
    assert indexed | set(problems) == wiki.list_files()
    assert not indexed & set(problems)
    assert {problem.reason for problem in problems.values()} <= REASONS, [
        p for p in problems.values() if p.reason == "failed"
    ]
    assert all(problem.detail for problem in problems.values())
    assert {file: problems[file].reason for file in PROBLEMS if file in problems} == PROBLEMS
    assert problems["nasty/ten-megabyte-line.md"].reason == "too-costly", "it can be read, but not be indexed"


@pytest.mark.parametrize("mode", SearchMode)
def test_healthy_pages_stay_searchable(wiki: MalformedWiki, mode: SearchMode) -> None:
    for file in HEALTHY_PAGES:
        word = file.rpartition("/")[2].removesuffix(".md").lower()
        query = f"Here lives the {word}canary, in good health"
        hits = wiki.handle.search(SearchRequest(query, 5, mode)).hits
        assert get_page_path(file) in [hit.path for hit in hits], mode


@pytest.mark.parametrize("mode", SearchMode)
def test_any_text_of_a_malformed_page_can_be_searched_for(wiki: MalformedWiki, mode: SearchMode) -> None:
    texts = [data[len(data) // 3 :][:900].decode("utf-8", "replace") for data in MALFORMED_PAGES.values()]
    if not IS_FULL:  # each text in one of the modes
        texts = texts[list(SearchMode).index(mode) :: len(SearchMode)]
    for query in (*QUERIES, *texts):
        answer = wiki.client.get("/api/v1/search", params={"q": query, "mode": str(mode), "n": 20})
        refused = "\0" in query or not query.strip() or (mode is SearchMode.KEYWORD and not parse_query(query))
        refused = refused or has_invalid_operator(query) or not has_word_or_symbol(query)
        assert answer.status_code == (422 if refused else 200), (query, answer.text)
        if answer.status_code == 200:
            for hit in answer.json()["results"]:
                assert_storable(hit["snippet"])
                assert_storable(hit["name"])


def has_invalid_operator(query: str) -> bool:
    try:
        parse_fields(query)
    except InvalidQuery:
        return True
    return False


def assert_storable(text: str) -> None:
    """Text that every store and interface accepts."""
    text.encode("utf-8")
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in text if char not in "\n\t"), ascii(text)


@pytest.mark.parametrize("path", READABLE)
def test_a_malformed_page_can_be_read_previewed_linked_and_compared(wiki: MalformedWiki, path: str) -> None:
    read = wiki.client.get(f"/api/v1/pages/{quote(path)}")
    assert read.status_code == 200, read.text[:500]
    page = read.json()
    assert page["path"] == path
    assert len(read.content) < 8 * len((MALFORMED_PAGES | LARGE_PAGES)[path.removeprefix("nasty/")]) + 500_000
    preview = wiki.client.get(f"/api/v1/preview/{quote(path)}")
    assert preview.status_code == 200, preview.text[:500]
    assert not re.search(r"<(?:script|style|iframe|img|svg|form|input|meta|base)\b", preview.json()["html"])
    assert wiki.client.get(f"/api/v1/links/{quote(path)}").status_code == 200
    assert wiki.client.get("/api/v1/similar", params={"path": path}).status_code in (200, 404)


@pytest.mark.parametrize("file", PROBLEMS)
def test_a_problem_page_is_refused_with_a_message(wiki: MalformedWiki, file: str) -> None:
    for address in ("pages", "preview"):
        answer = wiki.client.get(f"/api/v1/{address}/{quote(get_page_path(file))}")
        assert answer.status_code in (404, 413, 422), answer.text
        assert answer.json()["error"]
        assert "passwd" not in answer.text
    assert wiki.client.get("/api/v1/similar", params={"path": get_page_path(file)}).status_code in (404, 422)


def test_every_page_in_the_list_can_be_read_by_its_path(wiki: MalformedWiki) -> None:
    pages = [page for page in wiki.client.get("/api/v1/pages").json()["pages"] if not page["path"].startswith("nasty/")]
    assert len(pages) > 40
    for page in pages:
        assert wiki.client.get("/read", params={"page": page["path"]}).status_code == 200, page
        if "\n" in page["path"] or "%" in page["path"]:  # no route accepts a line break; this client decodes a % twice
            continue
        path = quote(page["path"], safe="")
        for address in ("pages", "preview", "links"):
            answer = wiki.client.get(f"/api/v1/{address}/{path}")
            assert answer.status_code == 200, (address, page, answer.text)
            assert answer.json()["path"] == page["path"]
        if "\\" not in page["path"]:  # git looks up a history by name, and this name may represent other bytes
            assert wiki.client.get(f"/api/v1/pages/{path}/history").status_code == 200, page


def test_a_percent_sign_in_a_name_is_not_an_escape(wiki: MalformedWiki) -> None:
    async def send_request() -> httpx.Response:
        transport = httpx.ASGITransport(wiki.client.app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/api/v1/pages/" + quote("per%cent%20%2F", safe=""))

    with ThreadPoolExecutor(1) as pool:  # the shared browser fixture has an event loop in this thread
        answer = pool.submit(lambda: asyncio.run(send_request())).result()
    assert (answer.status_code, answer.json()["file"]) == (200, "per%cent%20%2F.md")


def test_all_pages_are_listed_linked_and_counted(wiki: MalformedWiki) -> None:
    for address in (
        "pages",
        "links",
        "orphans",
        "facets",
        "changelog",
        "status",
        "pages?tag=fit",
        "pages?prefix=Healthy",
    ):
        answer = wiki.client.get(f"/api/v1/{address}")
        assert answer.status_code == 200, address
        answer.content.decode("utf-8")
    tags = {tag["value"]: tag for tag in wiki.client.get("/api/v1/facets").json()["tags"]}
    assert "fit" in tags
    for tag in list(tags)[:50]:
        answer = wiki.client.get("/api/v1/pages", params={"tag": tag[:200]})
        assert answer.status_code == 200, tag


def test_server_rendered_pages_contain_no_markup_of_wiki_pages(wiki: MalformedWiki) -> None:
    for query in QUERIES:
        answer = wiki.client.get("/find", params={"q": query})
        assert answer.status_code == 200
        assert not re.search(r"<(?:script|iframe|img|svg|style)[^>]*>(?!</script>)[^<]*alert", answer.text)
    for path in ("<script>alert(1)<", "nasty/right-to-left", "nasty/duplicate-ids", "nasty/giant-table", "new\nline"):
        answer = wiki.client.get("/read", params={"page": path})
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text


def test_command_output_contains_no_control_characters(
    wiki: MalformedWiki, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not IS_FULL:  # the commands use the model of the index; with the real one they would rebuild it
        monkeypatch.setattr(models, "load_embedder", lambda *_, **__: FakeEmbedder())
        monkeypatch.setattr(models, "identify_model", lambda *_: FakeEmbedder())
    data = ["--data", str(wiki.data)]
    commands = [["status", "nasty"], ["status", "nasty", "--json"], ["list"]]
    commands += [
        ["search", "-w", "nasty", query, "--mode", "keyword"] for query in ("canary", "text", "odd name", "red")
    ]
    commands += [["search", "-w", "nasty", "odd name", "--mode", "keyword", "--json", "-n", "50"]]
    for command in commands:
        assert main([*data, *command]) in (0, 1), command
        captured = capsys.readouterr()
        shown = captured.out + captured.err
        assert shown.strip(), command
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", shown), command
        if "--json" in command:
            json.loads(captured.out)


def test_malformed_pages_can_be_changed_and_deleted(tmp_path: Path) -> None:
    small = {name: data for name, data in MALFORMED_PAGES.items() if len(data) < choose(30_000, 10_000)}
    names = [f"nasty/{name}.md".encode() for name in small]
    healthy = {name.encode(): text.encode() for name, text in HEALTHY_PAGES.items()}
    with open_malformed_wiki(tmp_path, dict(zip(names, small.values(), strict=True)) | healthy) as wiki:
        contents = list(small.values())
        for files in (
            dict(zip(names, contents[7:] + contents[:7], strict=True)),
            dict(zip(names[::2], contents[::2], strict=True)),
            {},
        ):
            commit_files(wiki.repository, files | healthy)
            wiki.handle.sync()
            indexed = {page["file"] for page in wiki.client.get("/api/v1/pages").json()["pages"]}
            problems = {problem.file for problem in wiki.handle.get_status().problems}
            assert indexed | problems == wiki.list_files()
            for file in HEALTHY_PAGES:
                word = file.rpartition("/")[2].removesuffix(".md").lower()
                hits = wiki.handle.search(SearchRequest(f"{word}canary", 5, SearchMode.KEYWORD)).hits
                assert [hit.path for hit in hits] == [get_page_path(file)]
