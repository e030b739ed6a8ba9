"""`wikiholt export` as a command: what is public, errors, repeatable bytes."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.exported_search import find_parts, read_export, read_part
from tests.support.git_repository import Repository

URL = "https://wiki.example.org/{path}"
SECRET = "zqsecretcanary"
PAGES: dict[str, str | bytes | None] = {
    "Home.md": "---\ntags: [start]\n---\n# Home\n\nThe heron stands by the pond.\n",
    "Garden/Pond.md": "# Pond\n\n## Depth\n\nThe pond is two metres deep, and herons fish in it.\n",
    "Staff/Salaries.md": f"---\nsearch: false\ntags: [{SECRET}]\n---\n# {SECRET}\n\nSalaries: {SECRET}\n",
    "Drafts/Plan.md": f"# Plan {SECRET}\n\nA draft about {SECRET}.\n",
}


@pytest.fixture
def wiki(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "wiki")
    repository.commit(PAGES)
    return repository


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


@pytest.fixture
def garden(run: CommandRunner, wiki: Repository) -> Repository:
    assert run("add", "garden", str(wiki.path)).code == 0
    assert run("set", "garden", "hide=Drafts/**").code == 0
    return wiki


def test_it_says_what_is_public_and_hidden_pages_are_not(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    place = tmp_path / "site"
    done = run("export", str(place), "-w", "garden", "--url", URL)
    assert (done.code, done.err) == (0, "")
    assert "Exported 2 pages of garden" in done.out
    assert (
        "Everyone who can read these files can read the titles, paths, tags and full texts of these pages." in done.out
    )
    assert "2 pages hidden from searches: not exported." in done.out
    content = read_export(place)
    assert b"two metres deep" in content
    assert b"https://wiki.example.org/Garden/Pond" in content
    for secret in (SECRET, "Salaries", "Drafts", str(tmp_path), "garden/data"):
        assert secret.encode() not in content, secret
    start = json.loads(read_part(find_parts(place) / "start.js"))
    assert [page[0] for page in start["pages"]] == ["Garden/Pond", "Home"]


def test_a_page_that_is_hidden_later_is_gone_from_the_next_export(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    place = tmp_path / "site"
    assert run("export", str(place), "-w", "garden", "--url", URL, "--quiet").code == 0
    assert run("set", "garden", "hide=Drafts/**,Garden/**").code == 0
    document = run("export", str(place), "-w", "garden", "--url", URL, "--json").parse()
    assert (document["pages"], document["hidden"], document["wiki"]) == (1, 3, "garden")
    assert b"metres" not in read_export(place)
    assert sum(1 for _ in place.glob("parts-*")) == 1


def test_the_same_index_gives_the_same_bytes(run: CommandRunner, garden: Repository, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run("export", str(tmp_path / name), "-w", "garden", "--url", URL).code == 0
    files = {file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file()}
    assert len(files) > 6
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(
    "url",
    [
        "https://wiki.example.org/",
        "javascript:alert('{path}')",
        " java\tscript:{path}",
        "{path}:{path}",
        "data:text/html,{path}",
        "https://wiki.example.org/{path}/{anchor}",
        "{file}:x",
    ],
)
def test_an_address_that_is_no_address_of_pages_is_refused(
    run: CommandRunner, garden: Repository, tmp_path: Path, url: str
) -> None:
    done = run("export", str(tmp_path / "site"), "-w", "garden", "--url", url)
    assert done.code == 2
    assert "--url" in done.err
    assert not (tmp_path / "site").exists()


def test_without_an_address_the_hint_says_how_to_give_one(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    done = run("export", str(tmp_path / "site"), "-w", "garden")
    assert done.code == 2
    assert "hint: Add --url 'https://wiki.example.org/{path}'" in done.err
    assert run("set", "garden", "url=https://own.example.org/{path}").code == 0
    assert run("export", str(tmp_path / "site"), "-w", "garden").code == 0
    assert b"https://own.example.org/Home" in read_export(tmp_path / "site")


def test_a_relative_address_may_name_the_file(run: CommandRunner, garden: Repository, tmp_path: Path) -> None:
    assert run("export", str(tmp_path / "site"), "-w", "garden", "--url", "{file}").code == 0
    assert b'"./Garden/Pond.md"' in read_export(tmp_path / "site")


def test_a_wiki_without_pages_is_an_error_and_keeps_the_earlier_export(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    place = tmp_path / "site"
    assert run("export", str(place), "-w", "garden", "--url", URL).code == 0
    assert run("set", "garden", "hide=**").code == 0
    done = run("export", str(place), "-w", "garden", "--url", URL)
    assert done.code == 7
    assert "no page that a search can find" in done.err
    assert b"two metres deep" in read_export(place)


def test_a_directory_with_other_files_is_refused_before_anything_is_read(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my page")
    done = run("export", str(tmp_path / "mine"), "-w", "garden", "--url", URL)
    assert done.code == 4
    assert "no export has made it" in done.err
    assert (tmp_path / "mine" / "index.html").read_text() == "my page"


def test_an_export_into_the_folder_that_is_the_wiki_is_refused(run: CommandRunner, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Home.md").write_text("# Home\n\nWelcome.\n")
    assert run("add", "notes", str(folder)).code == 0
    done = run("export", str(folder / "site"), "-w", "notes", "--url", URL)
    assert done.code == 4
    assert "inside the wiki" in done.err
