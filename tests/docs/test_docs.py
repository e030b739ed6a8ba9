"""Checks the documentation against the code."""

import re
import shlex
import tomllib
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import wikiholt
from tests.support.paths import ROOT
from wikiholt.api.documents.search_documents import build_hit_document, build_result_document
from wikiholt.domain.search import Confidence, Hit, SearchMode, SearchResult, Snippet
from wikiholt.domain.slugs import RESERVED_SLUGS
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.cli.command import NOTHING_FOUND_EXIT_CODE, PROBLEMS_FOUND_EXIT_CODE
from wikiholt.interfaces.cli.main import INTERRUPTED_EXIT_CODE, UNEXPECTED_EXIT_CODE
from wikiholt.interfaces.cli.parser import EXIT_CODES, build_parser
from wikiholt.text.markdown import make_github_slug

PACKAGE = ROOT / "src" / "wikiholt"
BENCH = [page for page in (ROOT / "bench").rglob("*.md") if not page.is_relative_to(ROOT / "bench" / "data")]
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *BENCH])
ADRS = sorted((ROOT / "docs" / "adr").glob("0*.md"))

_FENCED = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_MACHINE_PATH = re.compile(r"(?<![\w.…~/}-])/(?:work|root|tmp|home|Users|srv|mnt|var(?!/lib/wikiholt)|opt|private)/")
_ADDRESS = re.compile(r"\b(?:https?|ssh|git)://([^/\s)`>]+)|\b(\d{1,3}(?:\.\d{1,3}){3})\b")
# 2130706433 is 127.0.0.1 as one number; "host" is a placeholder.
_HOSTS = {"semver.org", "wiki.example.org", "0.0.0.0", "127.0.0.1", "localhost", "2130706433", "host", "git.example"}

_PARSER = build_parser()
MAX_ROW_CHARS = 270
"""Two lines of the map, with the brackets of links."""
_COMMON_OPTIONS = {"--json", "--no-color"}
"""Options of every command that prints a result, described once."""


def read_text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def strip_code(text: str) -> str:
    return _FENCED.sub("", text)


def find_code_names(text: str) -> set[str]:
    """All inline code of the text."""
    return set(_INLINE.findall(strip_code(text)))


def find_anchors(file: Path) -> set[str]:
    return {make_github_slug(heading) for heading in _HEADING.findall(strip_code(file.read_text(encoding="utf-8")))}


def get_sub_commands(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """The commands by name; subcommands as `key create`."""
    commands: dict[str, ArgumentParser] = {}
    for action in (action for action in parser._actions if isinstance(action, _SubParsersAction)):
        for name, inner in action.choices.items():
            below = get_sub_commands(inner)
            commands |= {f"{name} {each}": command for each, command in below.items()} if below else {name: inner}
    return commands


def get_options(parser: ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings} - {"-h", "--help"}


def get_section(text: str, title: str) -> str:
    """The text below a heading, up to the next heading of its level or above."""
    match = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^(?!\1#)#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"there is no heading {title!r}"
    return match[2]


# ── all pages ────────────────────────────────────────────────────────────────────────────────────


def test_links_point_to_existing_files_and_headings() -> None:
    for doc in DOCS:
        for link in _LINK.findall(strip_code(doc.read_text(encoding="utf-8"))):
            if "://" in link:
                continue
            place, _, anchor = link.partition("#")
            target = (doc.parent / place).resolve() if place else doc
            assert target.exists(), f"{doc}: {link} leads nowhere"
            assert target.is_relative_to(ROOT), f"{doc}: {link} leads out of the project"
            if anchor and target.suffix == ".md":
                assert anchor in find_anchors(target), f"{doc}: {link} names no heading of {target.name}"


def test_no_page_names_a_machine() -> None:
    for doc in DOCS:
        text = doc.read_text(encoding="utf-8")
        assert not _MACHINE_PATH.search(text), doc
        hosts = {(host or number).rpartition("@")[2].partition(":")[0] for host, number in _ADDRESS.findall(text)}
        assert hosts <= _HOSTS, doc


def test_shown_commands_parse() -> None:
    for doc in DOCS:
        for line in find_commands(doc.read_text(encoding="utf-8")):
            assert can_parse(line), f"{doc}: wikiholt does not understand: {line}"


def can_parse(line: str) -> bool:
    words = shlex.split(line, comments=True)[1:]
    to_shell = next((position for position, word in enumerate(words) if word in ("|", ">")), len(words))
    try:
        _PARSER.parse_args(words[:to_shell])
    except SystemExit as stop:
        return stop.code == 0
    return True


def find_commands(text: str) -> Iterator[str]:
    """Every `$ wikiholt …` of a console block, and every inline `wikiholt …` that names a command."""
    for block in _CONSOLE.findall(text):
        joined = block.replace("\\\n", " ")
        yield from (line[2:] for line in joined.splitlines() if line.startswith("$ wikiholt"))
    yield from (code for code in find_code_names(text) if code.startswith("wikiholt ") and "…" not in code)


def test_the_readme_and_the_manual_show_commands() -> None:
    for name in ("README.md", "docs/cli.md"):
        assert len(list(find_commands(read_text(name)))) >= 5


def test_an_unknown_command_is_noticed() -> None:
    (line,) = find_commands("```console\n$ wikiholt fly --away\n```\n")
    assert not can_parse(line)


# ── the map ──────────────────────────────────────────────────────────────────────────────────────


def test_the_map_names_every_module_and_package() -> None:
    known = find_code_names(read_text("ARCHITECTURE.md"))
    for entry in PACKAGE.iterdir():
        if entry.suffix == ".py" and entry.stem != "__init__":
            assert entry.name in known, f"ARCHITECTURE.md does not name {entry.name}"
        if (entry / "__init__.py").exists():
            assert f"{entry.name}/" in known, f"ARCHITECTURE.md does not name {entry.name}/"


def test_the_map_names_no_missing_file() -> None:
    files = {name for name in find_code_names(read_text("ARCHITECTURE.md")) if re.fullmatch(r"[\w/.-]+\.py", name)}
    assert files
    for name in files:
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"ARCHITECTURE.md names {name}"


def test_the_map_lists_the_rooms_in_the_checked_order() -> None:
    contracts = tomllib.loads(read_text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    rows = re.findall(r"^\| (`.*?) \|", get_section(read_text("ARCHITECTURE.md"), "Rooms"), re.MULTILINE)
    assert [" | ".join(re.findall(r"`(\w+)(?:/|\.py)`", row)) for row in rows] == contracts[0]["layers"]


def test_each_row_of_the_map_is_short_and_names_what_is_in_its_files() -> None:
    rows = re.findall(
        r"^\| (?!I want|-)(.*) \|$", get_section(read_text("ARCHITECTURE.md"), "Where to change what"), re.MULTILINE
    )
    assert rows
    for row in rows:
        assert len(re.sub(r"\]\([^)]*\)", "", row)) <= MAX_ROW_CHARS, row
        places = [ROOT / link.partition("#")[0] for link in _LINK.findall(row)]
        files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        for name in re.findall(r"`(\w*[A-Z_]\w*)`", row):
            assert re.search(rf"\b{name}\b", text), f"{name} is in no file of its row: {row}"


def test_the_index_of_the_manual_links_to_every_page() -> None:
    for directory in (ROOT / "docs", ROOT / "docs" / "adr"):
        index = directory / "README.md"
        links = _LINK.findall(index.read_text(encoding="utf-8"))
        linked = {(directory / link.partition("#")[0]).resolve() for link in links}
        assert {page.resolve() for page in directory.glob("*.md")} - {index.resolve()} <= linked


def test_decisions_are_numbered_and_list_rejected_alternatives() -> None:
    numbers = [int(adr.name[:4]) for adr in ADRS]
    assert numbers == sorted(set(numbers))
    for adr in ADRS:
        titles = _HEADING.findall(adr.read_text(encoding="utf-8"))
        assert titles[0].startswith(f"{int(adr.name[:4])}. ")
        assert {"Context", "Decision", "Consequences", "Not taken"} <= set(titles), adr.name


# ── dependencies ─────────────────────────────────────────────────────────────────────────────────


def test_every_dependency_has_documented_reasons() -> None:
    project = tomllib.loads(read_text("pyproject.toml"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += [requirement for extra in project["project"]["optional-dependencies"].values() for requirement in extra]
    wanted += [requirement for group in project["dependency-groups"].values() for requirement in group]
    known = {name.lower() for name in find_code_names(read_text("docs/dependencies.md"))}
    for requirement in wanted:
        matched = re.match(r"[\w.-]+", requirement)
        assert matched
        assert matched[0].lower() in known, f"docs/dependencies.md does not speak of {matched[0]}"


# ── the command line ─────────────────────────────────────────────────────────────────────────────


def test_the_manual_describes_every_command_with_its_options() -> None:
    manual = read_text("docs/cli.md")
    everywhere = get_section(manual, "Options of every command")
    for option in get_options(build_parser()) | _COMMON_OPTIONS:
        assert f"`{option}" in everywhere, f"{option} is not described"
    for name, parser in get_sub_commands(build_parser()).items():
        about = get_section(manual, name)
        assert f"$ wikiholt {name}" in about, f"there is no example of {name}"
        for option in get_options(parser) - _COMMON_OPTIONS:
            assert f"`{option}" in about, f"{name} {option} is not described"


def test_the_manual_describes_no_option_that_does_not_exist() -> None:
    parsers = [build_parser(), *get_sub_commands(build_parser()).values()]
    exists = {option for parser in parsers for option in get_options(parser)} | {"--help"}
    written = {
        match
        for code in find_code_names(read_text("docs/cli.md"))
        for match in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
    }
    assert written <= exists


def read_exit_codes() -> dict[int, str]:
    rows = re.findall(r"^\| (\d+) \|(.*)$", get_section(read_text("docs/cli.md"), "Exit codes"), re.MULTILINE)
    return {int(code): rest for code, rest in rows}


def test_exit_codes_of_the_manual_are_those_of_the_errors() -> None:
    table = read_exit_codes()
    families = {family.exit_code: family for family in WikiholtError.__subclasses__()}
    ends = {
        0,
        NOTHING_FOUND_EXIT_CODE,
        PROBLEMS_FOUND_EXIT_CODE,
        UNEXPECTED_EXIT_CODE,
        INTERRUPTED_EXIT_CODE,
    }
    assert set(table) == set(families) | ends
    for kind in list_error_classes():
        if kind is not WikiholtError:
            assert f"`{kind.code}`" in table[kind.exit_code], f"{kind.code} is not listed at {kind.exit_code}"


def list_error_classes() -> list[type[WikiholtError]]:
    kinds = [kind for kind in vars(wikiholt.errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, WikiholtError)]


def test_help_and_manual_list_the_same_exit_codes() -> None:
    documented = {int(code) for code in re.findall(r"(?<!\S)(\d+) (?=[A-Za-z])", EXIT_CODES)}
    assert documented == set(read_exit_codes())


def test_every_field_of_an_answer_is_described() -> None:
    manual = read_text("docs/cli.md")
    now = datetime(2024, 5, 31, tzinfo=UTC)
    hit = Hit("", "", "", Snippet(""), 0.5, 0.5, Confidence.LOW, (), (), "", 1, 1, 0, None, (), now)
    answer = SearchResult("", SearchMode.HYBRID, (hit,), 1, 0.1, None, None, False, False, False)
    for title, document in (
        ("Fields of an answer", build_result_document(answer)),
        ("Fields of a hit", build_hit_document(hit)),
    ):
        rows = re.findall(r"^\| `(\w+)` \|", get_section(manual, title), re.MULTILINE)
        assert rows == list(document), title


def test_reserved_slugs_are_listed() -> None:
    section = (ROOT / "docs" / "cli.md").read_text("utf-8").split("\n### add\n")[1].split("\n### ")[0]
    paragraph = next(part for part in section.split("\n\n") if part.startswith("Reserved names"))
    assert re.findall(r"`([^`]+)`", paragraph) == sorted(RESERVED_SLUGS)
