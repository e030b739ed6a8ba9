"""What separates an index from a tree, and so what a sync has to do; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikiholt.model import Problem, TreeChange, TreeEntry

TRANSIENT = ("unreadable", "failed")
"""Reasons that may go away without the page being edited, so that a sync tries again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What separates an index from a tree."""

    put: tuple[str, ...]
    """Files to index: new, changed, or listed as a problem before."""
    moved: Mapping[str, str]
    """New file → the file whose content it has and which is gone."""
    deleted: tuple[str, ...]
    """Files that are gone and whose content did not move."""
    changed: frozenset[str]
    added: frozenset[str]
    gone: int
    """How many of the deleted were pages, not problems."""


def plan(tree: Mapping[str, TreeEntry], have: Mapping[str, str], problems: Sequence[Problem]) -> Plan:
    """Compare a tree with what an index holds; pure."""
    listed = {problem.file for problem in problems}
    settled = {problem.file: problem.blob for problem in problems if problem.reason not in TRANSIENT}
    known = {**settled, **have}
    put = tuple(sorted(file for file, entry in tree.items() if known.get(file) != entry.blob))
    gone = sorted(file for file in have if file not in tree)
    by_blob: dict[str, list[str]] = {}
    for file in reversed(gone):
        by_blob.setdefault(have[file], []).append(file)
    moved = {}
    for file in put:
        if file not in have and (old := by_blob.get(tree[file].blob)):
            moved[file] = old.pop()
    left = set(gone) - set(moved.values()) | {file for file in listed if file not in tree}
    changed = frozenset(file for file in put if file in have)
    added = frozenset(put) - changed - moved.keys()
    return Plan(put, moved, tuple(sorted(left)), changed, added, len(gone) - len(moved))


@dataclass(frozen=True, slots=True)
class Work:
    """What a sync has before it: the plan, the entries of the files to put, and how many pages there will be."""

    plan: Plan
    entries: Mapping[str, TreeEntry]
    total: int
    tree: Mapping[str, TreeEntry] | None
    """The whole tree, where the whole was compared; None where only the difference to a trusted state was."""


def difference(changes: Sequence[TreeChange], listed: Sequence[Problem], total: int) -> Work:
    """The work between two trees of which the index holds the older one."""
    odd = {problem.file for problem in listed}
    touched = {change.file for change in changes}
    was = {change.file: change.old.blob for change in changes if change.old and change.file not in odd}
    total += sum((change.new is not None) - (change.old is not None) for change in changes)
    entries = {change.file: change.new for change in changes if change.new}
    for problem in listed:
        if problem.file not in touched:
            entries[problem.file] = TreeEntry(problem.blob)
    todo = plan(entries, was, listed)
    return Work(todo, {file: entries[file] for file in todo.put}, total, None)
