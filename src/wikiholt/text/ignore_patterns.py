"""Matches file paths against patterns with the syntax of `.gitignore`.

The exact rules, for paths relative to the wiki's subdirectory, case-sensitive unless the caller says otherwise:

- `*` matches any characters except `/`, `?` matches one of them, `[abc]`, `[a-z]`, `[!a]` match one of a set; a
  backslash escapes the next character.
- A `/` at the start or in the middle anchors the pattern at the root: `/private`, `notes/*.md`. Without one it matches
  at any depth: `*.tmp.md`, `drafts`.
- A `/` at the end matches directories only: `drafts/`.
- `**/` at the start or `/**/` in the middle matches any number of directories, `/**` at the end everything inside.
- A pattern that matches a directory matches everything in it.
- `!` at the start negates: the last pattern that matches a file or one of its parent directories decides.
- Empty patterns and patterns that start with `#` are ignored.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial

_WILDCARDS = {"directories": "(?:[^/]+/)*", "inside": ".+", "any": "[^/]*", "one": "[^/]"}
_PATTERN_TOKEN = re.compile(
    r"(?P<directories>(?:\A|(?<=/))\*\*/)|(?P<inside>(?:\A|(?<=/))\*\*\Z)|(?P<any>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^\]/]*)\]|\\(?P<escaped>.)|(?P<plain>.)",
    re.DOTALL,
)


def build_matcher(patterns: Iterable[str], ignore_case: bool = False) -> Callable[[str], bool]:
    """A function that tells whether the patterns match a file's path."""
    rules = []
    for pattern in patterns:
        text = pattern.strip()
        if _is_rule(text):
            rules.append((not text.startswith("!"), _compile_pattern(text.removeprefix("!"), ignore_case)))
    return partial(_is_matched, rules[::-1])


def find_unused_patterns(patterns: Iterable[str], files: Collection[str], ignore_case: bool = False) -> list[str]:
    """The patterns that match none of the files."""
    rules = [text for pattern in patterns if _is_rule(text := pattern.strip())]
    compiled = {text: _compile_pattern(text.removeprefix("!"), ignore_case) for text in rules}
    return [text for text, pattern in compiled.items() if not any(map(pattern.match, files))]


def count_ignored(patterns: Iterable[str], files: Iterable[str]) -> dict[str, int]:
    """How many of the files each pattern excludes; of several that match a file, the last one counts."""
    rules = [(text, _compile_pattern(text.removeprefix("!"))) for text in map(str.strip, patterns) if _is_rule(text)]
    deciding = (next((text for text, pattern in reversed(rules) if pattern.match(file)), "!") for file in files)
    return dict(Counter(text for text in deciding if not text.startswith("!")))


def _is_rule(text: str) -> bool:
    return bool(text.strip("!/")) and not text.startswith("#")


def _is_matched(rules: list[tuple[bool, re.Pattern[str]]], path: str) -> bool:
    return next((is_match for is_match, pattern in rules if pattern.match(path)), False)


def _compile_pattern(pattern: str, ignore_case: bool = False) -> re.Pattern[str]:
    """A regular expression that matches a path if the pattern matches it or one of its parent directories."""
    directories_only = pattern.endswith("/")
    body = pattern.rstrip("/")
    anchored = "/" in body
    start = "" if anchored else "(?:.*/)?"
    end = "/" if directories_only else r"(?:/|\Z)"
    return re.compile(
        start + _translate_pattern(body.lstrip("/")) + end, re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    )


def _translate_pattern(body: str) -> str:
    """The regular expression for a pattern: parts between wildcards, by directory and by name."""
    groups: list[list[list[str]]] = [[[""]]]
    for token in _PATTERN_TOKEN.finditer(body):
        if token["directories"]:
            groups.append([[""]])
        elif token["plain"] == "/":
            groups[-1].append([""])
        elif token["any"]:
            groups[-1][-1].append("")
        else:
            groups[-1][-1][-1] += _translate_token(token)
    names = ["/".join(_join_parts(name, _WILDCARDS["any"]) for name in group) for group in groups]
    return _join_parts(names, _WILDCARDS["directories"])


def _join_parts(parts: list[str], wildcard: str) -> str:
    """The parts joined by a wildcard.

    A part that another wildcard follows is matched where it first fits, without backtracking: a later position could
    not help, and trying all combinations takes exponential time.
    """
    first, *rest = parts
    if not rest:
        return first
    return first + "".join(f"(?>{wildcard}?{part})" for part in rest[:-1]) + wildcard + rest[-1]


def _translate_token(token: re.Match[str]) -> str:
    """The regular expression for one token of a pattern."""
    if token["set"] is not None:
        return _build_character_set(token["not"], token["set"])
    if token.lastgroup in _WILDCARDS:
        return _WILDCARDS[token.lastgroup]
    return re.escape(token["escaped"] or token["plain"])


def _build_character_set(negation: str, members: str) -> str:
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    expression = f"[{'^' if negation else ''}{escaped}]"
    try:
        re.compile(expression)
    except re.error:  # a reversed range matches nothing
        return "(?!)"
    return f"(?!/){expression}"
