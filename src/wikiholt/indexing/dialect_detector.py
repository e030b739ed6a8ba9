"""Detects the dialect of a wiki before a sync, if its settings do not name one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b

from wikiholt.domain.git import EntryKind, TreeEntry
from wikiholt.domain.index import IndexState, Recipe
from wikiholt.domain.protocols import Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import IndexUnavailable
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.text.dialect import MAX_SAMPLE_PAGES, detect_dialect
from wikiholt.text.page_names import get_page_path

_MAX_SAMPLE_BYTES = 100_000


class DialectDetector:
    """Detects the dialect of one wiki: in the first sync of a process, and in each sync while the wiki is small."""

    def __init__(self, source: Source, open_index: Callable[[], WikiIndex]) -> None:
        self._source = source
        self._open_index = open_index
        self._page_count: int | None = None

    def update(self, pipeline: TextPipeline, revision: str) -> TextPipeline:
        """The pipeline with the dialect of the wiki at this revision, if it detects dialects."""
        if not pipeline.detects_dialect or (self._page_count or 0) > MAX_SAMPLE_PAGES:
            return pipeline
        state = self._read_state()
        if state is not None:
            # The indexed dialect stays without clear evidence for another one.
            pipeline = pipeline.with_dialect_of(state.recipe)
            if state.revision == revision and _is_detected(state.recipe):
                return pipeline
        tree = self._source.read_tree(revision)
        other_files = self._source.list_other_files(revision)
        dialect = detect_dialect(map(get_page_path, tree), other_files, self._read_sample(tree), pipeline.dialect)
        self._page_count = len(tree)
        return replace(pipeline, dialect=dialect)

    def _read_state(self) -> IndexState | None:
        try:
            with closing(self._open_index()) as index:
                return index.get_state()
        except IndexUnavailable:
            return None

    def _read_sample(self, tree: Mapping[str, TreeEntry]) -> Iterator[str]:
        """The text of some pages, chosen by their names, so that edits hardly change the choice."""
        files = sorted(tree, key=lambda file: blake2b(file.encode("utf-8", "replace"), digest_size=8).digest())
        blobs = [tree[file].blob for file in files[:MAX_SAMPLE_PAGES] if tree[file].kind is EntryKind.FILE]
        for blob in self._source.read_blobs(blobs, _MAX_SAMPLE_BYTES):
            yield (blob.data or b"").decode("utf-8", "replace")


def _is_detected(recipe: Recipe) -> bool:
    indexed = TextPipeline.from_recipe(recipe)
    return indexed is not None and indexed.detects_dialect
