"""ChromaDB's default embedding code on given weights, driven over standard input; runs in the peers' environment.

Each line read is a JSON list of texts, or a text for a query; each line written is the seconds it took.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from chromadb.utils.embedding_functions import DefaultEmbeddingFunction, ONNXMiniLM_L6_V2

# Files whose existence stops the download; their content is not read.
_UNREAD = ("config.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt")


def main(carrier: Path, scratch: Path) -> None:
    extracted = scratch / "onnx"
    extracted.mkdir(parents=True)
    for name in ("tokenizer.json", "onnx/model.onnx", "onnx/model.onnx_data"):
        shutil.copyfile(carrier / name, extracted / Path(name).name)
    for name in _UNREAD:
        (extracted / name).touch()
    ONNXMiniLM_L6_V2.DOWNLOAD_PATH = scratch
    session = ONNXMiniLM_L6_V2()
    session(["warm up"])
    print("ready", flush=True)
    for line in sys.stdin:
        kind, texts = json.loads(line)
        started = time.perf_counter()
        # As a collection calls it (a new session for every call), or with one session kept, which is faster.
        (DefaultEmbeddingFunction() if kind == "default" else session)(texts)
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
