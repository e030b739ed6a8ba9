"""The release script refuses a tree that is not ready, the long tests can run, and CI runs each test once."""

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.support.git_repository import Repository
from tests.support.paths import ROOT
from tests.support.tiers import RESOURCES

VERSIONS = {
    "pyproject.toml": 'version = "1.2.0"\n',
    "src/wikiholt/__init__.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2027-01-31)\n",
}


def run_release(repository: Repository, *arguments: str) -> tuple[int, str]:
    command = ["sh", str(repository.path / "tools" / "release.sh"), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return process.returncode, process.stderr.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "checkout")
    (repository.path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "release.sh", repository.path / "tools")
    repository.commit(dict(VERSIONS))
    repository.run_git("branch", "-M", "main")
    return repository


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("pyproject.toml", 'version = "1.1.0"\n', "pyproject.toml has another version"),
        ("src/wikiholt/__init__.py", "", "__version__ is not 1.2.0"),
        ("CHANGELOG.md", "## 1.2.0 (unreleased)\n", "CHANGELOG.md has no heading"),
    ],
)
def test_every_file_must_name_the_version(repository: Repository, file: str, text: str, reason: str) -> None:
    assert run_release(repository, "--check", "1.2.0") == (0, "")
    repository.commit({file: text})
    code, error = run_release(repository, "--check", "1.2.0")
    assert code == 1
    assert error.startswith(f"no release: {reason}")


def test_the_tree_must_be_clean_on_main_and_the_tag_new(repository: Repository) -> None:
    (repository.path / "new.txt").write_text("x")
    assert run_release(repository, "1.2.0") == (1, "no release: there are changes that are not committed")
    (repository.path / "new.txt").unlink()
    repository.run_git("tag", "v1.2.0")
    assert run_release(repository, "1.2.0") == (1, "no release: the tag v1.2.0 exists")
    repository.run_git("checkout", "-q", "-b", "other")
    assert run_release(repository, "1.2.0") == (1, "no release: the branch is not main")


def test_no_variable_of_the_tests_looks_like_a_setting() -> None:
    """Every command refuses an unknown variable that starts with WIKIHOLT_, so the long form would fail."""
    for name in ("Makefile", "tests/conftest.py", "tests/support/tiers.py"):
        text = (ROOT / name).read_text().replace('"WIKIHOLT_SEARCH_KEEP_WARM"', "")  # a setting
        assert "WIKIHOLT_" not in text, name


def test_each_test_is_in_one_job_of_ci() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    selections = jobs["test"]["strategy"]["matrix"]["select"]
    names = sorted(RESOURCES | {"gate", "slow"})
    for values in product((False, True), repeat=len(names)):
        markers = dict(zip(names, values, strict=True))
        chosen = [selection for selection in selections if eval(selection, {}, markers)]
        assert len(chosen) == 1, markers
