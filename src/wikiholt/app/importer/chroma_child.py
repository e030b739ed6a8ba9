"""A child process that reads a Chroma directory and writes its rows to standard output as JSON lines.

Chroma may crash, panic or hang on a damaged directory. Only this process is affected then.
"""

import base64
import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

_BATCH_ROWS = 500
_PR_SET_PDEATHSIG = 1


def _iter_lines(directory: str, tenant: str, database: str, name: str) -> Iterator[dict[str, object]]:
    chromadb: Any = importlib.import_module("chromadb")
    settings: Any = importlib.import_module("chromadb.config").Settings
    client = chromadb.PersistentClient(
        directory, settings(anonymized_telemetry=False), tenant=tenant, database=database
    )
    names = sorted(collection.name for collection in client.list_collections())
    yield {"collections": names}
    if name not in names:
        return
    # Without an embedding function, so that no model is downloaded or loaded.
    collection = client.get_collection(name, embedding_function=None)
    count = collection.count()
    yield {"count": count, "metadata": collection.metadata}
    for offset in range(0, count, _BATCH_ROWS):
        batch = collection.get(limit=_BATCH_ROWS, offset=offset, include=["documents", "metadatas", "embeddings"])
        vectors = batch["embeddings"].astype("<f4")
        yield {
            "ids": batch["ids"],
            "texts": batch["documents"],
            "metadatas": batch["metadatas"],
            "dimensions": vectors.shape[1] if len(vectors) else 0,
            "vectors": base64.b64encode(vectors.tobytes()).decode(),
        }
    yield {"done": True}


def main(arguments: list[str]) -> int:
    """Write the rows. An error is written as a line of its own."""
    with contextlib.suppress(AttributeError, OSError):  # on other systems it ends with its pipe
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the output of libraries out of the rows
    try:
        for line in _iter_lines(*arguments):
            out.write(json.dumps(line) + "\n")
            out.flush()
    except ImportError as error:
        out.write(json.dumps({"missing": str(error)}) + "\n")
    except BaseException as error:  # noqa: BLE001 - a Rust panic is not an Exception
        out.write(json.dumps({"error": type(error).__name__, "about": str(error)[:300]}) + "\n")
    out.flush()
    os._exit(0)  # skip the destructors of Chroma


if __name__ == "__main__":
    main(sys.argv[1:])
