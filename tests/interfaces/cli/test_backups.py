"""`wikiholt backup` and `wikiholt restore`, as text and as JSON."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_repository import Repository
from wikiholt.app import bootstrap
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.schemas.common import parse_until
from wikiholt.testing import FakeEmbedder

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    embedder = FakeEmbedder()
    monkeypatch.setattr(bootstrap, "make_embedder_loader", lambda _: lambda: embedder)

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["--data", str(tmp_path / "data"), *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def garden(run: Run, tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond."})
    assert run("add", "garden", str(repository.path))[0] == 0
    assert run("sync", "garden")[0] == 0
    return repository


def parse_document(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out)


def test_everything_is_backed_up_listed_and_restored(run: Run, garden: Repository) -> None:
    code, out, err = run("backup")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == ["✓ garden", "✓ the registry"]
    assert f"1 page, at {garden.get_head()[:10]}  (asked)" in out
    code, out, err = run("restore", "--list")
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["garden", "the registry"]
    code, out, err = run("restore", "garden")
    assert (code, err) == (0, "")
    assert "✓ garden: restored" in out
    assert "Next: wikiholt sync garden" in out
    assert run("sync", "garden")[0] == 0


def test_the_documents_of_backup_and_restore(run: Run, garden: Repository) -> None:
    document = parse_document(run("backup", "garden", "--json"))
    assert (document["wiki"], document["revision"], document["pages"], document["fault"]) == (
        "garden",
        garden.get_head(),
        1,
        None,
    )
    everything = parse_document(run("backup", "--json"))
    assert [wiki["wiki"] for wiki in everything["wikis"]] == ["garden"]
    assert everything["registry"]["wikis"] == 1
    listed = parse_document(run("restore", "--list", "garden", "--json"))
    assert [backup["name"] for backup in listed["backups"]][-1] == document["name"]
    assert parse_document(run("restore", "--list", "--json"))["registry"][0]["name"] == everything["registry"]["name"]
    assert set(parse_document(run("restore", "--list", "--registry", "--json"))) == {"registry"}
    restored = parse_document(run("restore", "garden", "--at", document["taken_at"], "--json"))
    assert restored == document


def test_a_displayed_time_selects_that_backup(run: Run, garden: Repository) -> None:
    _, out, _ = run("backup", "garden")
    displayed = out.split(": ", 1)[1][:19].replace(" ", "T")
    garden.commit({"New.md": "# New"})
    assert run("sync", "garden")[0] == 0
    code, out, _ = run("restore", "garden", "--at", displayed)
    assert code == 0
    assert "1 page," in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("restore",), 2, "Name the wiki"),
        (("restore", "garden", "--registry"), 2, "cannot be combined"),
        (("backup", "garden", "--registry"), 2, "cannot be combined"),
        (("restore", "garden", "--at", "yesterday"), 2, "is not a date"),
        (("restore", "garden", "--at", "2001-01-01"), 3, "no intact backup"),
        (("restore", "garden"), 3, "no intact backup"),
        (("restore", "--registry", "--at", "2001-01-01"), 3, "no good backup"),
        (("restore", "nowhere"), 3, "no wiki"),
        (("backup", "nowhere"), 3, "no wiki"),
        (("restore", "../garden"), 3, "no wiki"),
    ],
)
def test_invalid_arguments_are_rejected_and_change_nothing(
    run: Run, garden: Repository, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (index,) = (tmp_path / "data" / "wikis").glob("*/g000001.sqlite")
    before = index.read_bytes()
    answer = run(*arguments)
    assert answer[0] == code
    assert message in answer[2]
    assert "hint: " in answer[2]
    assert index.read_bytes() == before
    assert run("search", "-w", "garden", "heron", "--mode", "keyword")[0] == 0


def test_a_wiki_that_cannot_be_backed_up_does_not_stop_the_others(run: Run, garden: Repository) -> None:
    assert run("add", "empty", str(garden.path))[0] == 0
    code, out, err = run("backup")
    assert code == 7
    assert err.startswith("error: empty: ")
    assert [line.split(":")[0] for line in out.splitlines()] == ["✓ garden", "✓ the registry"]


def test_commands_that_change_the_registry_back_it_up(run: Run, garden: Repository) -> None:
    first = parse_document(run("restore", "--list", "--registry", "--json"))["registry"]
    assert [backup["wikis"] for backup in first] == [1]
    assert run("key", "create", "garden")[0] == 0
    assert run("list")[0] == 0
    then = parse_document(run("restore", "--list", "--registry", "--json"))["registry"]
    assert [backup["keys"] for backup in then] == [1, 0]


def test_a_damaged_registry_is_restored_by_the_command_in_its_error(
    run: Run, garden: Repository, tmp_path: Path
) -> None:
    _, out, _ = run("key", "create", "garden", "--json")
    file = tmp_path / "data" / "registry.sqlite"
    file.write_bytes(b"this was a registry")
    code, out, err = run("list")
    assert (code, out) == (7, "")
    assert "`wikiholt restore --registry`" in err
    code, out, err = run("restore", "--registry")
    assert (code, err) == (0, "")
    assert "1 wiki, 1 key" in out
    assert "check `wikiholt key list`" in out
    assert [entry.name for entry in file.parent.glob("broken-*-registry.sqlite")]
    assert run("list")[1].startswith("garden")
    assert run("search", "-w", "garden", "heron", "--mode", "keyword")[0] == 0


def test_remove_lists_the_deleted_backups(run: Run, garden: Repository, tmp_path: Path) -> None:
    name = parse_document(run("backup", "garden", "--json"))["name"]
    removed = parse_document(run("remove", "garden", "--json"))["removed"]
    assert any(file.startswith(f"backups/{name}") for file in removed)
    assert [entry.name for entry in (tmp_path / "data" / "backups").iterdir()] == ["registry"]


def test_backups_are_stored_in_the_configured_directory(run: Run, garden: Repository, tmp_path: Path) -> None:
    for place in (str(tmp_path / "elsewhere"), "within"):
        assert run("--set", f"backup.directory={place}", "backup")[0] == 0
        assert len(list((tmp_path / "data" / place).iterdir())) == 2
    assert run("--set", "backup.directory=", "backup")[0] == 2
    assert run("--set", "backup.keep=0", "backup")[0] == 2


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2026-11-16", "2026-11-16T23:59:59.999999+00:00"),
        ("2026-11-16 03:23", "2026-11-16T03:23:59.999999+00:00"),
        ("2026-11-16T03:23+02:00", "2026-11-16T01:23:59.999999+00:00"),
        ("2026-11-16 03:23:41 UTC", "2026-11-16T03:23:41.999999+00:00"),
        ("2026-11-16T03:23:41.667691+00:00", "2026-11-16T03:23:41.667691+00:00"),
    ],
)
def test_a_partial_time_includes_its_complete_interval(text: str, end: str) -> None:
    assert parse_until(text) == datetime.fromisoformat(end)
