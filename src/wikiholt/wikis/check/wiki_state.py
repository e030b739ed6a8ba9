"""What a check compares of a wiki at one commit: pages, links, sentences with numbers, and near-duplicates."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wikiholt.domain.page import Page
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import NothingIndexed
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.duplicates import DuplicateGroup, find_duplicates
from wikiholt.text.links import PageNameIndex, get_folder, get_last_part, is_attachment
from wikiholt.text.page_names import FOLDER_PAGES, get_page_path, is_code, make_page_name
from wikiholt.wikis.check.number_sentences import NumberSentence, read_number_sentences

_HOME_PAGES = ("home", "index", "_index", "readme", "root", "main", "start")
_MAX_PLACES = 3
"""A passage on more pages is a text that they are all meant to have."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Where a link leads: the path that it names, and the page that it finds, if any."""

    line: int
    path: str
    page: str | None


@dataclass(frozen=True)
class WikiState:
    """A wiki at a commit. Pages are named by path."""

    revision: str
    files: Mapping[str, str]
    """The file of each page."""
    blobs: Mapping[str, str]
    """The blob of each page."""
    former_paths: Mapping[str, Sequence[str]]
    """The paths that pages had before, newest first."""
    links: Mapping[tuple[str, str], LinkEnd]
    """The links, by their page and their target as written. Those to attachments are left out."""
    unreadable: Mapping[str, str]
    """The reason for each file that could not be indexed."""
    sentences: Sequence[NumberSentence]
    duplicates: Sequence[DuplicateGroup]
    """Pages, and passages of few pages, that are nearly the same."""

    @cached_property
    def linked(self) -> frozenset[str]:
        """The pages to which another page links."""
        return frozenset(end.page for (path, _), end in self.links.items() if end.page not in (None, path))

    @cached_property
    def home(self) -> str | None:
        """The page where readers start."""
        names = {path.casefold(): path for path in self.files if "/" not in path}
        return next((names[name] for name in _HOME_PAGES if name in names), None)

    @cached_property
    def reachable(self) -> frozenset[str]:
        """The pages that links lead to from the home page, and that page; empty without one."""
        targets: defaultdict[str, list[str]] = defaultdict(list)
        for (path, _), end in self.links.items():
            if end.page is not None:
                targets[path].append(end.page)
        reached = {self.home} if self.home is not None else set()
        to_follow = list(reached)
        while to_follow:
            new = set(targets[to_follow.pop()]) - reached
            reached |= new
            to_follow += new
        return frozenset(reached)

    def find_orphans(self) -> list[str]:
        """The pages that no other page links to. A page that describes its folder is none, and source code neither."""
        is_entry = {
            path for path, file in self.files.items() if get_last_part(path).casefold() in FOLDER_PAGES or is_code(file)
        }
        return sorted(self.files.keys() - self.linked - is_entry - {self.home})


def read_state(index: WikiIndex, source: Source, pipeline: TextPipeline) -> WikiState:
    """The state of a wiki that was just synced. Raises NothingIndexed."""
    state = index.get_state()
    if state.revision is None:
        raise NothingIndexed("this wiki is not fully indexed yet", hint="run the check again")
    pipeline = TextPipeline.from_recipe(state.recipe) or pipeline
    _, pages = index.list_pages(PageFilter(), None)
    blobs = index.get_page_blobs()
    former = source.get_former_files([page.file for page in pages], state.revision)
    aliases = _read_aliases(pages, former, source, pipeline, blobs)
    same_pages, same_passages = find_duplicates(index, PageFilter(), "")
    chunks = index.get_page_chunks([page.page_id for page in pages])
    return WikiState(
        state.revision,
        {page.path: page.file for page in pages},
        {page.path: blobs[page.file] for page in pages},
        {page.path: [get_page_path(file) for file in former.get(page.file, ())] for page in pages},
        _resolve_links(index, pages, aliases, pipeline),
        {problem.file: problem.detail for problem in index.get_problems()},
        [
            sentence
            for page in pages
            if not is_code(page.file)
            for sentence in read_number_sentences(page.path, chunks.get(page.page_id, ()), pipeline.dialect)
        ],
        [
            group
            for group in (*same_pages, *(group for group in same_passages if len(group.places) <= _MAX_PLACES))
            if not any(is_code(place.file) for place in group.places)
        ],
    )


def _read_aliases(
    pages: Sequence[StoredPage],
    former: Mapping[str, Sequence[str]],
    source: Source,
    pipeline: TextPipeline,
    blobs: Mapping[str, str],
) -> dict[str, Iterable[str]]:
    """The aliases of pages that their authors wrote. A search also knows former names, but in the wiki itself a link
    to one is broken."""
    aliases: dict[str, Iterable[str]] = {page.path: page.aliases for page in pages if page.aliases}
    renamed = [page for page in pages if page.aliases and former.get(page.file)]
    contents = source.read_blobs([blobs[page.file] for page in renamed], pipeline.max_bytes)
    for page, blob in zip(renamed, contents, strict=True):
        parsed = pipeline.parse(page.file, blob.id, blob.data or b"", None)
        written = parsed.metadata.aliases if isinstance(parsed, Page) else ()
        former_names = {name for file in former[page.file] for name in (make_page_name(file), get_page_path(file))}
        aliases[page.path] = [name for name in page.aliases if name in written or name not in former_names]
    return aliases


def _resolve_links(
    index: WikiIndex, pages: Sequence[StoredPage], aliases: Mapping[str, Iterable[str]], pipeline: TextPipeline
) -> dict[tuple[str, str], LinkEnd]:
    paths = {page.page_id: page.path for page in pages}
    names = PageNameIndex(paths.values(), resolution=pipeline.dialect.resolution, aliases=aliases)
    ends: dict[tuple[str, str], LinkEnd] = {}
    for link in index.get_links():
        path = paths.get(link.page_id)
        if path is None or not link.paths:
            continue
        target = names.find_page(link.paths, link.wiki, get_folder(path))
        if target is not None or not is_attachment(link.paths[0], link.wiki):
            ends.setdefault((path, link.target), LinkEnd(link.line, link.paths[0], target))
    return ends
