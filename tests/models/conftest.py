from collections.abc import Iterator

import pytest

from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="session", params=[DEFAULT_MODEL, MINILM])
def int8(request: pytest.FixtureRequest) -> Iterator[OnnxEmbedder]:
    """The default model, and the one with both precisions, in int8."""
    with load_embedder(request.param, precision="int8", threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="session")
def fp32() -> Iterator[OnnxEmbedder]:
    """The model that has both precisions, in fp32."""
    with load_embedder(MINILM, precision="fp32", threads=2) as embedder:
        yield embedder
