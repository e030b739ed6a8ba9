from collections.abc import Iterator

import pytest

from wikiholt import embedding
from wikiholt.app import bootstrap


@pytest.fixture(autouse=True)
def the_product_as_it_was() -> Iterator[None]:
    """The gates put a stand-in where a process loads its model; what comes after a gate is to find the real one."""
    load, identify, ground = embedding.load_embedder, embedding.identify_model, bootstrap.open_backend
    yield
    embedding.load_embedder, embedding.identify_model, bootstrap.open_backend = load, identify, ground
