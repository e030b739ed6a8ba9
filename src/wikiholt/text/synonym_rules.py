"""The rules by which words of a query have synonyms: as a setting, and on a page of the wiki."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wikiholt.domain.search import StoredChunk

SYNONYM_PAGE = "_synonyms"
"""The path of the page with the rules of a wiki."""
MAX_PAGE_RULES = 1000


class SynonymRules(NamedTuple):
    """The rules of a wiki."""

    rules: tuple[str, ...] = ()
    page_id: int = -1
    """The page that has some of them; no page has this id."""


_LIST_MARK = re.compile(r"\A\s*(?:[-*+]|[0-9]{1,9}[.)])\s")
_MAX_SYNONYMS, _MAX_SYNONYM_CHARS = 6, 60
"""Limits of a rule: its names, and the length of each."""
_SYNONYM_SEPARATOR = re.compile("[=>]")


def check_synonym_rule(rule: str) -> str:
    """The reason why a rule is invalid, or an empty string."""
    names = _SYNONYM_SEPARATOR.split(rule)
    if len(names) < 2 or rule.count(">") > 1 or not all(any(map(str.isalnum, name)) for name in names):
        return "write other words with = or, for one direction, with >: PTO = vacation = annual leave, k8s > kubernetes"
    if len(names) > _MAX_SYNONYMS or any(len(name.strip()) > _MAX_SYNONYM_CHARS for name in names):
        return f"use at most {_MAX_SYNONYMS} names of at most {_MAX_SYNONYM_CHARS} characters"
    return "leave out quotation marks: several words are a phrase" if re.search('["“”„«»]', rule) else ""


def read_synonym_rules(chunks: Iterable[StoredChunk]) -> Sequence[str]:
    """The rules on a page: its lines and list items that are valid rules. Rules are also separated by commas."""
    lines: dict[int, str] = {}
    for chunk in chunks:
        for number, line in enumerate(chunk.text.split("\n"), chunk.first_line):
            # A chunk may begin or end within a line, which the one beside it has in full.
            lines[number] = max(lines.get(number, ""), line, key=len)
    rules = (rule.strip() for line in lines.values() for rule in _LIST_MARK.sub("", line).split(","))
    return [rule for rule in rules if not check_synonym_rule(rule)][:MAX_PAGE_RULES]
