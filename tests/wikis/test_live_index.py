"""An open index and what it keeps open."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.support.indexed_wiki import WIKI_ID, IndexedWiki
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.wikis.live_index import LiveIndex


class CountedCache(FileKeywordCache):
    """Counts those that are open."""

    count = 0

    def __init__(self, index: WikiIndex, directory: Path) -> None:
        super().__init__(index, directory, background=False)
        CountedCache.count += 1

    def close(self) -> None:
        CountedCache.count -= 1
        super().close()


class RebuiltCopy:
    """A copy of an index that is built again for every search."""

    def __init__(self, wiki: IndexedWiki) -> None:
        self._wiki = wiki

    def get_current(self) -> WikiIndex:
        return self._wiki.store.open(WIKI_ID)

    def close(self) -> None:
        pass


def test_the_caches_of_replaced_copies_are_closed(tmp_path: Path) -> None:
    with closing(IndexedWiki(tmp_path, {"Home.md": "text"}).sync()) as wiki:
        components = replace(
            wiki.handle._components,
            keyword_cache=lambda index, _: CountedCache(index, tmp_path),
            open_copy=lambda _: RebuiltCopy(wiki),
        )
        live_index = LiveIndex(wiki.handle.wiki, wiki.handle._config, components)
        searchers = {live_index.searcher for _ in range(6)}
        assert len(searchers) == 6
        assert CountedCache.count == 3, "of the index, of the copy, and of the copy before, which may be searched"
        live_index.close_when_idle()
        assert CountedCache.count == 0
