"""The tools that read several pages, list tags and folders, and compare revisions of a page."""

import difflib
from collections.abc import Iterator, Sequence

from wikiholt.domain.page import PageContent
from wikiholt.errors import InvalidPage, PageNotFound, WikiholtError
from wikiholt.interfaces.http.problem_details import get_public_message
from wikiholt.interfaces.mcp.page_tools import build_page_continuation, cut_lists
from wikiholt.interfaces.mcp.result_schemas import (
    DATA_NOTICE,
    Continuation,
    DiffPageResult,
    ListTagsResult,
    PageText,
    ReadPagesResult,
)
from wikiholt.interfaces.mcp.text_output import (
    cut_lines,
    estimate_tokens,
    fit_to_budget,
    format_diff,
    format_pages,
    format_tags,
    shorten_fields,
    truncate_text,
)
from wikiholt.interfaces.mcp.tool_schemas import DiffPageArguments, ListTagsArguments, ReadPagesArguments
from wikiholt.interfaces.schemas.page_schemas import build_facets_document
from wikiholt.wikis.session import WikiSession

_MIN_PAGE_TOKENS = 150
"""Tokens that a page of several gets at least; the pages that then do not fit are left for the next call."""
_MAX_COMMITS = 1000
"""Commits of the page that are searched for the one before."""
_MAX_DIFF_LINES = 5000
"""Lines per side after the first difference: more take too long to compare."""


def read_pages(wiki: WikiSession, params: ReadPagesArguments, budget: int) -> ReadPagesResult:
    paths = list(dict.fromkeys(params.paths))[: max(1, budget // _MIN_PAGE_TOKENS)]
    pages = [_read_or_explain(wiki, path) for path in paths]
    rest = [path for path in dict.fromkeys(params.paths) if path not in paths]
    continuation: Continuation | None = None
    if rest:
        arguments = params.model_dump(exclude_defaults=True) | {"paths": rest}
        continuation = {"message": f"{len(rest)} more pages.", "tool": "read_pages", "arguments": arguments}

    def build(share: int) -> ReadPagesResult:
        texts: list[PageText] = []
        remaining = share
        for number, (path, page) in enumerate(zip(paths, pages, strict=True)):
            # A short page leaves its tokens to the pages after it.
            part = _build_page_text(wiki, path, page, max(1, remaining // (len(paths) - number)))
            remaining -= estimate_tokens(part["content"])
            texts.append(part)
        return {"pages": texts, "notice": DATA_NOTICE, "continuation": continuation}

    return fit_to_budget(build, format_pages, budget)


def _read_or_explain(wiki: WikiSession, path: str) -> PageContent | str:
    """The page, or why it cannot be read: the other pages are still of use."""
    try:
        return wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    except WikiholtError as error:
        if error.status >= 500:
            raise
        message, hint = get_public_message(error)
        is_named = isinstance(error, PageNotFound) and error.current_path
        return f"{error.code}: {message}; {hint}" if is_named else f"{error.code}: {message}"


def _build_page_text(wiki: WikiSession, path: str, page: PageContent | str, share: int) -> PageText:
    if isinstance(page, str):
        return {
            "path": path,
            "title": "",
            "content": "",
            "lines": [],
            "revision": None,
            "error": truncate_text(page, share),
            "continuation": None,
        }
    lines = page.content.split("\n")
    part = cut_lines(lines, 1, len(lines), 0, share)
    display_path = wiki.path_style.to_display_path(page.path)
    text: PageText = {
        "path": display_path,
        "title": wiki.path_style.to_display_title(page.name, page.path),
        "content": part.text,
        "lines": [part.first, part.last],
        "revision": page.revision,
        "error": None,
        "continuation": build_page_continuation(part, len(lines), "read_page", {"path": display_path}),
    }
    return shorten_fields(text, ("title",), share // 8)


def list_tags(wiki: WikiSession, params: ListTagsArguments, budget: int) -> ListTagsResult:
    with wiki.open_snapshot() as snapshot:
        document = build_facets_document(snapshot.pages.get_facets(wiki.to_git_filter(params.to_filter())))
    lists = [
        [(facet["value"], facet["count"]) for facet in facets]
        for facets in (document["tags"], document["categories"], document["folders"])
    ]
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> ListTagsResult:
        (tags, categories, folders), continuation = cut_lists(lists, share, "list_tags", arguments, params)
        return {
            "pages": document["pages"],
            "tags": dict(tags),
            "categories": dict(categories),
            "folders": dict(folders),
            "continuation": continuation,
        }

    return fit_to_budget(build, format_tags, budget)


def diff_page(wiki: WikiSession, params: DiffPageArguments, budget: int) -> DiffPageResult:
    path = wiki.path_style.to_git_path(params.path)
    new = wiki.handle.pages.read(path, params.to_revision)
    old = _read_older(wiki, path, new, params.from_revision)
    names = old.revision if old else "", new.revision
    lines = list(_compare(old.content.split("\n") if old else [], new.content.split("\n"), *names))
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
            "continuation": build_page_continuation(part, len(lines), "diff_page", arguments),
        }

    return fit_to_budget(build, format_diff, budget)


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


def _compare(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> Iterator[str]:
    """The unified diff in lines. Raises InvalidPage."""
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if max(len(old), len(new)) - start > _MAX_DIFF_LINES:
        raise InvalidPage(
            f"more than {_MAX_DIFF_LINES:,} lines follow the first difference",
            hint="read both revisions with read_page instead",
        )
    return difflib.unified_diff(old, new, old_name[:12] or "none", new_name[:12], lineterm="")
