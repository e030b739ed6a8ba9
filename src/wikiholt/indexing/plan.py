"""The difference between an index and a tree, and the work a sync has to do. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikiholt.domain.git import TreeChange, TreeEntry
from wikiholt.domain.page import PageProblem

TRANSIENT_REASONS = ("unreadable", "failed")
"""Reasons that may disappear without an edit of the page, so each sync tries again."""


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The difference between an index and a tree."""

    to_index: tuple[str, ...]
    """Files to index: new, changed, or with a problem that may be transient."""
    moved: Mapping[str, str]
    """New file → deleted file with the same content."""
    deleted: tuple[str, ...]
    """Deleted files whose content did not move."""
    changed: frozenset[str]
    added: frozenset[str]
    deleted_pages: int
    """How many of the deleted files were pages, not problems."""


def build_plan(tree: Mapping[str, TreeEntry], indexed: Mapping[str, str], problems: Sequence[PageProblem]) -> SyncPlan:
    """Compare a tree with the contents of an index."""
    permanent = {problem.file: problem.blob for problem in problems if problem.reason not in TRANSIENT_REASONS}
    known = {**permanent, **indexed}
    to_index = tuple(sorted(file for file, entry in tree.items() if known.get(file) != entry.blob))
    gone = sorted(file for file in indexed if file not in tree)
    gone_by_blob: dict[str, list[str]] = {}
    for file in reversed(gone):
        gone_by_blob.setdefault(indexed[file], []).append(file)
    moved = {}
    for file in to_index:
        if file not in indexed and (old_files := gone_by_blob.get(tree[file].blob)):
            moved[file] = old_files.pop()
    deleted = set(gone) - set(moved.values()) | {problem.file for problem in problems if problem.file not in tree}
    changed = frozenset(file for file in to_index if file in indexed)
    added = frozenset(to_index) - changed - moved.keys()
    return SyncPlan(to_index, moved, tuple(sorted(deleted)), changed, added, len(gone) - len(moved))


@dataclass(frozen=True, slots=True)
class SyncWork:
    """The plan, the tree entries of the files to index, and the number of pages after the sync."""

    plan: SyncPlan
    entries: Mapping[str, TreeEntry]
    page_count: int
    tree: Mapping[str, TreeEntry] | None
    """The full tree, or None if only the difference between two trees was read."""


def plan_from_diff(changes: Sequence[TreeChange], problems: Sequence[PageProblem], page_count: int) -> SyncWork:
    """The work between two trees, if the index is equal to the older one."""
    problem_files = {problem.file for problem in problems}
    touched = {change.file for change in changes}
    indexed = {change.file: change.old.blob for change in changes if change.old and change.file not in problem_files}
    page_count += sum((change.new is not None) - (change.old is not None) for change in changes)
    entries = {change.file: change.new for change in changes if change.new}
    for problem in problems:
        if problem.file not in touched:
            entries[problem.file] = TreeEntry(problem.blob)
    plan = build_plan(entries, indexed, problems)
    return SyncWork(plan, {file: entries[file] for file in plan.to_index}, page_count, None)
