"""Otterwiki finds the installed plugin, and the installation changes no version that Otterwiki pins."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.paths import ROOT, SOURCES


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(place), str(ROOT)], check=True, capture_output=True)
    return next(place.glob("*.whl"))


def test_the_wheel_declares_the_plugin_and_contains_its_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        entries = packed.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "[otterwiki]\nwikiholt = wikiholt.interfaces.otterwiki.plugin:plugin" in entries
    source = SOURCES / "wikiholt" / "interfaces" / "otterwiki"
    files = [file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert len(files) > 5
    for file in files:
        assert file.relative_to(SOURCES).as_posix() in names


def test_installing_it_with_otterwiki_changes_no_other_package(wheel: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    both = [f"wikiholt[otterwiki] @ {wheel.as_uri()}", "otterwiki==2.26.1"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet", "--report", str(report)]
    completed = subprocess.run([*command, *both], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    installed = json.loads(report.read_text())["install"]
    assert [item["metadata"]["name"] for item in installed] == ["wikiholt"]


def test_installed_versions_match_the_pins_of_otterwiki_and_fit_our_requirements() -> None:
    needed = map(Requirement, importlib.metadata.requires("otterwiki") or [])
    pins = [
        requirement
        for requirement in needed
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    assert len(pins) > 10
    requirements = {
        requirement.name.lower(): requirement
        for requirement in map(Requirement, importlib.metadata.requires("wikiholt") or [])
    }
    for pin in pins:
        version = importlib.metadata.version(pin.name)
        assert version in pin.specifier, pin
        assert pin.name.lower() not in requirements or version in requirements[pin.name.lower()].specifier
