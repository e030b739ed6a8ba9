"""Two proofs of an import: foreign vectors are our model's own, and an index holds its wiki's HEAD and no more."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from wikiholt.errors import SyncFailed
from wikiholt.importing.report import ModelAgreement, ImportProof
from wikiholt.model import FloatArray
from wikiholt.ports import Embedder, Source, IndexStore

MIN_SAME_COSINE = 0.9999
"""The least cosine that counts as the same vector; int8 and fp32 of one model were alike down to 0.9959."""
_MIN_NEAR_COSINE = 0.98
"""From here on it is the same model at another precision, most likely."""


def check_agreement(model: str, sample: Sequence[tuple[str, FloatArray]], embedder: Embedder) -> ModelAgreement:
    """Embed the sample anew; one vector that is another is enough to trust none."""
    if not sample:
        return ModelAgreement(model, 0, None, agrees=False, reason="none is of a text that Wikiholt would embed")
    ours = embedder.embed_passages([text for text, _ in sample])
    theirs = np.stack([vector for _, vector in sample])
    least = float(np.min(np.sum(ours * theirs, axis=1)))
    if least >= MIN_SAME_COSINE:
        return ModelAgreement(model, len(sample), least, agrees=True)
    if least >= _MIN_NEAR_COSINE:
        reason = f"they are near ours and not the same: likely another precision than {embedder.precision or 'this'}"
    else:
        reason = "another model made them, or they are damaged"
    return ModelAgreement(model, len(sample), least, agrees=False, reason=reason)


def verify_index(
    wiki_id: str, store: IndexStore, source: Source, get_chunk_counts: Callable[[str], Mapping[str, int]], lock_timeout: float
) -> ImportProof:
    """Compare the index with its wiki's tree, page by page and byte by byte; raises SyncFailed where they differ."""
    with store.write_lock(wiki_id, lock_timeout):
        index = store.open(wiki_id)
        try:
            state, pages, faults = index.get_state(), index.get_page_blobs(), index.check()
            odd = {problem.file for problem in index.get_problems()}
        finally:
            index.close()
    if state.revision is None:
        raise _build_failure("it stands for no revision")
    if faults:
        raise _build_failure(faults[0])
    tree = source.read_tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - odd
    counts = get_chunk_counts(state.revision)
    chunks = sum(counts.get(file, 0) for file in pages)
    if foreign or missing:
        raise _build_failure(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    if chunks != state.chunks:
        raise _build_failure(f"it holds {state.chunks} chunks, and its pages have {chunks}")
    return ImportProof(state.revision, len(pages), state.chunks, len(odd), len(foreign))


def _build_failure(reason: str) -> SyncFailed:
    return SyncFailed(
        f"the index is not what the wiki has at HEAD: {reason}", hint="run `wikiholt reindex`, and please report this"
    )
