"""The command line in unusual conditions: invalid UTF-8, terminals with few characters, internal errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES, PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.cli.main import UNEXPECTED_EXIT_CODE
from wikiholt.search.request import SearchRequest

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "wikiholt.interfaces.cli.main"]


@pytest.mark.parametrize(
    "arguments",
    [
        [b"search", b"-w", b"night", b"x\xff"],
        [b"search", b"-w", b"night", b"x", b"--tag", b"x\xff"],
        [b"search", b"-w", b"night", b"x", b"--category", b"x\xff"],
        [b"search", b"-w", b"night", b"x", b"--path", b"x\xff"],
    ],
)
def test_invalid_utf8_arguments_are_bad_input(tmp_path: Path, arguments: list[bytes]) -> None:
    completed = subprocess.run(
        [*map(os.fsencode, COMMAND), b"--data", os.fsencode(tmp_path), *arguments], capture_output=True, check=False
    )
    assert (completed.returncode, completed.stdout) == (2, b"")
    assert b"is not text" in completed.stderr
    assert b"\nhint: send UTF-8" in completed.stderr
    assert b"Traceback" not in completed.stderr


@pytest.mark.parametrize(
    "where",
    [
        PageFilter(tags=("t",) * (MAX_FILTER_VALUES + 1)),
        PageFilter(categories=("c",) * (MAX_FILTER_VALUES + 1)),
        PageFilter(tags=("t" * (MAX_FILTER_VALUE_CHARS + 1),)),
        PageFilter(categories=("c" * (MAX_FILTER_VALUE_CHARS + 1),)),
        PageFilter(path_prefix="p" * (MAX_FILTER_VALUE_CHARS + 1)),
        PageFilter(tags=("\ud800",)),
        PageFilter(categories=("\udcff",)),
        PageFilter(path_prefix="a/\udfff"),
    ],
)
def test_an_oversized_filter_is_rejected_with_a_hint(where: PageFilter) -> None:
    with pytest.raises(InvalidQuery) as refused:
        SearchRequest("x", where=where)
    assert refused.value.hint
    refused.value.message.encode()


def test_a_filter_within_limits_and_a_query_in_any_script_are_accepted() -> None:
    where = PageFilter(
        ("c",) * MAX_FILTER_VALUES, ("t" * MAX_FILTER_VALUE_CHARS,) * MAX_FILTER_VALUES, "p" * MAX_FILTER_VALUE_CHARS
    )
    assert SearchRequest("👩\u200d👧 東京 \U0010ffff", where=where).where == where


def test_an_ascii_terminal_works(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "café-東京")
    repository.commit({"a.md": "x"})
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "--data", str(tmp_path / "data"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, encoding="ascii")

    assert run("add", "night", str(repository.path)).returncode == 0
    listed = run("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "caf\\xe9-\\u6771\\u4eac" in listed.stdout
    assert json.loads(run("list", "--json").stdout)["wikis"][0]["source"] == str(repository.path)
    failed = run("add", "näht", str(repository.path))
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr


def run_patched(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `wikiholt … status` in a separate process with the command replaced by `body`."""
    script = (
        "import logging, sys\n"
        "from wikiholt.interfaces.cli import main as cli\n"
        f"def instead(parsed, settings):\n    {body}\n"
        "cli._run_command = instead\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, *arguments, "status"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("level", ["warning", "debug"])
def test_an_internal_error_has_its_own_exit_code(tmp_path: Path, level: str) -> None:
    body = r"raise ZeroDivisionError('divided by \x1b[31mnothing\nat all')"
    completed = run_patched(body, "--data", str(tmp_path), "--set", f"log.level={level}")
    assert (completed.returncode, completed.stdout) == (UNEXPECTED_EXIT_CODE, "")
    fault = "error: internal error: ZeroDivisionError: divided by \N{REPLACEMENT CHARACTER}[31mnothing at all\n"
    assert fault in completed.stderr
    assert completed.stderr.splitlines()[-1].startswith("hint: please report it")
    assert ("Traceback" in completed.stderr) == (level == "debug")
    assert "\x1b" not in completed.stderr


def test_log_lines_cannot_control_the_terminal(tmp_path: Path) -> None:
    body = r"logging.getLogger('git').warning('said %s', '\x1b]0;owned\x07'); return 0"
    completed = run_patched(body, "--data", str(tmp_path))
    assert completed.returncode == 0
    assert completed.stderr == "WARNING git: said \N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}\n"
