import pytest

from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder


@pytest.fixture(scope="session")
def int8() -> OnnxEmbedder:
    """The default model."""
    return load_embedder(DEFAULT_MODEL, threads=2)
