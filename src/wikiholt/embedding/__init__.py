"""Text to vectors on the CPU, from files that are already on this machine.

`load` is the one way in. It reads and verifies, writes nothing, and needs no network, HOME or environment variable.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.embedding.identity import identify, lasting

if TYPE_CHECKING:
    from wikiholt.embedding.embedder import OnnxEmbedder

DEFAULT_MODEL = "all-MiniLM-L6-v2"


def load(
    model: str | Path = DEFAULT_MODEL, *, precision: str | None = None, threads: int | None = None
) -> "OnnxEmbedder":
    """The embedder of a built-in model or of a directory with a card, every file verified.

    Raises ModelMissing, ModelCorrupt or ModelMismatch. `precision` is the card's own unless given; `threads` is how
    many texts are embedded at a time, one a core unless given.
    """
    # onnxruntime and tokenizers cost a tenth of a second to import; commands that embed nothing do not pay it.
    from wikiholt.embedding.embedder import OnnxEmbedder  # noqa: PLC0415
    from wikiholt.embedding.opening import open_model  # noqa: PLC0415

    return OnnxEmbedder(open_model(model, precision), threads=threads, model=lasting(model))


__all__ = ["DEFAULT_MODEL", "identify", "load"]
