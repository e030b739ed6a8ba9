"""The audit of `make check`: what it finds, and what it prints when it cannot look up vulnerabilities."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HASH = "--hash=sha256:" + "a" * 64


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


def test_every_locked_package_has_hashes(audit: ModuleType) -> None:
    pins = audit.locked((ROOT / "requirements.lock").read_text())
    assert len(pins) > 50
    assert list(audit.without_hashes(pins)) == []
    one = audit.locked(
        f"# top\nGood-One==1.2 ; python_version < '3' \\\n    {HASH}\n    # via x\nbad==3\n    # via y\n"
    )
    assert one == {"good-one": ("1.2", 1), "bad": ("3", 0)}
    assert list(audit.without_hashes(one)) == ["bad 3 has no hash in requirements.lock"]


def test_known_bad_versions_are_reported_with_their_reason(audit: ModuleType) -> None:
    entries = [{"package": "H11", "versions": "<0.16", "reason": "smuggling"}]
    assert list(audit.known_bad({"h11": ("0.15.9", 1)}, entries)) == ["H11 0.15.9 is known to be bad: smuggling"]
    assert list(audit.known_bad({"h11": ("0.16.0", 1)}, entries)) == []


def test_an_unreviewed_licence_is_reported(audit: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit.licences("numpy") <= audit.LICENCES
    monkeypatch.setattr(audit, "licences", lambda _: {"MIT", "SSPL-1.0"})
    assert list(audit.of_other_licences({"x": ("1", 1)})) == ["x is under SSPL-1.0: look at it"]
    monkeypatch.setattr(audit, "licences", lambda _: set())
    assert "no licence" in next(audit.of_other_licences({"x": ("1", 1)}))


def test_a_package_that_is_not_imported_is_reported(audit: ModuleType) -> None:
    project = {
        "project": {"dependencies": ["numpy>=2", "playwright"], "optional-dependencies": {}},
        "dependency-groups": {"dev": []},
    }
    (finding,) = audit.unused(project)
    assert finding.startswith("playwright ")


@pytest.mark.slow
def test_published_vulnerabilities_fail_and_a_missing_lookup_is_reported(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "_vulnerabilities", lambda *_: None)
    assert audit.main([]) == 0
    assert "NOT looked up" in capsys.readouterr().out
    monkeypatch.setattr(audit, "_vulnerabilities", lambda name, *_: ["PYSEC-1 bad"] if name == "h11" else [])
    assert audit.main([]) == 1
    assert "h11" in capsys.readouterr().out
    assert audit.published({"h11": ("1", 1)}, {"PYSEC-1"}) == ([], 1)
