import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.errors import InvalidSource
from wikiholt.git.source import GitSource
from wikiholt.interfaces.cli import demo_command
from wikiholt.interfaces.cli.demo_command import DEMO_QUERIES, DemoQuery, write_demo_wikis
from wikiholt.interfaces.cli.output import TerminalStyle

SLUGS = ("allotment", "runbook")


@pytest.fixture(scope="module")
def wikis(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_demo_wikis(tmp_path_factory.mktemp("demo"))


def read_pages(repository: Path) -> dict[str, str]:
    source = GitSource(repository)
    tree = source.read_tree(source.get_head())
    blobs = source.read_blobs([entry.blob for entry in tree.values()], 1_000_000)
    return {file: (blob.data or b"").decode() for file, blob in zip(tree, blobs, strict=True)}


def read_heads(wikis: dict[str, Path]) -> dict[str, str]:
    return {slug: GitSource(path).get_head() for slug, path in wikis.items()}


def test_every_page_of_the_package_is_written(wikis: dict[str, Path]) -> None:
    for slug, path in wikis.items():
        shipped = Path(str(files(demo_command.__package__))) / "demo_wikis" / slug
        assert len(read_pages(path)) == len(list(shipped.rglob("*.md")))


def test_links_between_pages_resolve(wikis: dict[str, Path]) -> None:
    for path in wikis.values():
        pages = read_pages(path)
        targets = {
            link.split("]]")[0].split("|")[0]
            for text in pages.values()
            for link in text.split("[[")[1:]
            if "]]" in link
        }
        assert targets
        assert {f"{target}.md" for target in targets} <= set(pages)


def test_there_is_a_history_with_edits_and_a_rename(wikis: dict[str, Path]) -> None:
    source = GitSource(wikis["allotment"])
    assert [commit.author for commit in source.read_history("Growing/Crop rotation.md")] == [
        "Priya Nair",
        "Tomas Reiter",
    ]
    assert len(source.read_history("Home.md")) == 2
    dates = source.get_change_dates(["Home.md", "Rules/Bonfires.md"], source.get_head(), None)
    assert dates["Home.md"] > dates["Rules/Bonfires.md"]
    assert len(GitSource(wikis["runbook"]).read_history("Services/Ledger.md")) == 2


def test_writing_again_changes_nothing(tmp_path: Path) -> None:
    repositories = write_demo_wikis(tmp_path)
    before = read_heads(repositories)
    (repositories["allotment"] / "Home.md").write_text("edited by hand")
    shutil.rmtree(repositories["runbook"])
    assert write_demo_wikis(tmp_path) == repositories
    assert (repositories["allotment"] / "Home.md").read_text() == "edited by hand"
    assert read_heads(repositories) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allotment", "runbook"]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runbook").mkdir()
    (tmp_path / "runbook" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidSource, match="exists and is not a demo wiki"):
        write_demo_wikis(tmp_path)
    assert (tmp_path / "runbook" / "thesis.txt").read_text() == "years of work"


def test_commits_do_not_depend_on_git_settings(
    wikis: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[core]\nautocrlf = true\n[init]\ndefaultBranch = trunk\n[user]\nuseConfigOnly = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path / "no home"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert read_heads(write_demo_wikis(tmp_path / "demo")) == read_heads(wikis)


@pytest.mark.parametrize("demo", DEMO_QUERIES, ids=lambda demo: demo.text)
def test_demo_queries_name_existing_pages_that_pass_the_filter(wikis: dict[str, Path], demo: DemoQuery) -> None:
    assert f"{demo.expected_path}.md" in read_pages(wikis[demo.slug])
    assert demo.expected_path.startswith(demo.path)


@pytest.fixture
def runner(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    return CommandRunner(tmp_path / "my data", capsys, monkeypatch)


def test_the_demo_uses_the_named_data_directory(runner: CommandRunner, tmp_path: Path) -> None:
    code, out, _ = runner("demo")
    assert code == 0
    assert runner("list", "--slugs").out.split() == list(SLUGS)
    assert (tmp_path / "demo-data" / "repositories" / "runbook").is_dir()
    assert not (tmp_path / "demo-data" / "data").exists()
    assert f"--data '{tmp_path / 'my data'}' doctor" in out
    assert runner("demo").code == 0, "a second time"


def test_the_demo_does_not_take_over_a_wiki_of_the_user(runner: CommandRunner, tmp_path: Path) -> None:
    Repository(tmp_path / "own").commit({"Home.md": "# Home"})
    assert runner("add", "runbook", str(tmp_path / "own")).code == 0
    code, _, err = runner("demo")
    assert code == 4
    assert "runbook" in err


def test_the_printed_commands_work_from_where_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "wikiholt"
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", "")
    lines = demo_command._format_next_steps(Path("demo-data/data"), TerminalStyle(use_color=False))
    assert "    bin/wikiholt --data demo-data/data doctor" in lines
    after = lines[lines.index("    cd path/to/pages") + 1]
    assert after == f"    {program} search what you are looking for"
    assert any("any folder or git repository" in line for line in lines)
