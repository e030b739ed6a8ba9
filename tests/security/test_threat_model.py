"""The tests that the threat model names exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MANUAL = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_the_threat_model_names_exists() -> None:
    sources = {file.relative_to(TESTS).as_posix(): file.read_text("utf-8") for file in TESTS.rglob("test_*.py")}
    files = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", MANUAL))
    assert len(files) > 10
    assert files <= set(sources)
    written = {name for text in sources.values() for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", MANUAL))
    assert len(named) > 20
    assert named <= written


def test_every_security_test_is_named_in_the_threat_model() -> None:
    files = (
        "test_hostile_repositories",
        "test_unauthenticated",
        "browser/test_browser_attacks",
        "process/test_secrets",
    )
    for name in files:
        text = (TESTS / "security" / f"{name}.py").read_text(encoding="utf-8")
        for test in re.findall(r"^def (test_\w+)", text, re.MULTILINE):
            assert f"`{test}`" in MANUAL, test
