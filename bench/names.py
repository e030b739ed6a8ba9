"""How often a page is the first hit for its own file name and title, with and without the look-up of names.

    python -m bench.names WIKIS [--data DIR] [--fake-model] [--modes MODE …] [--write]

WIKIS is a directory with a wiki in each folder. Indexes are kept in bench/data/names. Every page with text is searched by its
file name with and without extension, and by its title. It is found if it is the first hit, or if that hit has the same
name (case, accents, separators and extension do not count). "Shared" is the number of queries that are names of several
pages.

`--fake-model` needs seconds instead of minutes. The figures of `hybrid` and `semantic` before are then those of vectors that are
sums of random vectors of words.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, SearchMode, StoredPage
from wikiholt.errors import InvalidQuery
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.bm25 import make_name_term, make_name_terms
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

KINDS = ("file name", "without extension", "title")


def main() -> None:
    parser = make_parser(__doc__, "names", "data")
    parser.add_argument("wikis", type=Path)
    parser.add_argument("--fake-model", action="store_true")
    parser.add_argument("--modes", nargs="*", type=SearchMode, default=list(SearchMode))
    arguments = parser.parse_args()
    publish("names", __doc__, "\n".join(measure_wikis(arguments)), write=arguments.write)


def measure_wikis(arguments: argparse.Namespace) -> Iterator[str]:
    service = open_service(arguments.data / ("names-fake" if arguments.fake_model else "names"))
    yield make_head("| wiki | pages | mode | " + " | ".join(f"{kind} | before" for kind in KINDS) + " | shared |")
    for directory in sorted(path for path in arguments.wikis.iterdir() if path.is_dir()):
        handle = open_wiki(service, directory, FakeEmbedder() if arguments.fake_model else None)
        pages = list_pages(handle)
        for mode in arguments.modes:
            cells: list[str] = []
            shared = 0
            for kind in KINDS:
                # Without hidden pages, which have no text.
                queries = [(query, page) for page in pages if page.chunks and (query := make_query(page, kind))]
                cells += (count_found(handle, queries, pages, mode, names=names) for names in (True, False))
                shared += sum(len(find_owners(query, pages)) > 1 for query, _ in queries)
            row = f"| {directory.name} | {len(pages)} | {mode} | {' | '.join(cells)} | {shared} |"
            print(row, file=sys.stderr)
            yield row
    service.close()


def open_wiki(service: WikiService, directory: Path, embedder: Embedder | None) -> WikiHandle:
    if directory.name not in {wiki.slug for wiki in service.list_wikis()}:
        service.add(directory.name, str(directory.resolve()), {})
    slug = directory.name
    handle = service.get_handle(slug) if embedder is None else service.open_with_embedder(slug, embedder)
    handle.sync()
    return handle


def list_pages(handle: WikiHandle) -> list[StoredPage]:
    with handle._use_live_index() as live:
        return list(live.index.list_pages(PageFilter(), None)[1])


def make_query(page: StoredPage, kind: str) -> str:
    file = page.file.rpartition("/")[2]
    return {"file name": file, "without extension": file.rpartition(".")[0], "title": page.name}[kind]


def find_owners(query: str, pages: list[StoredPage]) -> set[str]:
    """The paths of the pages with this name."""
    term = make_name_term(query)
    return {page.path for page in pages if term in make_name_terms(page.name, page.path, page.aliases)}


def count_found(
    handle: WikiHandle, queries: list[tuple[str, StoredPage]], pages: list[StoredPage], mode: SearchMode, *, names: bool
) -> str:
    """How many of the pages are the first hit, of how many; with or without the look-up of names."""
    without = mock.patch("wikiholt.search.candidates.find_named_pages", return_value=frozenset())
    found = 0
    with nullcontext() if names else without:
        for query, page in queries:
            try:
                hits = handle.search(SearchRequest(query, 1, mode)).hits
            except InvalidQuery:
                continue
            is_found = bool(hits) and hits[0].path in {page.path, *find_owners(query, pages)}
            found += is_found
            if names and not is_found:
                print(f"not found: {query!r} ({page.path}), {mode}", file=sys.stderr)
    return f"{found} of {len(queries)}"


if __name__ == "__main__":
    main()
