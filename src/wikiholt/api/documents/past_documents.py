"""JSON documents of searches in the past, and of the indexes of past commits."""

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.page_documents import CommitDocument
from wikiholt.api.documents.search_documents import (
    HitDocument,
    SearchResultDocument,
    build_hit_document,
    build_result_document,
)
from wikiholt.domain.git import LaterFile
from wikiholt.domain.search import Hit, SearchResult
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.past_views import PastView
from wikiholt.wikis.session import STORED_PATHS, PathStyle


class PageNowDocument(TypedDict):
    """What became of a page: its path today, or null and the commit that removed it, if HEAD's history has one."""

    path: str | None
    removed: CommitDocument | None


class PastHitDocument(HitDocument):
    """A page as it was; `now` is null if it is the same today."""

    now: PageNowDocument | None


class PastCommitDocument(TypedDict):
    """The commit of a search in the past, by the name that the request gave."""

    name: str
    revision: str
    date: str


class PastResultDocument(SearchResultDocument):
    """The hits among the pages of a past commit."""

    results: list[PastHitDocument]  # type: ignore[misc]  # a hit with one more field
    at: PastCommitDocument


class PastViewDocument(TypedDict):
    """An index of a past commit; `pages` and `chunks` are null if it cannot be read."""

    revision: str
    complete: bool
    pages: int | None
    chunks: int | None
    bytes: int
    used_at: str


class PastViewsDocument(TypedDict):
    """The indexes of past commits, the last used first."""

    views: list[PastViewDocument]
    total: int


def build_past_document(result: SearchResult, path_style: PathStyle = STORED_PATHS) -> PastResultDocument:
    assert result.at is not None
    hits = [_build_past_hit(hit, path_style) for hit in result.hits]
    at = build_document(PastCommitDocument, result.at)
    return {**build_result_document(result, path_style), "results": hits, "at": at}


def _build_past_hit(hit: Hit, path_style: PathStyle) -> PastHitDocument:
    now = _build_now(hit.later, path_style) if hit.later is not None else None
    return {**build_hit_document(hit, path_style), "now": now}


def _build_now(later: LaterFile, path_style: PathStyle) -> PageNowDocument:
    if later.file is not None:
        return {"path": path_style.to_display_path(get_page_path(later.file)), "removed": None}
    return {"path": None, "removed": build_document(CommitDocument, later.removal) if later.removal else None}


def build_view_document(view: PastView) -> PastViewDocument:
    return build_document(PastViewDocument, view, complete=view.is_complete)
