"""`index push` and `index pull`, and `check --pull`, on the command line."""

import json
import subprocess
from pathlib import Path

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository


def test_an_index_is_pushed_pulled_and_used_by_a_check(run: CommandRunner, tmp_path: Path) -> None:
    origin = Repository(tmp_path / "origin")
    origin.commit({"Home.md": "# Home\n\nThe heron stands by the pond.\n", "Pond.md": "# Pond\n\nIt is deep.\n"})
    for name in ("ada", "bo"):
        subprocess.run(["git", "clone", "-q", str(origin.path), str(tmp_path / name)], check=True)
        assert run("add", name, str(tmp_path / name))[0] == 0
    code, _, errors = run("index", "push", "ada")
    assert (code, "wikiholt sync" in errors or "sync" in errors) == (7, True)
    code, _, errors = run("index", "pull", "bo")
    assert code == 3
    assert "index push" in errors
    assert run("sync", "ada", "--quiet")[0] == 0
    assert "ada: pushed the vectors of 2 texts" in run("index", "push", "ada")[1]
    document = json.loads(run("index", "pull", "bo", "--json")[1])
    assert (document["texts"], document["sampled"], document["reused"], document["embedded"]) == (2, 2, 2, 0)
    assert run("search", "-w", "bo", "heron")[0] == 0
    assert run("check", str(tmp_path / "bo"), "--pull")[0] == 0
    code, _, errors = run("index", "pull", "bo", "--remote", "upstream")
    assert code == 2
    assert "origin" in errors
    for name in ("ada", "bo"):
        assert run("remove", name, "--yes")[0] == 0
