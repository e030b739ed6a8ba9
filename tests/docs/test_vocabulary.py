"""Words that this project does not use. A reader with basic English should never stop at a sentence."""

import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".js", ".html", ".css", ".md", ".toml"}
FOLDERS = ("src/wikiholt", "tests", "bench", "docs", "deploy")
EXEMPT = {
    "src/wikiholt/interfaces/cli/demo_wikis",  # example pages, written as people write
    "src/wikiholt/text/languages.py",  # stopwords
    "tests/docs/test_vocabulary.py",
    "tests/support/vendor",  # axe-core
    "tests/models/test_word_vectors.py",  # an example page
    "CHANGELOG.md",  # names what was renamed
}
RETIRED = {
    r"anew": "again, from scratch",
    r"whoever|whomever": "the caller, everyone who",
    r"stands? for": "means, represents",
    r"so many|so much": "a number",
    r"had better": "should",
    r"told": "received, was notified",
    r"mend(?:s|ed|ing)?": "repair",
    r"keepers?": "scheduler",
    r"desks?": "activity lock",
    r"diary|scribe": "query log",
    r"wards?": "fixture",
    r"lies|lay": "is stored, is",
    r"of (?:ours|yours)": "own",
    r"gone around": "bypassed",
    r"taken up": "used, continued",
    r"foresee\w*": "estimate",
    r"lacking": "missing",
    r"akin|likeness|kindred": "similar",
    r"doth|hath|thereof|whence|thither|hither": "plain words",
    r"grounds": "backends, reasons",
    r"rivals?": "competition",
    r"deeds?|blows?": "operation, failure",
    r"offboard\w*": "removal",
    r"is told|are told|to tell": "is notified, reports",
}
_PATTERN = re.compile(rf"(?<![\w'-])(?:{'|'.join(f'(?:{word})' for word in RETIRED)})(?![\w'-])", re.IGNORECASE)


def iter_files() -> Iterator[Path]:
    files = list(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for directory, subdirectories, names in os.walk(ROOT / folder):
            if folder == "bench":
                subdirectories[:] = set(subdirectories) - {"data"}  # thousands of wikis of other people
            files += [Path(directory, name) for name in names]
    for file in sorted(files):
        name = file.relative_to(ROOT).as_posix()
        if file.suffix in SUFFIXES and not any(name.startswith(exempt) for exempt in EXEMPT):
            yield file


def find_retired_words(text: str) -> list[str]:
    """Every line with a retired word, also inside an identifier such as `test_keeper_stops`."""
    return [line.strip() for line in text.splitlines() if _PATTERN.search(line.replace("_", " "))]


@pytest.mark.parametrize("text", ["def wake_keeper(): ...", "The index is built anew.", "# whoever asks"])
def test_a_retired_word_is_found(text: str) -> None:
    assert find_retired_words(text)


def test_no_file_uses_a_retired_word() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {line[:100]}"
        for file in iter_files()
        for line in find_retired_words(file.read_text())
    ]
    assert not found, f"{len(found)} lines use retired words; see RETIRED for what to write instead:\n" + "\n".join(
        found
    )


EXAMPLE_NAMES = {"due_date", "WIKIHOLT_", "WIKIHOLT_CONFIG", "_up"}
"""Names in docstrings that are not names of the code: a property, environment variables, the end of a metric."""


def test_names_in_docstrings_and_comments_exist() -> None:
    names: set[str] = set()
    references: dict[str, str] = {}
    for file in (ROOT / "src").rglob("*.py"):
        with file.open("rb") as source:
            for token in tokenize.tokenize(source.readline):
                if token.type == tokenize.NAME:
                    names.add(token.string)
                elif token.type == tokenize.COMMENT or token.string.startswith('"""'):
                    for reference in re.findall(r"`(?:\w+\.)*(\w+)(?:\(\))?`", token.string):
                        references[reference] = f"{file.name}:{token.start[0]}"
    # A single lower-case word may be a command, a setting or a value.
    missing = {name for name in references if re.search(r"[A-Z]\w*[a-z]|_", name)} - names - EXAMPLE_NAMES
    assert not {name: references[name] for name in missing}
