"""`wikiholt backup` and `wikiholt restore`, as text and as JSON."""

from datetime import datetime
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.domain.dates import parse_until


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


@pytest.fixture
def garden(run: CommandRunner, tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond."})
    assert run("add", "garden", str(repository.path))[0] == 0
    assert run("sync", "garden")[0] == 0
    return repository


def test_everything_is_backed_up_listed_and_restored(run: CommandRunner, garden: Repository) -> None:
    code, out, err = run("backup")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == ["✓ garden", "✓ the registry"]
    assert f"1 page, at {garden.get_head()[:10]}  (requested)" in out
    code, out, err = run("restore", "--list")
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["garden", "the registry"]
    code, out, err = run("restore", "garden")
    assert (code, err) == (0, "")
    assert "✓ garden: restored" in out
    assert f"Next: {run.program} sync garden" in out
    assert run("sync", "garden")[0] == 0


def test_the_documents_of_backup_and_restore(run: CommandRunner, garden: Repository) -> None:
    document = run("backup", "garden", "--json").parse()
    assert (document["wiki"], document["revision"], document["pages"], document["fault"]) == (
        "garden",
        garden.get_head(),
        1,
        None,
    )
    everything = run("backup", "--json").parse()
    assert [wiki["wiki"] for wiki in everything["wikis"]] == ["garden"]
    assert everything["registry"]["wikis"] == 1
    listed = run("restore", "--list", "garden", "--json").parse()
    assert [backup["name"] for backup in listed["backups"]][-1] == document["name"]
    assert run("restore", "--list", "--json").parse()["registry"][0]["name"] == everything["registry"]["name"]
    assert set(run("restore", "--list", "--registry", "--json").parse()) == {"registry"}
    restored = run("restore", "garden", "--at", document["taken_at"], "--json").parse()
    assert restored == document


def test_a_displayed_time_selects_that_backup(run: CommandRunner, garden: Repository) -> None:
    _, out, _ = run("backup", "garden")
    displayed = out.split(": ", 1)[1][:19].replace(" ", "T")
    garden.commit({"New.md": "# New"})
    assert run("sync", "garden")[0] == 0
    code, out, _ = run("restore", "garden", "--at", displayed)
    assert code == 0
    assert "1 page," in out


INVALID_COMMANDS = [
    (("restore",), 2, "Name the wiki"),
    (("restore", "garden", "--registry"), 2, "cannot be combined"),
    (("backup", "garden", "--registry"), 2, "cannot be combined"),
    (("restore", "garden", "--at", "someday"), 2, "is not a date"),
    (("restore", "garden", "--at", "2001-01-01"), 3, "no intact backup"),
    (("restore", "garden"), 3, "no intact backup"),
    (("restore", "--registry", "--at", "2001-01-01"), 3, "no good backup"),
    (("restore", "nowhere"), 3, "no wiki"),
    (("backup", "nowhere"), 3, "no wiki"),
    (("restore", "../garden"), 3, "no wiki"),
]


def test_invalid_arguments_are_rejected_and_change_nothing(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    (index,) = (tmp_path / "data" / "wikis").glob("*/g000001.sqlite")
    before = index.read_bytes()
    for arguments, code, message in INVALID_COMMANDS:
        answer = run(*arguments)
        assert answer[0] == code, arguments
        assert message in answer[2]
        assert "hint: " in answer[2]
    assert index.read_bytes() == before
    assert run("search", "-w", "garden", "heron", "--mode", "keyword")[0] == 0


def test_a_wiki_that_cannot_be_backed_up_does_not_stop_the_others(run: CommandRunner, garden: Repository) -> None:
    assert run("add", "empty", str(garden.path))[0] == 0
    code, out, err = run("backup")
    assert code == 7
    assert err.startswith("error: empty: ")
    assert [line.split(":")[0] for line in out.splitlines()] == ["✓ garden", "✓ the registry"]


def test_commands_that_change_the_registry_back_it_up(run: CommandRunner, garden: Repository) -> None:
    first = run("restore", "--list", "--registry", "--json").parse()["registry"]
    assert [backup["wikis"] for backup in first] == [1]
    assert run("key", "create", "garden")[0] == 0
    assert run("list")[0] == 0
    then = run("restore", "--list", "--registry", "--json").parse()["registry"]
    assert [backup["keys"] for backup in then] == [1, 0]


def test_a_damaged_registry_is_restored_by_the_command_in_its_error(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    _, out, _ = run("key", "create", "garden", "--json")
    file = tmp_path / "data" / "registry.sqlite"
    file.write_bytes(b"this was a registry")
    code, out, err = run("list")
    assert (code, out) == (7, "")
    assert f"`{run.program} restore --registry`" in err
    code, out, err = run("restore", "--registry")
    assert (code, err) == (0, "")
    assert "1 wiki, 1 key" in out
    assert "Not restored" not in out
    assert [entry.name for entry in file.parent.glob("broken-*-registry.sqlite")]
    assert run("list")[1].startswith("garden")
    assert run("search", "-w", "garden", "heron", "--mode", "keyword")[0] == 0


def test_restoring_a_registry_without_keys_does_not_warn_of_revoked_keys(
    run: CommandRunner, garden: Repository, tmp_path: Path
) -> None:
    assert run("backup", "--registry").code == 0
    (tmp_path / "data" / "registry.sqlite").write_bytes(b"this was a registry")
    code, out, err = run("restore", "--registry")
    assert (code, err) == (0, "")
    assert "1 wiki, 0 keys" in out
    assert "revoked" not in out


def test_remove_lists_the_deleted_backups(run: CommandRunner, garden: Repository, tmp_path: Path) -> None:
    name = run("backup", "garden", "--json").parse()["name"]
    removed = run("remove", "garden", "--yes", "--json").parse()["removed"]
    assert any(file.startswith(f"backups/{name}") for file in removed)
    assert [entry.name for entry in (tmp_path / "data" / "backups").iterdir()] == ["registry"]


def test_backups_are_stored_in_the_configured_directory(run: CommandRunner, garden: Repository, tmp_path: Path) -> None:
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
