"""What separates an index from a tree, and so what a sync has to do; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikiholt.domain.git import TreeChange, TreeEntry
from wikiholt.domain.page import PageProblem

TRANSIENT_REASONS = ("unreadable", "failed")
"""Reasons that may go away without the page being edited, so that a sync tries again."""


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What separates an index from a tree."""

    to_index: tuple[str, ...]
    """Files to index: new, changed, or listed as a problem before."""
    moved: Mapping[str, str]
    """New file → the file whose content it has and which is gone."""
    deleted: tuple[str, ...]
    """Files that are gone and whose content did not move."""
    changed: frozenset[str]
    added: frozenset[str]
    deleted_pages: int
    """How many of the deleted were pages, not problems."""


def build_plan(tree: Mapping[str, TreeEntry], indexed: Mapping[str, str], problems: Sequence[PageProblem]) -> SyncPlan:
    """Compare a tree with what an index holds; pure."""
    listed = {problem.file for problem in problems}
    settled = {problem.file: problem.blob for problem in problems if problem.reason not in TRANSIENT_REASONS}
    known = {**settled, **indexed}
    put = tuple(sorted(file for file, entry in tree.items() if known.get(file) != entry.blob))
    gone = sorted(file for file in indexed if file not in tree)
    by_blob: dict[str, list[str]] = {}
    for file in reversed(gone):
        by_blob.setdefault(indexed[file], []).append(file)
    moved = {}
    for file in put:
        if file not in indexed and (old := by_blob.get(tree[file].blob)):
            moved[file] = old.pop()
    left = set(gone) - set(moved.values()) | {file for file in listed if file not in tree}
    changed = frozenset(file for file in put if file in indexed)
    added = frozenset(put) - changed - moved.keys()
    return SyncPlan(put, moved, tuple(sorted(left)), changed, added, len(gone) - len(moved))


@dataclass(frozen=True, slots=True)
class SyncWork:
    """What a sync has before it: the plan, the entries of the files to put, and how many pages there will be."""

    plan: SyncPlan
    entries: Mapping[str, TreeEntry]
    page_count: int
    tree: Mapping[str, TreeEntry] | None
    """The whole tree, where the whole was compared; None where only the difference to a trusted state was."""


def plan_from_diff(changes: Sequence[TreeChange], problems: Sequence[PageProblem], page_count: int) -> SyncWork:
    """The work between two trees of which the index holds the older one."""
    odd = {problem.file for problem in problems}
    touched = {change.file for change in changes}
    was = {change.file: change.old.blob for change in changes if change.old and change.file not in odd}
    page_count += sum((change.new is not None) - (change.old is not None) for change in changes)
    entries = {change.file: change.new for change in changes if change.new}
    for problem in problems:
        if problem.file not in touched:
            entries[problem.file] = TreeEntry(problem.blob)
    todo = build_plan(entries, was, problems)
    return SyncWork(todo, {file: entries[file] for file in todo.to_index}, page_count, None)
