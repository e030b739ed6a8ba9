"""The tools about the commits of a wiki and of a page, with results cut to the token budget."""

import difflib
from collections.abc import Iterator
from io import StringIO

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_documents, parse_since
from wikiholt.api.documents.page_documents import (
    ChangeDocument,
    CommitDocument,
    HistoryDocument,
    build_changelog_document,
)
from wikiholt.domain.git import LogEntry
from wikiholt.domain.page import PageContent
from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS
from wikiholt.errors import InvalidPage, PageNotFound
from wikiholt.interfaces.mcp.mcp_tool import DATA_NOTE, tool
from wikiholt.interfaces.mcp.text_output import (
    COMMIT_TEXTS,
    build_list_continuation,
    build_part_continuation,
    cut_lines,
    fit_to_budget,
    join_lines,
    quote_text,
    split_lines,
    take_shortened,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    DATA_NOTICE,
    MAX_DATE_CHARS,
    TEXT_PATTERN,
    BudgetedArguments,
    Continuation,
    PagePathArgument,
    RevisionArgument,
)
from wikiholt.text.comparison import BoundedMatcher, ComparisonTooLong
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.pages.page_reader import is_below
from wikiholt.wikis.session import WikiSession

_LOG_BATCH = 500
_MAX_SCANNED_COMMITS = 5000
"""Commits that one call of recent_changes reads to find those of a folder or since a date."""
_MAX_COMMITS = 1000
"""Commits of the page that are searched for the one before."""
_MAX_DIFF_LINES = 5000
"""Lines per side after the first difference: more take too long to compare."""


class ChangesArguments(BudgetedArguments):
    """Arguments of recent_changes."""

    limit: int = Field(20, ge=1, le=200, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=1_000_000, description="Number of commits to skip.")
    prefix: str = Field(
        "", max_length=MAX_FILTER_VALUE_CHARS, pattern=TEXT_PATTERN, description="Only this page or folder."
    )
    since: str = Field("", max_length=MAX_DATE_CHARS, description="Since a date, or 7d, 12h, 3w ago.")


class ChangesResult(TypedDict):
    """Commits that changed pages, newest first."""

    entries: list[ChangeDocument]
    continuation: Continuation | None


def _format_changes(changes: ChangesResult) -> str:
    lines = [f"{_format_commit(entry)} [{', '.join(entry['pages_affected'])}]" for entry in changes["entries"]]
    return join_lines(lines or ["No commits here."], changes["continuation"])


def _format_commit(commit: CommitDocument | ChangeDocument) -> str:
    return f"- {commit['date']} {commit['revision'][:12]} {commit['author']}: {' '.join(commit['message'].split())}"


@tool(
    "See recent changes",
    "List the newest commits with author, message and the pages they touched; of a folder, or since a date.",
    _format_changes,
)
def recent_changes(wiki: WikiSession, params: ChangesArguments, budget: int) -> ChangesResult:
    found, position, is_end = _find_changes(wiki, params)
    changes = build_changelog_document([entry for _, entry in found], wiki.path_style)["entries"]

    def build(share: int) -> ChangesResult:
        entries = take_shortened(changes, (*COMMIT_TEXTS, "pages_affected"), share)
        is_cut = len(entries) < len(found)
        done = found[len(entries)][0] if is_cut else position
        return {
            "entries": entries,
            "continuation": build_list_continuation(
                "recent_changes", params, done, int(is_cut or not is_end), "commits", exact=False
            ),
        }

    return fit_to_budget(build, _format_changes, budget)


def _find_changes(wiki: WikiSession, params: ChangesArguments) -> tuple[list[tuple[int, LogEntry]], int, bool]:
    """The commits that match with their positions in the log, the position to go on from, and whether it is the end."""
    prefix = wiki.path_style.to_git_prefix(params.prefix).strip("/")
    since = parse_since(params.since) if params.since else None
    found: list[tuple[int, LogEntry]] = []
    position = params.offset
    batch = params.limit + 1 if since is None and not prefix else _LOG_BATCH
    while position < params.offset + _MAX_SCANNED_COMMITS:
        entries = wiki.handle.pages.read_changelog(batch, position)
        for entry in entries:
            matches = not prefix or any(is_below(get_page_path(file), prefix) for file in entry.files)
            if matches and (since is None or entry.commit.date >= since):
                if len(found) == params.limit:
                    return found, position, False
                found.append((position, entry))
            position += 1
        if len(entries) < batch:
            return found, position, True
    return found, position, False


class HistoryArguments(BudgetedArguments):
    """Arguments of page_history."""

    path: PagePathArgument
    limit: int = Field(20, ge=1, le=200, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=10_000, description="Number of entries to skip.")


class HistoryResult(HistoryDocument):
    """The commits that changed a page, newest first."""

    continuation: Continuation | None


def _format_history(history: HistoryResult) -> str:
    return join_lines([f"{history['path']}:", *map(_format_commit, history["history"])], history["continuation"])


@tool(
    "See a page's history",
    "List the commits that changed a page, newest first; read_page with a revision shows its content then.",
    _format_history,
)
def page_history(wiki: WikiSession, params: HistoryArguments, budget: int) -> HistoryResult:
    path = wiki.path_style.to_git_path(params.path)
    commits = wiki.handle.pages.read_history(path, params.offset + params.limit + 1)[params.offset :]
    history = build_documents(CommitDocument, commits[: params.limit])

    def build(share: int) -> HistoryResult:
        entries = take_shortened(history, COMMIT_TEXTS, share)
        done, remaining = params.offset + len(entries), len(commits) - len(entries)
        return {
            "path": wiki.path_style.to_display_path(path),
            "history": entries,
            "continuation": build_list_continuation("page_history", params, done, remaining, "commits", exact=False),
        }

    return fit_to_budget(build, _format_history, budget)


class DiffPageArguments(BudgetedArguments):
    path: PagePathArgument
    from_revision: RevisionArgument = Field(None, description="The older commit; default: the one before.")
    to_revision: RevisionArgument = Field(None, description="The newer commit; default: the newest.")
    from_line: int = Field(1, ge=1, description="The first line of the diff.")
    from_character: int = Field(0, ge=0, description="Characters of that line to skip.")


class DiffPageResult(TypedDict):
    """A unified diff of a page."""

    path: str
    from_revision: str | None
    to_revision: str
    diff: str
    notice: str
    continuation: Continuation | None


def _format_diff(result: DiffPageResult) -> str:
    head = f"{result['path']}, from {result['from_revision'] or 'nothing'} to {result['to_revision']}"
    body = quote_text(result["diff"].removesuffix("\n")) if result["diff"] else ["No line differs."]
    return join_lines([head, result["notice"], *body], result["continuation"])


@tool(
    "Compare revisions of a page",
    f"Show what changed on a page: by the last commit, or between two revisions. {DATA_NOTE}",
    _format_diff,
)
def diff_page(wiki: WikiSession, params: DiffPageArguments, budget: int) -> DiffPageResult:
    path = wiki.path_style.to_git_path(params.path)
    new = wiki.handle.pages.read(path, params.to_revision)
    old = _read_older(wiki, path, new, params.from_revision)
    names = old.revision if old else "", new.revision
    lines = split_lines("".join(f"{line}\n" for line in _compare(old, new)))
    first = min(params.from_line, max(1, len(lines)))
    arguments = params.model_dump(exclude_defaults=True) | {"from_revision": names[0] or None, "to_revision": names[1]}
    arguments = {name: value for name, value in arguments.items() if value is not None}

    def build(share: int) -> DiffPageResult:
        part = cut_lines(lines, first, len(lines), params.from_character, share)
        return {
            "path": wiki.path_style.to_display_path(new.path),
            "from_revision": names[0] or None,
            "to_revision": names[1],
            "diff": part.text,
            "notice": DATA_NOTICE,
            "continuation": build_part_continuation(part, len(lines), "diff_page", arguments),
        }

    return fit_to_budget(build, _format_diff, budget)


def _read_older(wiki: WikiSession, path: str, new: PageContent, revision: str | None) -> PageContent | None:
    """The page at the revision, or before the commit that made `new`; None if that commit created it."""
    if revision is None:
        revisions = [commit.revision for commit in wiki.handle.pages.read_history(path, _MAX_COMMITS)]
        position = revisions.index(new.revision) + 1 if new.revision in revisions else len(revisions)
        if position >= len(revisions):
            return None
        revision = revisions[position]
    try:
        return wiki.handle.pages.read(path, revision)
    except PageNotFound:
        raise InvalidPage(
            f"there is no page {path[:200]!r} at revision {revision[:12]}",
            hint="it did not exist yet or had another path; page_history lists its commits",
        ) from None


def _compare(old_page: PageContent | None, new_page: PageContent) -> Iterator[str]:
    """The lines of the unified diff, as `git apply` takes it. Raises InvalidPage."""
    # The lines with their line feeds; git knows no other end of a line.
    old, new = (list(StringIO(page.content if page else "", newline="\n")) for page in (old_page, new_page))
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if max(len(old), len(new)) - start > _MAX_DIFF_LINES:
        raise InvalidPage(
            f"more than {_MAX_DIFF_LINES:,} lines follow the first difference",
            hint="read both revisions with read_page instead",
        )
    try:
        BoundedMatcher(old, new, autojunk=True).get_opcodes()
    except ComparisonTooLong:
        raise InvalidPage(
            "these revisions take too long to compare", hint="read both revisions with read_page instead"
        ) from None
    old_name = f"a/{new_page.file}" if old_page else "/dev/null"
    for line in difflib.unified_diff(old, new, old_name, f"b/{new_page.file}"):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
