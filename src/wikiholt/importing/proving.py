"""Two proofs of an import: foreign vectors are our model's own, and an index holds its wiki's HEAD and no more."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from wikiholt.errors import SyncFailed
from wikiholt.importing.report import Agreement, Proof
from wikiholt.model import Floats
from wikiholt.ports import Embedder, Source, Store

SAME = 0.9999
"""The least cosine that counts as the same vector; int8 and fp32 of one model were alike down to 0.9959."""
_AKIN = 0.98
"""From here on it is the same model at another precision, most likely."""


def agreement(model: str, sample: Sequence[tuple[str, Floats]], embedder: Embedder) -> Agreement:
    """Embed the sample anew; one vector that is another is enough to trust none."""
    if not sample:
        return Agreement(model, 0, None, agrees=False, reason="none is of a text that Wikiholt would embed")
    ours = embedder.passages([text for text, _ in sample])
    theirs = np.stack([vector for _, vector in sample])
    least = float(np.min(np.sum(ours * theirs, axis=1)))
    if least >= SAME:
        return Agreement(model, len(sample), least, agrees=True)
    if least >= _AKIN:
        reason = f"they are near ours and not the same: likely another precision than {embedder.precision or 'this'}"
    else:
        reason = "another model made them, or they are damaged"
    return Agreement(model, len(sample), least, agrees=False, reason=reason)


def proof(
    wiki_id: str, store: Store, source: Source, chunks_at: Callable[[str], Mapping[str, int]], patience: float
) -> Proof:
    """Compare the index with its wiki's tree, page by page and byte by byte; raises SyncFailed where they differ."""
    with store.writing(wiki_id, patience):
        index = store.open(wiki_id)
        try:
            state, pages, faults = index.state(), index.pages(), index.check()
            odd = {problem.file for problem in index.problems()}
        finally:
            index.close()
    if state.revision is None:
        raise _unproved("it stands for no revision")
    if faults:
        raise _unproved(faults[0])
    tree = source.tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - odd
    counts = chunks_at(state.revision)
    chunks = sum(counts.get(file, 0) for file in pages)
    if foreign or missing:
        raise _unproved(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    if chunks != state.chunks:
        raise _unproved(f"it holds {state.chunks} chunks, and its pages have {chunks}")
    return Proof(state.revision, len(pages), state.chunks, len(odd), len(foreign))


def _unproved(why: str) -> SyncFailed:
    return SyncFailed(
        f"the index is not what the wiki has at HEAD: {why}", hint="run `wikiholt reindex`, and please report this"
    )
