"""Chroma in a child process: what it may do to itself, and what a search notices of it."""

from pathlib import Path
from collections.abc import Iterator
import pytest
from chroma_ground import *


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


def test_it_answers(ground):
    index = ground.wiki(ONE)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        import time

        t = time.time()
        assert helped(cache)
        print("first", time.time() - t)
        t = time.time()
        assert_right(cache, index)
        print(time.time() - t)
        print(engine.figures())
        cache.close()
