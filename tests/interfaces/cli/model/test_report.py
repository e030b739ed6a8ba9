"""`wikiholt report` with the real model, while another process has the wiki open."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from tests.wikis.query_log.query_log_fixtures import PAGES
from wikiholt.interfaces.cli.main import main

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    wiki = Repository(place / "wiki")
    wiki.commit(PAGES)
    for slug in ("notes", "quiet", "mute"):
        assert main(["--data", str(place / "data"), "add", slug, str(wiki.path)]) == 0
    assert main(["--data", str(place / "data"), "sync", "notes", "--quiet"]) == 0
    for slug in ("notes", "quiet"):
        assert main(["--data", str(place / "data"), "set", slug, "log_queries=true"]) == 0
    for query in ("who feeds the hens", "Who feeds  the hens", "income tax of the moon base", HOSTILE):
        main(["--data", str(place / "data"), "search", "-w", "notes", query, "-n", "1"])
    main(["--data", str(place / "data"), "eval", "notes", "--mode", "keyword"])
    return place / "data"


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(data, capsys)


def test_the_text_report_lists_queries_queries_without_results_and_unfound_pages(run: CommandRunner) -> None:
    code, out, err = run("report", "notes", "--days", "7", "--limit", "3")
    assert (code, err) == (0, "")
    assert "4 searches for 3 queries; 4 by cli" in out
    frequent, unanswered = out.index("Most frequent"), out.index("\nWithout a result\n")
    assert frequent < out.index("Who feeds the hens") < unanswered < out.index("income tax", unanswered)
    assert "Pages never found: 2 of 3" in out
    assert "\x1b" not in out


def test_the_json_report_has_the_same_data(run: CommandRunner) -> None:
    code, out, _ = run("report", "notes", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["frequent"][0]["query"] == "Who feeds the hens"
    assert (document["frequent"][0]["count"], document["searches"], document["queries"]) == (2, 4, 3)
    assert document["pages"]["found_most"] == [{"path": "Rota", "count": 2}]
    assert document["p95_ms"] >= document["p50_ms"] > 0


class TagCollector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_html_report_is_one_file_and_escapes_queries(run: CommandRunner, tmp_path: Path) -> None:
    code, out, _ = run("report", "notes", "--html", str(tmp_path / "r.html"))
    assert code == 0
    assert f"Report: {tmp_path / 'r.html'}" in out
    page = (tmp_path / "r.html").read_text()
    tags = TagCollector()
    tags.feed(page)
    assert tags.seen == {
        *("html", "meta", "title", "style", "h1", "p", "b", "br", "div"),
        *("table", "caption", "tr", "th", "td"),
    }
    assert not tags.attributes & {"src", "href", "onerror"}
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def test_no_searches_no_log_and_bad_arguments_have_different_errors(run: CommandRunner, tmp_path: Path) -> None:
    code, out, _ = run("report", "quiet")
    assert (code, "No searches were logged" in out) == (0, True)
    assert "There is no index" in out
    code, out, err = run("report", "mute")
    assert (code, out) == (3, "")
    assert "hint: Enable it" in err
    assert run("report", "nosuch")[0] == 3
    for wrong in (("--days", "0"), ("--limit", "1001"), ("--limit", "-1")):
        code, _, err = run("report", "notes", *wrong)
        assert (code, "hint: use 1 to" in err) == (2, True)
    code, _, err = run("report", "notes", "--html", str(tmp_path / "no" / "r.html"))
    assert (code, "cannot be written" in err) == (7, True)
    assert json.loads(run("report", "notes", "--json")[1])["searches"] == 4, "no data was lost"


def test_the_query_log_is_deleted_on_request(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shutil.copytree(data, tmp_path / "data")
    run = CommandRunner(data, capsys)
    code, out, _ = run("report", "notes", "--clear")
    assert (code, out) == (0, "Deleted 4 logged searches of notes.\n")
    assert not [file for file in data.rglob("*.sqlite") if b"income tax" in file.read_bytes()]
    assert json.loads(run("report", "notes", "--clear", "--json")[1]) == {"wiki": "notes", "cleared": 0}
    assert run("report", "mute", "--clear")[0] == 3
