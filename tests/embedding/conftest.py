from collections.abc import Iterator

import pytest

from wikiholt.embedding import load_embedder
from wikiholt.embedding.embedder import OnnxEmbedder


@pytest.fixture(scope="session")
def minilm() -> Iterator[OnnxEmbedder]:
    with load_embedder(threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="session")
def minilm_fp32() -> Iterator[OnnxEmbedder]:
    with load_embedder(precision="fp32", threads=2) as embedder:
        yield embedder
