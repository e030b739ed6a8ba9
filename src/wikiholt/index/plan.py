"""What a sync has to do: the difference between an index and a tree, and what a moved page changes. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikiholt.domain.git import TreeChange, TreeEntry
from wikiholt.domain.index import IndexedPageMove, PageContents
from wikiholt.domain.page import Link, PageMetadata, PageProblem
from wikiholt.index.pipeline import PageTask, TextPipeline, find_former_names
from wikiholt.text.analysis import split_languages
from wikiholt.text.bm25 import build_name_terms
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import UPDATED_KEYS, split_frontmatter, to_utc
from wikiholt.text.links import LinkResolution, depends_on_file, resolve_link_paths
from wikiholt.text.page_names import get_extension, get_page_path, make_page_name
from wikiholt.text.page_parser import get_title

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


# Moved pages. The content is the same, so its chunks, their vectors and the terms of its text are too. Only what
# depends on the path is computed: the name, aliases, the date of the commit, and the targets of relative links.


def needs_blob(contents: PageContents, file: str, old_file: str) -> bool:
    """Whether what is stored does not say which of its name, aliases and date a page has from its frontmatter."""
    return (
        bool(contents.aliases or contents.warnings)
        or not contents.properties.isdisjoint(UPDATED_KEYS)
        or not _is_name_certain(contents.name, file, old_file)
    )


def plan_move(pipeline: TextPipeline, task: PageTask, old_file: str, contents: PageContents) -> IndexedPageMove | None:
    """The move after which the index has the page as `TextPipeline.prepare` makes it. None if that is not certain.

    `contents` are those of the same blob at `old_file`, in an index made by this pipeline. The blob has its data if
    `needs_blob`.
    """
    file = task.file
    if contents.hidden or not _may_move(pipeline, file, old_file):
        return None
    metadata = _read_metadata(task.blob.data) if needs_blob(contents, file, old_file) else PageMetadata()
    links = _move_links(contents.links, file, old_file, pipeline.dialect.resolution)
    if metadata is None or links is None:
        return None
    name = get_title(metadata) or (contents.name if _is_name_certain(contents.name, file, old_file) else "")
    if not name:
        return None
    path = get_page_path(file)
    aliases = (*metadata.aliases, *find_former_names(file, path, metadata.aliases, task.former_files))
    committed = to_utc(task.changed_at) if task.changed_at is not None else None
    terms = build_name_terms(name, path, contents.tags, aliases, pipeline.language)
    new_links = None if links == contents.links else links
    return IndexedPageMove(old_file, file, path, name, aliases, metadata.last_updated or committed, terms, new_links)


def _read_metadata(data: bytes | None) -> PageMetadata | None:
    decoded = decode_bytes(data) if data is not None else None
    return split_frontmatter(decoded.text).metadata if decoded is not None else None


def _may_move(pipeline: TextPipeline, file: str, old_file: str) -> bool:
    """Whether the text is read alike at both files, its metadata is in the frontmatter, and neither is hidden."""
    return (
        get_extension(file) == get_extension(old_file)
        and not pipeline.dialect.has_note_markup
        and len(split_languages(pipeline.language)) == 1
        and not pipeline.is_hidden(file)
        and not pipeline.is_hidden(old_file)
    )


def _is_name_certain(name: str, file: str, old_file: str) -> bool:
    """Whether a page without a title keeps its name: it is not made from the name of the old file, or is the same."""
    return name != make_page_name(old_file) or name == make_page_name(file)


def _move_links(links: Sequence[Link], file: str, old_file: str, resolution: LinkResolution) -> tuple[Link, ...] | None:
    """The links as they are at the new file; None if the paths of one do not follow from what is stored."""
    moved: list[Link] = []
    for link in links:
        # The other side of a wiki link may be a second target.
        options = [(link.target,), (link.target, link.text)] if link.wiki else [(link.target,)]
        options = [each for each in options if resolve_link_paths(each, link.wiki, old_file, resolution) == link.paths]
        if options and not depends_on_file(options[-1], link.wiki):
            moved.append(link)
            continue
        paths = {resolve_link_paths(each, link.wiki, file, resolution) for each in options}
        if len(paths) != 1:
            return None
        moved.append(link._replace(paths=paths.pop()))
    return tuple(moved)
