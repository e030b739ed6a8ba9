"""Regular expressions use only features that every supported interpreter matches correctly.

Python before 3.11.5 has a bug with a possessive quantifier after a group: it may match too much, or never end. A
possessive quantifier after one character or set is correct everywhere, and so is an atomic group without captures.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import wikiholt.text
from tests.support.page_patterns import collect_patterns

_SOURCES = Path(wikiholt.text.__file__).resolve().parents[1]
_QUANTIFIER = r"(?:[*+?]|\{\d*,?\d*\})\+"
_BEHIND_GROUP = re.compile(rf"(?<!\\)\){_QUANTIFIER}")
_BEHIND_FIELD = re.compile(_QUANTIFIER)


def find_possessive_groups(source: str) -> list[str]:
    """The string literals of a module with a possessive quantifier after a group, or after `{...}`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _BEHIND_GROUP.search(node.value):
            found.append(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = zip(node.values, node.values[1:], strict=False)
            found += [
                after.value
                for before, after in parts
                if isinstance(before, ast.FormattedValue)
                and isinstance(after, ast.Constant)
                and _BEHIND_FIELD.match(str(after.value))
            ]
    return found


def find_captures_in_atomic_groups(parsed: Any, *, atomic: bool = False) -> Iterator[str]:
    """Captures inside atomic groups, which several Python versions restore wrongly after a failed match."""
    if isinstance(parsed, list | tuple | parser.SubPattern):
        items = list(parsed)
        if len(items) == 2 and str(items[0]) == "SUBPATTERN" and atomic and items[1][0] is not None:
            yield f"group {items[1][0]}"
        inside = atomic or (len(items) == 2 and str(items[0]) == "ATOMIC_GROUP")
        for item in items:
            yield from find_captures_in_atomic_groups(item, atomic=inside)


@pytest.mark.parametrize("source", [r'x = r"(?:ab?c)*+"', r'x = r"(a)?+b"', r'x = r"(?:a){2,3}+"', r'x = rf"{y}++"'])
def test_a_possessive_group_is_found(source: str) -> None:
    assert find_possessive_groups(source)


@pytest.mark.parametrize("source", [r'x = r"[^a]*+\)*+b++.{1,3}+"', r'x = r"(?>(?:ab?c)*)"', r'x = rf"{y}[ab]*+"'])
def test_other_patterns_are_left_alone(source: str) -> None:
    assert not find_possessive_groups(source)


@pytest.mark.slow
def test_no_pattern_has_a_possessive_quantifier_after_a_group() -> None:
    found = {
        str(path.relative_to(_SOURCES)): strings
        for path in sorted(_SOURCES.rglob("*.py"))
        if (strings := find_possessive_groups(path.read_text()))
    }
    assert not found, f"write (?>(?:...)*) for (?:...)*+ in {found}"


@pytest.mark.slow
def test_no_atomic_group_captures() -> None:
    assert list(find_captures_in_atomic_groups(parser.parse("(?>(?:(a)|b)*)c")))
    patterns = collect_patterns()
    assert len(patterns) > 200
    assert not [each.place for each in patterns if any(find_captures_in_atomic_groups(each.parse()))]
