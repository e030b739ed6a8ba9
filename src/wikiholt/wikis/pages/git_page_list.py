"""The page list of a wiki whose first sync has not ended: complete, from git instead of the index."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from wikiholt.domain.git import EntryKind
from wikiholt.domain.page import Page, PageList
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.errors import IndexMissing
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.pages.page_locator import is_below

_BATCH_PAGES = 200


def list_pages_from_git(
    source: Source, pipeline: TextPipeline, head: str, where: PageFilter, limit: int | None, offset: int
) -> PageList:
    """The pages at HEAD that pass the filter, by path. Raises IndexMissing for a filter that needs the index."""
    if replace(where, categories=(), tags=(), path_prefix="", updated_since=None):
        raise IndexMissing("this wiki is not indexed yet", hint="list without this filter, or try again in a moment")
    blobs = {
        file: entry.blob
        for file, entry in sorted(source.read_tree(head).items(), key=lambda item: get_page_path(item[0]))
        if entry.kind is EntryKind.FILE and is_below(get_page_path(file), where.path_prefix.strip("/"))
    }
    end = None if limit is None else offset + limit
    files = list(blobs)
    if where == PageFilter(path_prefix=where.path_prefix):
        pages = tuple(_read_pages(source, pipeline, head, {file: blobs[file] for file in files[offset:end]}))
        return PageList(pages, len(files), None)
    matching = [page for page in _read_pages(source, pipeline, head, blobs) if _matches(page, where)]
    return PageList(tuple(matching[offset:end]), len(matching), None)


def _read_pages(source: Source, pipeline: TextPipeline, head: str, blobs: dict[str, str]) -> Iterator[StoredPage]:
    dates = source.get_change_dates(list(blobs), head, None) if blobs else {}
    remaining = iter(blobs.items())
    while batch := list(islice(remaining, _BATCH_PAGES)):
        contents = source.read_blobs((blob for _, blob in batch), pipeline.max_bytes)
        for (file, _), content in zip(batch, contents, strict=True):
            page = pipeline.parse(file, content.id, content.data, dates.get(file)) if content.data is not None else None
            if isinstance(page, Page):
                yield _to_stored_page(page)


def _to_stored_page(page: Page) -> StoredPage:
    data = page.metadata
    return StoredPage(
        0, page.file, page.path, page.name, data.category, data.tags, data.last_updated, 0, words=page.words
    )


def _matches(page: StoredPage, where: PageFilter) -> bool:
    tags = _fold(page.tags)
    return (
        (not where.categories or (page.category or "").casefold() in _fold(where.categories))
        and set(_fold(where.tags)) <= set(tags)
        and (
            where.updated_since is None or (page.last_updated is not None and page.last_updated >= where.updated_since)
        )
    )


def _fold(texts: Sequence[str]) -> list[str]:
    return [text.casefold() for text in texts]
