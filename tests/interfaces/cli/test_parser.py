"""The parser of the command line: help, suggestions, words between options, and what a command imports."""

import subprocess
import sys

import pytest

from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.cli.parser import COMMANDS, build_parser, find_subparsers, parse_arguments


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_command_declares_it(name: str) -> None:
    below = find_subparsers(build_parser([name]))
    assert below is not None
    assert {one.dest: one.help for one in below._choices_actions}[name] == COMMANDS[name].summary


def test_help_shows_first_what_a_searcher_needs_and_names_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    first, _, more = out.partition("search and read:\n")[2].partition("\n\n")
    assert [line.split()[0] for line in first.splitlines()][:3] == ["search", "ask", "read"]
    assert all(name in first + more for name in COMMANDS)
    assert len(out.splitlines()) <= 27
    assert run(capsys, "help") == (0, out, "")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("wikis", "\n  reindex       rebuild a wiki's index"),
        ("postgresql", "\n  move      move wikis"),
        ("options", "\n  --no-color        print no colors"),
        ("exit-codes", "\n 130 interrupted, or not confirmed"),
        ("all", "\n  verify-isolation  check that"),
        ("search", "\n  --no-sync"),
    ],
)
def test_help_explains_a_topic(capsys: pytest.CaptureFixture[str], topic: str, expected: str) -> None:
    code, out, err = run(capsys, "--set", "nonsense", "help", topic)
    assert (code, err) == (0, "")
    assert expected in out


def test_without_arguments_a_terminal_shows_the_overview_and_a_script_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "search and read:" in err
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert "search and read:" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serch", "x"], "Did you mean search?"),
        (["search", "x", "--catgory", "y"], "Did you mean --category?"),
        (["sync", "--quit"], "Did you mean --quiet?"),
        (["key", "create", "--lable", "x", "night"], "Did you mean --label?"),
        (["list", "--data", "x"], "must stand before the command"),
        (["status", "-w", "notes"], "hint: name the wiki without it: `wikiholt status SLUG`"),
        (["list", "extra"], "`wikiholt list` has no argument 'extra'"),
        (["frobnicate"], "`wikiholt --help` lists all commands"),
        (["help", "serach"], "Did you mean search?"),
    ],
)
def test_a_wrong_command_or_option_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["search", "x", "--mode", "magic"], "wikiholt search"),
        (["search", "x", "-n", "many"], "wikiholt search"),
        (["key", "create", "x", "--scope", "all"], "wikiholt key create"),
        (["status", "a", "b"], "wikiholt status"),
        (["--data"], "wikiholt"),
    ],
)
def test_an_error_is_printed_without_the_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], command: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith(f"hint: `{command} --help`")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["how", "do", "I"], ["how", "do", "I"]),
        (["how", "-n", "3", "do", "--mode", "keyword", "I"], ["how", "do", "I"]),
        (["-n", "3", "printer", "-draft", "paper"], ["printer", "-draft", "paper"]),
        (["-w", "night", '"a phrase"', "word"], ['"a phrase"', "word"]),
        (["--", "printer", "-w"], ["printer", "-w"]),
    ],
)
def test_the_words_of_a_query_need_no_quotes(arguments: list[str], words: list[str]) -> None:
    assert parse_arguments(["search", *arguments]).words == words


def find_imports(*arguments: str) -> set[str]:
    """The modules that a command imports in a process of its own."""
    script = (
        "import sys\n"
        "from wikiholt.interfaces.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    completed = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return set(completed.stderr.split())


@pytest.mark.parametrize("arguments", [["--json", "--no-color", "list"], ["list", "--json", "--no-color"]])
def test_common_options_stand_before_or_after_the_command(arguments: list[str]) -> None:
    parsed = parse_arguments(arguments)
    assert parsed.json
    assert parsed.no_color
    assert not parse_arguments(["list"]).json


@pytest.mark.parametrize("arguments", [["--json", "man"], ["man", "--json"]])
def test_a_command_without_json_says_so(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "`wikiholt man` has no option '--json'" in err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["list"], ["list", "--json"]])
def test_a_short_command_imports_neither_the_core_nor_a_framework(tmp_path: object, arguments: list[str]) -> None:
    imported = find_imports("--data", f"{tmp_path}/data", *arguments)
    heavy = {"numpy", "onnxruntime", "pydantic", "fastapi", "tqdm", "wikiholt.wikis.service", "wikiholt.api.bootstrap"}
    assert not imported & heavy
    commands = {name for name in imported if name.startswith("wikiholt.interfaces.cli.") and name.endswith("command")}
    assert commands <= {"wikiholt.interfaces.cli.list_command", "wikiholt.interfaces.cli.command"}


@pytest.mark.process
def test_opening_the_service_imports_no_model_and_no_server() -> None:
    script = "import sys, wikiholt.api.bootstrap; print(' '.join(sys.modules))"
    imported = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not imported & {
        "onnxruntime",
        "tokenizers",
        "tqdm",
        "pydantic",
        "wikiholt.sync.scheduler",
        "http.client",
    }


@pytest.mark.process
def test_the_package_runs_as_a_module() -> None:
    completed = subprocess.run([sys.executable, "-m", "wikiholt", "serch"], capture_output=True, text=True, check=False)
    assert completed.returncode == 2
    assert "Did you mean search?" in completed.stderr
