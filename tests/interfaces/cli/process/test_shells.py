"""Completion in real shells, and the manual page in real man. A shell that is not installed is skipped."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from wikiholt.interfaces.cli.parser import EXIT_CODES, build_parser
from wikiholt.interfaces.cli.shell_commands import read_commands, write_completion, write_man_page

_BASH = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _wikiholt; printf "%s\\n" "${COMPREPLY[@]}"'
_ZSH = """
compdef() { }
compset() { PREFIX="${PREFIX#*=}" }
compadd() { [[ $1 == -a ]] && print -l -- "${(P@)2}" || { shift; print -l -- "$@" } }
_describe() { print -l -- "${(@P)@[-1]%%:*}" }
_files() { print files }
source "$1"; shift
words=("$@"); CURRENT=$#; PREFIX="${words[CURRENT]}"
_wikiholt
"""

Complete = Callable[..., list[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """What the shell offers for the last word of a line."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "completion"
    script.write_text(write_completion(shell, list(read_commands(build_parser()))))
    program = tmp_path / "bin" / "wikiholt"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> "$LOG"\nprintf "garden\\nkitchen\\n"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LOG": str(tmp_path / "log"), "HOME": str(tmp_path)}

    def call(*words: str) -> list[str]:
        if shell == "fish":
            line = " ".join(["wikiholt", *words])
            command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        else:
            body = _BASH if shell == "bash" else _ZSH
            options = ["--norc"] if shell == "bash" else ["-f"]
            command = [shell, *options, "-c", body, shell, str(script), "wikiholt", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        offers = [line.partition("\t")[0] for line in done.stdout.splitlines() if line]
        return [offer.partition("=")[2] if "=" in words[-1] and "=" in offer else offer for offer in offers]

    return call


def keep_prefix(offers: list[str], prefix: str) -> set[str]:
    return {offer for offer in offers if offer.startswith(prefix)}


def test_commands_are_offered(complete: Complete) -> None:
    assert {"search", "settings", "serve", "set"} <= keep_prefix(complete("se"), "se")
    assert {"create", "list", "revoke"} <= set(complete("key", ""))


def test_options_of_the_command_are_offered(complete: Complete) -> None:
    offers = set(complete("search", "--m"))
    assert {"--mode", "--min-score"} <= offers
    assert "--port" not in offers
    assert "--data" in complete("--da")


@pytest.mark.parametrize("words", [("search", "--mode", ""), ("search", "x", "y", "--mode", "")])
def test_values_of_an_option_are_offered(complete: Complete, words: tuple[str, ...]) -> None:
    assert set(complete(*words)) == {"hybrid", "semantic", "keyword"}


def test_names_of_wikis_are_offered_with_the_data_directory(complete: Complete, tmp_path: Path) -> None:
    assert keep_prefix(complete("--data", "some/dir", "sync", ""), "") >= {"garden", "kitchen"}
    assert set(complete("read", "Home", "--wiki", "")) == {"garden", "kitchen"}
    assert (tmp_path / "log").read_text().splitlines() == ["--data some/dir list --slugs", "list --slugs"]


def test_choices_of_an_argument_are_offered(complete: Complete) -> None:
    assert set(complete("completion", "")) == {"bash", "zsh", "fish"}


def test_bash_completes_a_value_after_an_equals_sign(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(write_completion("bash", list(read_commands(build_parser()))))
    command = ["bash", "--norc", "-c", _BASH, "bash", str(script), "wikiholt", "search", "--mode", "=", "k"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "keyword\n"


def test_man_shows_every_command_and_option_without_warnings(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    commands = list(read_commands(build_parser()))
    page = tmp_path / "wikiholt.1"
    page.write_text(write_man_page(commands, EXIT_CODES))
    environment = {**os.environ, "GROFF_NO_SGR": "1"}
    command = ["groff", "-man", "-ww", "-Tutf8", "-rLL=200n", "-rHY=0", str(page)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout).replace("−", "-").replace("‐", "-")
    for command_info in commands:
        for option in command_info.options:
            assert all(name in shown for name in option.names)
        assert command_info.below or f"wikiholt {command_info.name}" in shown
    assert 'words or a question; "a phrase", -word' in shown
    assert "130" in shown or "70" in shown
