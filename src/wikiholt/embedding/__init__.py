"""Text to vectors, and queries with texts to scores, on the CPU, from model files that are already on this machine.

`load_embedder` and `load_reranker` are the entry points. They read and verify files, write nothing, and need no
network, HOME or environment variable.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.embedding.model_card import RERANKER
from wikiholt.embedding.model_files import identify_model, resolve_model_name

if TYPE_CHECKING:
    from wikiholt.embedding.embedder import OnnxEmbedder
    from wikiholt.embedding.reranker import OnnxReranker

DEFAULT_MODEL = "granite-embedding-30m-english"


def load_embedder(
    model: str | Path = DEFAULT_MODEL, *, precision: str | None = None, threads: int | None = None
) -> "OnnxEmbedder":
    """The embedder of a built-in model or of a directory with a card; every file is verified.

    `precision` defaults to that of the card; `threads` is the number of texts embedded in parallel, by default one per
    core. Raises ModelMissing, ModelCorrupt, ModelMismatch.
    """
    # onnxruntime and tokenizers take a tenth of a second to import; commands that embed nothing do not need them.
    from wikiholt.embedding.embedder import OnnxEmbedder  # noqa: PLC0415
    from wikiholt.embedding.model_loader import load_model  # noqa: PLC0415

    return OnnxEmbedder(load_model(model, precision), threads=threads, model=resolve_model_name(model))


def load_reranker(model: str | Path, *, threads: int | None = None) -> "OnnxReranker":
    """The reranker of a built-in model or of a directory with a card; every file is verified and the self-test passed.

    Raises ModelMissing, ModelCorrupt, ModelMismatch, ModelSelfTestFailed.
    """
    from wikiholt.embedding.model_loader import load_model  # noqa: PLC0415 - as above
    from wikiholt.embedding.reranker import OnnxReranker  # noqa: PLC0415

    loaded = OnnxReranker(load_model(model, None, RERANKER), threads=threads)
    loaded.run_self_test()
    return loaded


__all__ = ["DEFAULT_MODEL", "RERANKER", "identify_model", "load_embedder", "load_reranker"]
