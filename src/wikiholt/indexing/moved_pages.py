"""Prepares a page that moved from what the index has of it. Pure functions.

The content is the same, so its chunks, their vectors and the terms of its text are too. Only what depends on the path
is computed: the name, aliases, the date of the commit, and the targets of relative links.
"""

from collections.abc import Sequence
from dataclasses import replace

from wikiholt.domain.index import PageContents
from wikiholt.domain.page import Link, Page
from wikiholt.indexing.pipeline import PageTask, PreparedPage, TextPipeline, add_former_names
from wikiholt.text.analysis import split_languages
from wikiholt.text.bm25 import build_name_terms
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.links import LinkResolution, resolve_link_paths
from wikiholt.text.page_names import get_extension, get_page_path, make_page_name
from wikiholt.text.page_parser import add_commit_date, get_title


def prepare_moved(pipeline: TextPipeline, task: PageTask, old_file: str, contents: PageContents) -> PreparedPage | None:
    """The page as `TextPipeline.prepare` makes it, with vectors instead of texts. None if that is not certain.

    `contents` are those of the same blob at `old_file`, in an index made by this pipeline.
    """
    file, data = task.file, task.blob.data
    decoded = decode_bytes(data) if data is not None else None
    if decoded is None or not _may_move(pipeline, file, old_file):
        return None
    metadata = split_frontmatter(decoded.text).metadata
    name = get_title(metadata) or _find_name(contents.name, file, old_file)
    links = _move_links(contents.links, file, old_file, pipeline.dialect.resolution)
    if metadata.hidden or not name or links is None:
        return None
    page = Page(
        file=file,
        path=get_page_path(file),
        name=name,
        metadata=add_commit_date(metadata, task.changed_at),
        headings=(),
        links=links,
        body="",
        body_line=1,
        warnings=contents.warnings,
        words=contents.words,
        length=contents.length,
    )
    page = add_former_names(page, task.former_files)
    terms = replace(contents.terms, name=build_name_terms(page, pipeline.language))
    return PreparedPage(task.blob.id, page, contents.chunks, (), contents.hashes, terms, contents.vectors)


def _may_move(pipeline: TextPipeline, file: str, old_file: str) -> bool:
    """Whether the text is read alike at both files, its metadata is in the frontmatter, and neither is hidden."""
    return (
        get_extension(file) == get_extension(old_file)
        and not pipeline.dialect.has_note_markup
        and len(split_languages(pipeline.language)) == 1
        and not pipeline.is_hidden(file)
        and not pipeline.is_hidden(old_file)
    )


def _find_name(name: str, file: str, old_file: str) -> str:
    """The name of a page without a title; empty if it may come from the name of the old file."""
    return name if name != make_page_name(old_file) or name == make_page_name(file) else ""


def _move_links(links: Sequence[Link], file: str, old_file: str, resolution: LinkResolution) -> tuple[Link, ...] | None:
    """The links as they are at the new file; None if the paths of one do not follow from what is stored."""
    moved: list[Link] = []
    for link in links:
        # The other side of a wiki link may be a second target.
        options = [(link.target,), (link.target, link.text)] if link.wiki else [(link.target,)]
        paths = {
            resolve_link_paths(targets, link.wiki, file, resolution)
            for targets in options
            if resolve_link_paths(targets, link.wiki, old_file, resolution) == link.paths
        }
        if len(paths) != 1:
            return None
        moved.append(replace(link, paths=paths.pop()))
    return tuple(moved)
