from collections.abc import Iterator

import pytest

from tests.malformed.malformed_wiki import MalformedWiki, make_malformed_files, open_malformed_wiki


@pytest.fixture(scope="session")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MalformedWiki]:
    """All malformed pages in one wiki, synced once. Tests only read it."""
    with open_malformed_wiki(tmp_path_factory.mktemp("nasty"), make_malformed_files()) as found:
        yield found
