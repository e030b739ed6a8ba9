"""The text package gives the same results under every interpreter that is installed, and returns under each.

Interpreters are searched by name (`python3.11` to `python3.14`) in PATH and /usr/bin, in the versions beside a
directory of shims, and in the variable WIKIHOLT_TEST_PYTHONS (paths with a colon between them).
"""

import json
import os
import random
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_text import HOSTILE_PIECES
from tests.support.paths import ROOT, SOURCES
from tests.support.tiers import choose
from tests.text.markdown_samples import MALFORMED_TEXTS
from tests.text.wiki_dialects import DIALECT_PAGE

_PROBE = Path(__file__).parents[1] / "interpreter_probe.py"
_NAMES = ("python3.11", "python3.12", "python3.13", "python3.14")
_TIME_LIMIT_S = 150
# Extension modules are built for one interpreter. Both sides of the comparison use these in their place.
_STAND_INS = {
    "Stemmer.py": """
class Stemmer:
    def __init__(self, language, size):
        if language not in {"english", "german"}:
            raise KeyError(language)
    def stemWord(self, word):
        return word.removesuffix("ing").removesuffix("s")
""",
    "numpy/__init__.py": "float32 = float\nint64 = int\n",
    "numpy/typing.py": "class NDArray:\n    def __class_getitem__(cls, item):\n        return cls\n",
}


def find_interpreters() -> list[str]:
    """Every interpreter of a supported version except the running one, without duplicates."""
    directories = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    directories += [
        versions for each in directories if each.name == "shims" for versions in each.parent.glob("versions/*/bin")
    ]
    places = [each / name for each in (*directories, Path("/usr/bin")) if each.name != "shims" for name in _NAMES]
    places += [Path(entry) for entry in os.environ.get("WIKIHOLT_TEST_PYTHONS", "").split(os.pathsep) if entry]
    found = {os.path.realpath(place): str(place) for place in places if os.access(place, os.X_OK)}
    found.pop(os.path.realpath(sys.executable), None)
    return sorted(found.values())


def make_texts() -> list[str]:
    """Realistic pages, and pages made of pieces that are hard for patterns."""
    pages = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))[: choose(8, 3)]]
    chance = random.Random(11)
    mixed = ["".join(chance.choices(HOSTILE_PIECES, k=chance.randint(2, 40))) for _ in range(choose(400, 40))]
    words = ["word007q", "C++ and C# a.b-c's x.C++ a’b·c", "[a\\]b](c(d)e 'f') ![g][h] <img alt=\"i\">", "a.b" * 5_000]
    repeated = [piece * 50 for piece in HOSTILE_PIECES[:: choose(1, 3)]]
    return [*words, *MALFORMED_TEXTS.values(), DIALECT_PAGE, *pages, *repeated, *mixed]


@pytest.fixture(scope="module")
def fixture_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the dependencies that any interpreter can load, and the texts."""
    fixture_directory = tmp_path_factory.mktemp("interpreters")
    for name, source in _STAND_INS.items():
        file = fixture_directory / "packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    for package in ("markdown_it", "mdurl", "yaml"):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(Path(spec.origin).parent, fixture_directory / "packages" / package, ignore=ignored)
    (fixture_directory / "texts.json").write_text(json.dumps(make_texts()))
    return fixture_directory


def run_probe(interpreter: str, fixture_directory: Path) -> list[dict[str, Any]]:
    out = fixture_directory / "results.json"
    out.unlink(missing_ok=True)
    arguments = [fixture_directory / "packages", SOURCES, fixture_directory / "texts.json", out]
    done = subprocess.run(
        [interpreter, "-I", "-S", "-B", str(_PROBE), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(out.read_text())
    return results


@pytest.fixture(scope="module")
def expected(fixture_directory: Path) -> list[dict[str, Any]]:
    return run_probe(sys.executable, fixture_directory)


def test_the_probe_reads_what_it_is_given(fixture_directory: Path, expected: list[dict[str, Any]]) -> None:
    assert len(expected) == len(json.loads((fixture_directory / "texts.json").read_text()))
    assert expected[0]["terms"] == ["word007q"]
    assert expected[1]["terms"][0] == "c++"
    assert expected[2]["page"]["links"][0][0] == "c(d)e"


@pytest.mark.parametrize("interpreter", find_interpreters() or [""])
def test_every_interpreter_reads_text_the_same_way(
    interpreter: str, fixture_directory: Path, expected: list[dict[str, Any]]
) -> None:
    if not interpreter:
        pytest.skip("no other interpreter of a supported version is installed")
    known = subprocess.run([interpreter, "-V"], capture_output=True, text=True, check=False, timeout=30)
    if known.returncode:
        pytest.skip(f"{interpreter} does not start: {known.stderr.strip()}")
    results = run_probe(interpreter, fixture_directory)
    texts = json.loads((fixture_directory / "texts.json").read_text())
    different = [
        (text[:80], step, result[step], wanted[step])
        for text, result, wanted in zip(texts, results, expected, strict=True)
        for step in wanted
        if result[step] != wanted[step]
    ]
    assert not different, f"{known.stdout.strip()}: {len(different)} results differ, the first: {different[0]}"
