"""What a move changes of a page.

The content is the same, so its chunks, their vectors and the terms of its text are too. Only what depends on the path
is computed: the name, aliases, the date of the commit, and the targets of relative links.
"""

from collections.abc import Sequence

from wikiholt.domain.index import IndexedPageMove, PageContents
from wikiholt.domain.page import Link, PageMetadata
from wikiholt.index.pipeline import PageTask, TextPipeline, find_former_names
from wikiholt.text.analysis import split_languages
from wikiholt.text.bm25 import build_name_terms
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import UPDATED_KEYS, split_frontmatter, to_utc
from wikiholt.text.links import LinkResolution, depends_on_file, resolve_link_paths
from wikiholt.text.page_names import get_extension, get_page_path, is_code, make_page_name
from wikiholt.text.page_parser import get_title


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
        and not is_code(file)
        and not pipeline.dialect.has_note_markup
        and not pipeline.dialect.has_routes
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
