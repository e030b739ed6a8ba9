from collections.abc import Iterator

import pytest

from wikiholt import embedding
from wikiholt.app import bootstrap


@pytest.fixture(autouse=True)
def restore_model_loaders() -> Iterator[None]:
    """Restore the functions that the crash tests replace with a fake model, so that later tests get the real ones."""
    load, identify, backend = embedding.load_embedder, embedding.identify_model, bootstrap.open_backend
    yield
    embedding.load_embedder, embedding.identify_model, bootstrap.open_backend = load, identify, backend
