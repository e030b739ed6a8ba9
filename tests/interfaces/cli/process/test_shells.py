"""Completion in a real shell, and the manual page in real man. A shell that is not installed is skipped."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from wikiholt.interfaces.cli.parser import COMMANDS

_CALLS = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _wikiholt\n'
    'printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'compdef() { }\n_describe() { print -l -- "${(@P)2}" }\n_files() { print files }\n'
    'source "$1"; shift; words=("$@"); CURRENT=$#; _wikiholt',
    "fish": 'source $argv[1]; complete -C (string join " " $argv[2..])',
}


@pytest.mark.parametrize("shell", _CALLS)
def test_a_shell_offers_what_the_command_prints(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "wikiholt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m wikiholt.interfaces.cli.main "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "completion"
    script.write_bytes(subprocess.run([program, "completion", shell], capture_output=True, check=True).stdout)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for words, offer in ((["--no-color", "se"], "search"), (["search", "x", "--mode", "k"], "keyword")):
        command = [shell, "-c", _CALLS[shell], *([shell] if shell != "fish" else []), str(script), "wikiholt", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert offer in [re.split(r"[\t:]", line)[0] for line in done.stdout.splitlines()]


def test_man_shows_every_command_without_warnings() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    environment = {**os.environ, "GROFF_NO_SGR": "1"}
    command = ["groff", "-man", "-ww", "-Tutf8", "-rLL=200n", "-rHY=0", str(ROOT / "docs/wikiholt.1")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout).replace("−", "-").replace("‐", "-")
    assert all(f"wikiholt {name}" in shown for name in COMMANDS)
    assert 'words or a question; "a phrase", -word' in shown
    assert "130" in shown
