"""Text to vectors, and queries with texts to scores.

`load_embedder` and `load_reranker` are the entry points. A model on this machine runs from verified files, and needs no
network, HOME or environment variable. A model on a server (`openai:NAME`) is checked with stored vectors instead.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.models.model_card import RERANKER
from wikiholt.models.model_files import identify_model, resolve_model_name
from wikiholt.models.remote_references import RemoteOptions, is_remote_model

if TYPE_CHECKING:
    from wikiholt.models.embedder import OnnxEmbedder
    from wikiholt.models.remote_embedder import RemoteEmbedder
    from wikiholt.models.reranker import OnnxReranker

DEFAULT_MODEL = "wikiholt-1"
DEFAULT_RERANKER = "wikiholt-rerank-1"


def load_embedder(
    model: str | Path = DEFAULT_MODEL,
    *,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    remote: RemoteOptions | None = None,
) -> "OnnxEmbedder | RemoteEmbedder":
    """The embedder of a built-in model, of a directory with a card, whose files are verified, or of a server.

    `precision` defaults to that of the card; `threads` is the number of texts embedded in parallel, by default one per
    core; `device` is auto, cpu or cuda; `remote` describes the server of `openai:NAME`. Raises ModelError.
    """
    # onnxruntime and tokenizers take a tenth of a second to import; commands that embed nothing do not need them.
    if is_remote_model(model):
        from wikiholt.models.remote_embedder import open_remote_embedder  # noqa: PLC0415

        load_local = partial(load_local_embedder, threads=threads, device=device)
        return open_remote_embedder(str(model), remote or RemoteOptions(), load_local)
    return load_local_embedder(model, precision=precision, threads=threads, device=device)


def load_local_embedder(
    model: str | Path, *, precision: str | None = None, threads: int | None = None, device: str = "cpu"
) -> "OnnxEmbedder":
    """The embedder of a model on this machine. Raises ModelMissing, ModelCorrupt, ModelMismatch."""
    from wikiholt.models.embedder import OnnxEmbedder  # noqa: PLC0415 - as above
    from wikiholt.models.model_loader import load_model  # noqa: PLC0415

    loaded = load_model(model, precision, device=device)
    return OnnxEmbedder(loaded, threads=threads, model=resolve_model_name(model), device=device)


def load_reranker(model: str | Path, *, threads: int | None = None) -> "OnnxReranker":
    """The reranker of a built-in model or of a directory with a card; every file is verified and the self-test passed.

    Raises ModelMissing, ModelCorrupt, ModelMismatch, ModelSelfTestFailed.
    """
    from wikiholt.models.model_loader import load_model  # noqa: PLC0415 - as above
    from wikiholt.models.reranker import OnnxReranker  # noqa: PLC0415

    loaded = OnnxReranker(load_model(model, None, RERANKER), threads=threads)
    loaded.run_self_test()
    return loaded


__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_RERANKER",
    "RERANKER",
    "RemoteOptions",
    "identify_model",
    "load_embedder",
    "load_local_embedder",
    "load_reranker",
]
