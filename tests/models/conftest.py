from collections.abc import Iterator

import pytest

from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder


@pytest.fixture(scope="session")
def int8() -> Iterator[OnnxEmbedder]:
    """The default model."""
    with load_embedder(DEFAULT_MODEL, threads=2) as embedder:
        yield embedder
