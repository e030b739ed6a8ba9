"""The regular expressions that read the text of pages, and texts that make a careless one slow."""

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import wikiholt
from wikiholt.interfaces.web import markdown_rules

_SOURCES = Path(wikiholt.__file__).parent
_PACKAGES = ("domain", "text", "models", "index", "search", "wikis", "interfaces/web", "api/documents")
_FILES = ("interfaces/cli/terminal_markdown.py", "interfaces/cli/output.py", "interfaces/cli/hit_output.py")
_WITHOUT_PACKAGE = {"torch_encoder"}
"""Modules that cannot be imported without a package that few have."""
_ANCHORED_METHODS = {"match", "fullmatch"}
_MAX_SET_CHARS = 8
_MAX_PAIRED_CHARS = 6


@dataclass(frozen=True)
class PagePattern:
    """A pattern, where it is, and whether it is only matched at one position, never searched for."""

    pattern: re.Pattern[str]
    place: str
    anchored: bool

    def parse(self) -> Any:
        return parser.parse(self.pattern.pattern, self.pattern.flags)


def collect_patterns() -> list[PagePattern]:
    """Every pattern of the modules that see the text of pages: in variables, in calls of `re`, and in code colours."""
    found: dict[str, PagePattern] = {}
    for file in _find_sources():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        place = file.relative_to(_SOURCES).as_posix()
        module = importlib.import_module(f"wikiholt.{place.removesuffix('.py').replace('/', '.')}")
        for each in (*_find_in_variables(module, tree, place), *_find_in_calls(tree, place), *_find_colors(module)):
            known = found.get(each.pattern.pattern)
            if known is None or known.anchored:
                found[each.pattern.pattern] = each
    return list(found.values())


def _find_sources() -> Iterator[Path]:
    for package in _PACKAGES:
        for file in sorted((_SOURCES / package).rglob("*.py")):
            if file.stem not in {"__init__", "__main__", *_WITHOUT_PACKAGE}:
                yield file
    yield from (_SOURCES / file for file in _FILES)


def _find_in_variables(module: ModuleType, tree: ast.Module, place: str) -> Iterator[PagePattern]:
    uses = _find_uses(tree)
    for name, value in vars(module).items():
        for pattern in _iter_patterns(value):
            if isinstance(pattern.pattern, str):
                methods = uses.get(name, set())
                yield PagePattern(pattern, f"{place} {name}", bool(methods) and methods <= _ANCHORED_METHODS)


def _find_uses(tree: ast.Module) -> dict[str, set[str]]:
    """The methods that a module calls on each variable; an empty string if it uses the variable in another way."""
    uses: dict[str, set[str]] = {}
    of_methods = set()
    for node in ast.walk(tree):  # an attribute comes before its variable
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of_methods.add(node.value)
            uses.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in of_methods:
            uses.setdefault(node.id, set()).add("")
    return uses


def _iter_patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from (each for each in value.values() if isinstance(each, re.Pattern))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (each for each in value if isinstance(each, re.Pattern))


def _find_in_calls(tree: ast.Module, place: str) -> Iterator[PagePattern]:
    """Patterns that are written in a call such as `re.sub`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "re"
            and node.func.attr not in {"compile", "escape"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            pattern = re.compile(node.args[0].value)
            yield PagePattern(pattern, f"{place}:{node.lineno}", node.func.attr in _ANCHORED_METHODS)


def _find_colors(module: ModuleType) -> Iterator[PagePattern]:
    if module is markdown_rules:
        for language in markdown_rules._LANGUAGES:
            if pattern := markdown_rules._get_pattern(language):
                yield PagePattern(pattern, f"colours of {language}", anchored=False)


def make_pieces(parsed: Any) -> set[str]:
    """Short texts that, repeated, make a careless pattern slow: its characters, their pairs, and its beginnings."""
    chars: set[str] = set()
    pieces: set[str] = set()
    _collect_pieces(parsed, chars, pieces)
    if len(chars) <= _MAX_PAIRED_CHARS:
        pieces |= {one + other for one in chars for other in chars}
    return (pieces | chars) - {""}


def _collect_pieces(items: Iterable[Any], chars: set[str], pieces: set[str]) -> None:
    beginning = ""
    for kind, value in items:
        name = str(kind)
        beginning += _make_shortest([(kind, value)])
        pieces.add(beginning)
        if name in {"LITERAL", "NOT_LITERAL"}:
            chars.add(chr(value))
        elif name == "IN":
            chars.update(_list_members(value)[:_MAX_SET_CHARS])
        elif name == "ANY":
            chars.add("a")
        for inner in _get_inner(name, value):
            pieces.add(_make_shortest(inner))
            _collect_pieces(inner, chars, pieces)


def _get_inner(name: str, value: Any) -> list[Any]:
    """The parts inside a part of a parsed pattern."""
    if name.endswith("_REPEAT"):
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    if name == "ATOMIC_GROUP":
        return [value]
    if name == "BRANCH":
        return list(value[1])
    return [value[1]] if name in {"ASSERT", "ASSERT_NOT"} else []


def _make_shortest(items: Iterable[Any]) -> str:
    """A short text that parts of a pattern match."""
    text = ""
    for kind, value in items:
        name = str(kind)
        if name == "LITERAL":
            text += chr(value)
        elif name in {"ANY", "NOT_LITERAL"}:
            text += "a"
        elif name == "IN":
            text += next(iter(_list_members(value)), "")
        elif name.endswith("_REPEAT"):
            text += _make_shortest(value[2]) * value[0]
        elif name in {"SUBPATTERN", "ATOMIC_GROUP", "BRANCH"}:
            text += _make_shortest(_get_inner(name, value)[0])
    return text


_CATEGORY_CHARS = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_NOT_WORD": " "}


def _list_members(items: Any) -> list[str]:
    """Some characters of a set. A negated one has every character that it does not name."""
    named = []
    for kind, value in items:
        if str(kind) == "LITERAL":
            named.append(chr(value))
        elif str(kind) == "RANGE":
            named.append(chr(value[0]))
        elif str(kind) == "CATEGORY":
            named.append(_CATEGORY_CHARS.get(str(value), "a"))
    if str(items[0][0]) != "NEGATE":
        return named
    return [char for char in "a 0.\n" if char not in named] + named
