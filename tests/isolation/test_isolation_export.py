"""An export has the words of one wiki only, in every place where a wiki can have a word."""

from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.isolation.canaries import CanaryWiki, find_codes
from tests.support.exported_search import find_parts, read_export

WIKI_COUNT = 4


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


def test_no_export_has_a_word_of_another_wiki(run: CommandRunner, tmp_path: Path) -> None:
    wikis = [CanaryWiki(tmp_path / "r", number) for number in range(WIKI_COUNT)]
    for wiki in wikis:
        assert run("add", wiki.slug, str(wiki.repository.path)).code == 0
    for number, wiki in enumerate(wikis):
        place = tmp_path / f"site-{number}"
        assert run("export", str(place), "-w", wiki.slug, "--url", "https://x.example/{path}").code == 0
        assert find_codes(read_export(place).decode("utf-8", "replace")) == {wiki.code}
        names = " ".join(str(file.relative_to(tmp_path)) for file in find_parts(place).iterdir())
        assert find_codes(names) == set()


def test_an_export_over_that_of_another_wiki_leaves_nothing_of_it(run: CommandRunner, tmp_path: Path) -> None:
    wikis = [CanaryWiki(tmp_path / "r", number) for number in range(2)]
    for wiki in wikis:
        assert run("add", wiki.slug, str(wiki.repository.path)).code == 0
        assert run("export", str(tmp_path / "site"), "-w", wiki.slug, "--url", "https://x.example/{path}").code == 0
    assert find_codes(read_export(tmp_path / "site").decode("utf-8", "replace")) == {wikis[1].code}
    assert len(list((tmp_path / "site").glob("parts-*"))) == 1
