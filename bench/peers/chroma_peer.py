"""ChromaDB's default query, as its manual shows it: `collection.add(documents=…)`, `collection.query(query_texts=…)`.

    PEER bench/peers/chroma_peer.py TEXTS STATE CARRIER [VECTORS]

Its default embedding function would fetch its model; the same fp32 files are put where it looks for them. With VECTORS
(one for each text) nothing is embedded but the queries.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import chromadb
import numpy as np
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2
from lines import PASSAGES_A_PAGE, is_built, mark_built, read_texts, run_peer

# Files whose existence stops the download; their content is not read.
_UNREAD = ("config.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt")
_BATCH = 320


def write_model(carrier: Path, to: Path) -> None:
    (to / "onnx").mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "onnx/model.onnx", "onnx/model.onnx_data"):
        if not (to / "onnx" / Path(name).name).exists():
            shutil.copyfile(carrier / name, to / "onnx" / Path(name).name)
    for name in _UNREAD:
        (to / "onnx" / name).touch()
    ONNXMiniLM_L6_V2.DOWNLOAD_PATH = to


def main(file: Path, state: Path, carrier: Path, vectors: Path | None) -> None:
    write_model(carrier, state.parent.parent / "chroma-model")
    rows = read_texts(file)
    client = chromadb.PersistentClient(str(state / "chroma"))
    # Its default distance is the squared Euclidean one; all vectors have unit length, so the order is that of cosines.
    collection = client.get_or_create_collection("wiki")
    if not is_built(state):
        given = np.load(vectors).astype(np.float32) if vectors else None
        for begin in range(collection.count(), len(rows), _BATCH):  # continues where it was stopped
            part = rows[begin : begin + _BATCH]
            collection.add(
                ids=[str(begin + at) for at in range(len(part))],
                documents=[text for _, text in part],
                metadatas=[{"page": page} for page, _ in part],
                embeddings=None if given is None else list(given[begin : begin + len(part)]),
            )
            print(f"{begin + len(part)} of {len(rows)}", file=sys.stderr, flush=True)
        mark_built(state)

    def search(query: str, n: int) -> Iterable[str]:
        limit = min(n * PASSAGES_A_PAGE if vectors else n, len(rows))
        found = collection.query(query_texts=[query], n_results=limit, include=["metadatas"])
        return [str(each["page"]) for each in (found["metadatas"] or [[]])[0]]

    run_peer(search)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
