"""Decides what changes in the index when a page moves. Pure functions.

The content is the same, so its chunks, their vectors and the terms of its text are too. Only what depends on the path
is computed: the name, aliases, the date of the commit, and the targets of relative links.
"""

from collections.abc import Sequence
from dataclasses import replace

from wikiholt.domain.index import PageContents, PageMove
from wikiholt.domain.page import Link, Page, PageMetadata
from wikiholt.indexing.pipeline import PageTask, TextPipeline, add_former_names
from wikiholt.text.analysis import split_languages
from wikiholt.text.bm25 import build_name_terms
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import read_move_metadata
from wikiholt.text.links import LinkResolution, depends_on_file, resolve_link_paths
from wikiholt.text.page_names import get_extension, get_page_path, make_page_name
from wikiholt.text.page_parser import add_commit_date, get_title


def plan_move(pipeline: TextPipeline, task: PageTask, old_file: str, contents: PageContents) -> PageMove | None:
    """The move after which the index has the page as `TextPipeline.prepare` makes it. None if that is not certain.

    `contents` are those of the same blob at `old_file`, in an index made by this pipeline.
    """
    file, data = task.file, task.blob.data
    if data is None or contents.hidden or not _may_move(pipeline, file, old_file):
        return None
    decoded = decode_bytes(data)
    if decoded is None:
        return None
    is_certain = _is_name_certain(contents.name, file, old_file)
    metadata = read_move_metadata(decoded.text, with_title=not is_certain)
    name = contents.name if is_certain else get_title(metadata)
    links = _move_links(contents.links, file, old_file, pipeline.dialect.resolution)
    if not name or links is None:
        return None
    metadata = replace(add_commit_date(metadata, task.changed_at), tags=contents.tags)
    page = add_former_names(_make_page(file, name, metadata), task.former_files)
    return PageMove(
        old_file,
        file,
        page.path,
        name,
        page.metadata.aliases,
        page.metadata.last_updated,
        build_name_terms(page, pipeline.language),
        None if links == contents.links else links,
    )


def _make_page(file: str, name: str, metadata: PageMetadata) -> Page:
    """The page without its content."""
    return Page(file, get_page_path(file), name, metadata, (), (), "", 1)


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
        moved.append(replace(link, paths=paths.pop()))
    return tuple(moved)
