"""Pages that Otterwiki's settings hide are never searchable, however early a sync starts."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.services import build_test_service
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import SourceCorrupt
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

PAGES: dict[str, str | bytes | None] = {
    "home.md": "# Home\n\nBoats and ships. [[Drafts/Plan|the plan]]\n",
    "drafts/plan.md": "# Plan\n\nThe hiddencanary is in a draft.\n",
}
HIDE, DIALECT = "Drafts/", "otterwiki-linktitle"


def find(service: WikiService, slug: str, query: str) -> list[str]:
    found = service.get_handle(slug).search(SearchRequest(query, mode=SearchMode.KEYWORD))
    return [hit.path for hit in found.hits]


def test_a_worker_that_syncs_a_wiki_at_once_after_its_registration_indexes_no_hidden_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit(PAGES)
    with (
        closing(build_test_service(tmp_path / "data")) as service,
        closing(build_test_service(tmp_path / "data")) as other_worker,
    ):
        register = service.registry.add

        def add(slug: str, source: str, settings: Mapping[str, str]) -> Wiki:
            wiki = register(slug, source, settings)
            other_worker.get_background_handle(slug).sync()
            return wiki

        monkeypatch.setattr(service.registry, "add", add)
        wiki = WikiRegistrar(service, HIDE, DIALECT).get_or_register(WikiLocation(str(repository.path.resolve())))
        assert (wiki.settings["hide"], wiki.settings["dialect"]) == (HIDE, DIALECT)
        for process in (service, other_worker):
            assert find(process, wiki.slug, "boats") == ["home"]
            assert find(process, wiki.slug, "hiddencanary") == []
        # The index was right the first time: no other generation has to replace it.
        assert service.components.store.get_published(wiki.id) == 1


def test_a_wiki_whose_hidden_pages_cannot_be_hidden_is_not_shown(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit(PAGES)
    location = WikiLocation(str(repository.path.resolve()))
    with closing(build_test_service(tmp_path / "data")) as service:
        wiki = WikiRegistrar(service).get_or_register(location)
        service.get_handle(wiki.slug).sync()
        assert find(service, wiki.slug, "hiddencanary") == ["drafts/plan"]
        (repository.path / ".git" / "HEAD").write_text("damaged")  # the setting cannot be checked
        with pytest.raises(SourceCorrupt):
            WikiRegistrar(service, HIDE).get_or_register(location)
        # Another dialect only changes links: the wiki stays searchable without it.
        assert WikiRegistrar(service, dialect=DIALECT).get_or_register(location) == wiki
