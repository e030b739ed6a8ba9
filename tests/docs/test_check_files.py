"""The GitHub Action and the pre-commit hook of `wikiholt check`."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT
from wikiholt.interfaces.cli.parser import parse_arguments
from wikiholt.text.page_names import PAGE_EXTENSIONS

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "deploy/check-action/action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


def test_no_input_is_part_of_a_script() -> None:
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 2
    assert all("${{" not in script for script in scripts)


@pytest.mark.parametrize(
    ("base", "expected"), [("a" * 40, "a" * 40), ("0" * 40, None), ("", None)], ids=["commit", "first push", "none"]
)
def test_the_last_step_runs_a_command_that_exists(tmp_path: Path, base: str, expected: str | None) -> None:
    program = tmp_path / "wikiholt/bin/wikiholt"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n')
    program.chmod(0o755)
    names = {"RUNNER_TEMP": str(tmp_path), "WIKI": "my docs", "BASE": base, "FAIL_ON": "warning"}
    assert STEPS[-1]["env"].keys() <= names.keys()
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", STEPS[-1]["run"]], env=os.environ | names, capture_output=True, check=True
    )
    parsed = parse_arguments(done.stdout.decode().splitlines())
    assert (parsed.command, parsed.path, parsed.base) == ("check", Path("my docs"), expected)
    assert (parsed.format, parsed.fail_on) == ("github", "warning")
    assert str(parsed.cache) in STEPS[1]["with"]["path"].replace("${{ runner.temp }}", str(tmp_path))


def test_the_action_installs_this_project_with_pinned_packages() -> None:
    place = ROOT / "deploy/check-action"
    assert (place / "../requirements.lock").resolve().is_file()
    assert (place / "../../pyproject.toml").resolve().is_file()
    assert "--require-hashes" in STEPS[2]["run"]


def test_the_hook_runs_a_command_that_exists_for_every_page() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    parsed = parse_arguments(shlex.split(hook["entry"])[1:])
    assert (parsed.command, parsed.staged, hook["pass_filenames"]) == ("check", True, False)
    assert all(extension.removeprefix(".") in hook["files"] for extension in PAGE_EXTENSIONS)
