"""The command line, as text and as JSON, with the real model."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.models import DEFAULT_MODEL


@pytest.fixture(scope="module")
def module_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture
def place(module_directory: Path) -> Iterator[Path]:
    """An empty directory at the same path for every test, because a data directory contains paths."""
    directory = module_directory / "place"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(place / "data", capsys)


@pytest.fixture
def wiki(place: Path) -> Repository:
    repository = Repository(place / "wiki")
    repository.commit(
        {
            "Home.md": "# Home\n\nThe handbook of the night shift.",
            "ops/backup.md": "---\ntags: [ops, disks]\ncategory: Runbook\nlast_updated: 2024-03-01\n---\n# Backups\n\n"
            "Copies of every disk are taken at midnight and kept for thirty days.",
            "ops/coffee.md": "---\ntags: kitchen\nlast_updated: 2020-01-01\n---\n# Coffee machine\n\nDescale it.",
        }
    )
    return repository


@pytest.fixture
def synced(run: CommandRunner, wiki: Repository, place: Path, module_directory: Path) -> CommandRunner:
    """The wiki is added and synced once; later tests get a copy of the result."""
    template = module_directory / "template"
    if template.exists():
        shutil.rmtree(place)
        shutil.copytree(template, place, symlinks=True)
        return run
    assert run("add", "night", str(wiki.path))[0] == 0
    assert run("sync")[0] == 0
    shutil.copytree(place, template, symlinks=True)
    return run


def parse_document(text: str) -> Any:
    return json.loads(text)


def test_add_sync_search_finds_by_meaning(synced: CommandRunner) -> None:
    code, out, err = synced("search", "-w", "night", "restoring lost data")
    assert (code, err) == (0, "")
    assert "1. Backups" in out
    assert ", up to date" in out


def test_json_is_one_document_and_nothing_else(synced: CommandRunner) -> None:
    code, out, err = synced("search", "-w", "night", "restoring lost data", "--json", "-n", "2")
    assert (code, err) == (0, "")
    answer = parse_document(out)
    assert len(answer["results"]) == 2
    first = answer["results"][0]
    assert first["path"] == "ops/backup"
    assert {"name", "path", "snippet", "distance", "score"} <= first.keys()
    assert answer["indexed_revision"] == answer["head_revision"]


def test_every_command_has_json(synced: CommandRunner) -> None:
    assert parse_document(synced("list", "--json")[1])["wikis"][0]["slug"] == "night"
    assert parse_document(synced("status", "--json")[1])["wikis"][0]["pages"] == 3
    status = parse_document(synced("status", "night", "--json")[1])
    assert (status["pages"], status["stale"], status["error"]) == (3, False, None)
    assert parse_document(synced("sync", "night", "--json")[1])["unchanged"] == 3
    assert parse_document(synced("sync", "--json")[1])["wikis"][0]["wiki"] == "night"
    assert parse_document(synced("settings", "--json")[1])["model"] == DEFAULT_MODEL
    findings = parse_document(synced("doctor", "--json")[1])
    assert findings["ok"]
    assert {"git", "model", "disk", "data directory", "registry", "wiki night"} <= {
        f["subject"] for f in findings["findings"]
    }
    removed = parse_document(synced("remove", "night", "--yes", "--json")[1])
    assert removed["removed"]
    assert parse_document(synced("list", "--json")[1]) == {"wikis": []}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["search", "-w", "absent", "x"], 3, "absent"),
        (["sync", "absent"], 3, "absent"),
        (["status", "absent"], 3, "absent"),
        (["remove", "absent"], 3, "absent"),
        (["search", "-w", "night", "   "], 2, "empty"),
        (["search", "-w", "night", "x", "-n", "0"], 2, "n is 0"),
        (["search", "-w", "night", "x", "-n", "101"], 2, "n is 101"),
        (["search", "-w", "night", "x", "--since", "yesterdayish"], 2, "yesterdayish"),
        (["add", "other", "missing"], 6, "missing"),
        (["add", "../up", "."], 2, "cannot name a wiki"),
        (["add", "Night", "."], 2, "capital letter"),
    ],
)
def test_bad_input_gets_an_error_with_a_hint(
    synced: CommandRunner, place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    monkeypatch.chdir(place)
    got, out, err = synced(*arguments)
    assert (got, out) == (code, "")
    assert words in err.lower()
    last = err.strip().splitlines()[-1]
    assert last.startswith("hint: ")
    assert len(last) > len("hint: ")


def test_no_results_has_its_own_exit_code(synced: CommandRunner) -> None:
    code, out, _ = synced("search", "-w", "night", "xyzzyplugh", "--mode", "keyword")
    assert code == 1
    assert "Nothing found" in out


def test_a_failing_wiki_does_not_stop_the_others_from_syncing(
    synced: CommandRunner, wiki: Repository, place: Path
) -> None:
    other = Repository(place / "other")
    other.commit({"a.md": "alpha"})
    assert synced("add", "aaa", str(other.path))[0] == 0
    other.path.rename(place / "gone")
    wiki.commit({"new.md": "brand new page"})
    code, out, err = synced("sync")
    assert code == 6
    assert "aaa" in err
    assert "✓ night: 1 added" in out


def test_sync_without_wikis_explains_how_to_start(run: CommandRunner) -> None:
    code, _, err = run("sync")
    assert code == 3
    assert f"{run.program} add" in err


def test_searching_before_the_first_sync_says_what_to_do(run: CommandRunner, wiki: Repository) -> None:
    run("add", "night", str(wiki.path))
    code, out, err = run("search", "-w", "night", "disks", "--no-sync")
    assert (code, out) == (7, "")
    assert f"{run.program} sync" in err


def test_status_and_doctor_report_problems(synced: CommandRunner, wiki: Repository) -> None:
    wiki.commit({"bad.md": b"\x00\x01\x02\xff" * 64})
    assert "behind HEAD" in synced("status")[1]
    code, out, _ = synced("doctor")
    assert code == 10
    assert "✗ wiki night: the index is behind HEAD" in out
    assert f"hint: run `{synced.program} sync night`" in out
    synced("sync")
    assert "problem: bad.md: binary" in synced("status")[1]
    wiki.path.rename(wiki.path.with_name("away"))
    code, out, _ = synced("status")
    assert code == 0
    assert "hint:" in out
    assert synced("doctor")[0] == 10


def test_a_model_that_is_missing_or_broken_indexes_nothing(
    run: CommandRunner, wiki: Repository, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    run("add", "night", str(wiki.path))
    monkeypatch.setenv("WIKIHOLT_MODEL", str(place / "no-such-model"))
    code, out, err = run("sync")
    assert (code, out) == (5, "")
    assert "hint:" in err
    assert run("doctor")[0] == 10
    assert run("search", "-w", "night", "disks")[0] == 5
    monkeypatch.delenv("WIKIHOLT_MODEL")
    assert run("search", "-w", "night", "disks", "--no-sync")[0] == 7
    assert run("sync")[0] == 0
    monkeypatch.setenv("WIKIHOLT_MODEL", str(place / "no-such-model"))
    code, out, _ = run("search", "-w", "night", "disks", "--json")
    assert code == 0
    assert not parse_document(out)["degraded"], "the previous model still answers"
    assert run("search", "-w", "night", "disks", "--mode", "semantic")[0] == 0
    assert run("search", "-w", "night", "disks", "--mode", "keyword")[0] == 0


def test_without_a_stale_check_the_search_shows_head_as_unknown(synced: CommandRunner) -> None:
    code, out, _ = synced("--set", "search.stale_check=false", "search", "-w", "night", "disks")
    assert code == 0
    assert ", up to date" not in out
    assert "latest state not checked" in out


def test_a_setting_can_be_set_for_one_command(synced: CommandRunner) -> None:
    assert parse_document(synced("--set", "language=german", "settings", "--json")[1])["language"] == "german"


@pytest.mark.parametrize("pair", ["nope=1", "threads=many", "threads", "chunk.target_tokens=1"])
def test_a_bad_setting_gets_an_error_with_a_hint(synced: CommandRunner, pair: str) -> None:
    code, out, err = synced("--set", pair, "list")
    assert (code, out) == (2, "")
    assert err.strip().splitlines()[-1].startswith("hint: ")


def test_a_wiki_keeps_its_own_settings(run: CommandRunner, wiki: Repository) -> None:
    options = (
        "--subdirectory",
        "ops",
        "--ignore",
        "coffee.md",
        "--anchors",
        "otterwiki",
        "--url",
        "https://w.example/{path}",
    )
    assert run("add", "ops", str(wiki.path), *options)[0] == 0
    assert run("sync", "ops")[0] == 0
    answer = parse_document(run("search", "-w", "ops", "copies of disks", "--json")[1])
    assert [hit["path"] for hit in answer["results"]] == ["backup"]
    assert answer["results"][0]["url"].startswith("https://w.example/backup#")
    code, _, err = run("add", "other", str(wiki.path), "--subdirectory", "absent")
    assert code == 2
    assert "hint:" in err
    assert run("add", "other", str(wiki.path), "--language", "klingon")[0] == 2
    assert [w["slug"] for w in parse_document(run("list", "--json")[1])["wikis"]] == ["ops"]


def test_the_demo_finds_what_it_promises(place: Path, run: CommandRunner) -> None:
    from wikiholt.interfaces.cli.demo_command import DEMO_QUERIES

    code, out, _ = run("demo", str(place / "demo"), "--json")
    assert code == 0
    document = parse_document(out)
    assert [wiki["added"] for wiki in document["wikis"]] == [14, 14]
    for query, answer in zip(DEMO_QUERIES, document["searches"], strict=True):
        assert answer["results"][0]["path"] == query.expected_path, query.text
        assert not answer["nothing_relevant"], query.text
    code, out, err = run("demo", str(place / "demo"))
    assert code == 0
    assert "28" not in err
    assert "14 unchanged" in out
    assert "What to do next" in out


def test_a_closed_pipe_prints_no_traceback(synced: CommandRunner, place: Path) -> None:
    command = f"{sys.executable} -m wikiholt.interfaces.cli.main --data {place / 'data'} search -w night disks | true"
    completed = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in completed.stderr


def test_it_works_without_home_or_environment_variables(synced: CommandRunner, place: Path) -> None:
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(place / "data")]
    command += ["--set", "search.keep_warm=0"]
    environment = {"PATH": os.environ["PATH"]}
    completed = subprocess.run(
        [*command, "search", "-w", "night", "disks", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert parse_document(completed.stdout)["results"][0]["path"] == "ops/backup"
    assert completed.stderr == ""
