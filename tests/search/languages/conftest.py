"""Wikis of one module's pages, each searched with and without a keyword cache."""

from collections.abc import Iterator

import pytest

from tests.search.languages.language_fixtures import LanguageFixture


@pytest.fixture(scope="module", params=["index", "word cache"])
def language_wiki(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LanguageFixture]:
    """The module's PAGES in its LANGUAGE."""
    module, cached = request.module, request.param == "word cache"
    made = LanguageFixture(tmp_path_factory.mktemp("shelf"), module.PAGES, module.LANGUAGE, cached=cached)
    yield made
    made.handle.close()
