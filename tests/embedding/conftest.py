from collections.abc import Iterator

import pytest

from wikiholt.embedding import load_embedder
from wikiholt.embedding.embedder import OnnxEmbedder

BUILT_IN_MODELS = ("wikiholt-1", "all-MiniLM-L6-v2")


@pytest.fixture(scope="session", params=BUILT_IN_MODELS)
def int8(request: pytest.FixtureRequest) -> Iterator[OnnxEmbedder]:
    """Each built-in model that has both precisions, in int8."""
    with load_embedder(request.param, precision="int8", threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="session")
def fp32(int8: OnnxEmbedder) -> Iterator[OnnxEmbedder]:
    """The model of `int8` in fp32."""
    with load_embedder(int8.model, precision="fp32", threads=2) as embedder:
        yield embedder
