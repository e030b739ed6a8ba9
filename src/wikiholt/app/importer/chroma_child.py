"""Reads a directory of Chroma's in a process of its own, and writes its rows to standard output, a JSON line each.

Chroma may crash, panic or hang on a damaged directory; then this process is what goes.
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
    names = sorted(each.name for each in client.list_collections())
    yield {"collections": names}
    if name not in names:
        return
    # Without an embedding function: nothing is to be fetched or loaded for reading.
    collection = client.get_collection(name, embedding_function=None)
    count = collection.count()
    yield {"count": count, "metadata": collection.metadata}
    for offset in range(0, count, _BATCH_ROWS):
        got = collection.get(limit=_BATCH_ROWS, offset=offset, include=["documents", "metadatas", "embeddings"])
        vectors = got["embeddings"].astype("<f4")
        yield {
            "ids": got["ids"],
            "texts": got["documents"],
            "metadatas": got["metadatas"],
            "dimensions": vectors.shape[1] if len(vectors) else 0,
            "vectors": base64.b64encode(vectors.tobytes()).decode(),
        }
    yield {"done": True}


def main(arguments: list[str]) -> int:
    """Whatever goes wrong is told in a line of its own, if there is time for it."""
    with contextlib.suppress(AttributeError, OSError):  # elsewhere than on Linux it ends with its pipe
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no row
    try:
        for line in _iter_lines(*arguments):
            out.write(json.dumps(line) + "\n")
            out.flush()
    except ImportError as error:
        out.write(json.dumps({"missing": str(error)}) + "\n")
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        out.write(json.dumps({"error": type(error).__name__, "about": str(error)[:300]}) + "\n")
    out.flush()
    os._exit(0)  # no destructor of Chroma's is to have a say in this


if __name__ == "__main__":
    main(sys.argv[1:])
