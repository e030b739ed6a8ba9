import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_ground import listening
from served_farm import Served, served


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A farm of the module's own; tests write to pages of their own."""
    with served(tmp_path_factory.mktemp("farm")) as found:
        yield found


@pytest.fixture(scope="module")
def base(farm: Served) -> Iterator[str]:
    with listening(farm.app) as address:
        yield address


@pytest.fixture(scope="module")
def url(base: str) -> str:
    return f"{base}/mcp"
