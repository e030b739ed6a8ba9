from collections.abc import Iterator

import pytest
from nasty_wiki import NastyWiki, nasty_files, nasty_wiki


@pytest.fixture(scope="session")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NastyWiki]:
    """Every nasty page in one wiki, synced once; tests only read it."""
    with nasty_wiki(tmp_path_factory.mktemp("nasty"), nasty_files()) as found:
        yield found
