"""Text to vectors, and queries with texts to scores, on the CPU, from files that are already on this machine.

`load` and `load_reranker` are the ways in. They read and verify, write nothing, and need no network, HOME or
environment variable.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.embedding.model_card import RERANKER
from wikiholt.embedding.model_files import identify_model, resolve_model_name

if TYPE_CHECKING:
    from wikiholt.embedding.embedder import OnnxEmbedder
    from wikiholt.embedding.reranker import OnnxReranker

DEFAULT_MODEL = "all-MiniLM-L6-v2"


def load_embedder(
    model: str | Path = DEFAULT_MODEL, *, precision: str | None = None, threads: int | None = None
) -> "OnnxEmbedder":
    """The embedder of a built-in model or of a directory with a card, every file verified.

    Raises ModelMissing, ModelCorrupt or ModelMismatch. `precision` is the card's own unless given; `threads` is how
    many texts are embedded at a time, one a core unless given.
    """
    # onnxruntime and tokenizers cost a tenth of a second to import; commands that embed nothing do not pay it.
    from wikiholt.embedding.embedder import OnnxEmbedder  # noqa: PLC0415
    from wikiholt.embedding.model_loader import load_model  # noqa: PLC0415

    return OnnxEmbedder(load_model(model, precision), threads=threads, model=resolve_model_name(model))


def load_reranker(model: str | Path, *, threads: int | None = None) -> "OnnxReranker":
    """The reranker of a built-in name or of a directory with a card, every file verified and the scores proved.

    Raises ModelMissing, ModelCorrupt, ModelMismatch or ModelUnproven.
    """
    from wikiholt.embedding.model_loader import load_model  # noqa: PLC0415 - as above
    from wikiholt.embedding.reranker import OnnxReranker  # noqa: PLC0415

    loaded = OnnxReranker(load_model(model, None, RERANKER), threads=threads)
    loaded.run_self_test()
    return loaded


__all__ = ["DEFAULT_MODEL", "RERANKER", "identify_model", "load_embedder", "load_reranker"]
