"""Where the wikis of the isolation gate live: the same farm and the same questions on files and in PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.isolation.canaries import find_codes_in_file, find_codes_on_disk
from tests.support.services import make_cached_service, read_all_files
from wikiholt.wikis.service import WikiService


class IsolationBackend(Protocol):
    """A place for a farm, and a look at every byte of it that no part of the product takes."""

    data: Path

    def open_service(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> WikiService:
        """The service over this place, with a stand-in for the model that takes so long for a batch."""

    def read_wiki(self, wiki_id: str) -> Mapping[str, object]:
        """All that is kept of one wiki, each part under a name; equal only if nothing has changed."""

    def find_wiki_codes(self, wiki_id: str) -> set[str]:
        """The wikis whose words are in what is kept of one."""

    def find_all_codes(self) -> set[str]:
        """The wikis whose words are anywhere."""

    def find_places(self, code: str) -> list[str]:
        """The places in which words of a wiki stand."""

    def find_traces(self, wiki_id: str) -> list[str]:
        """The places in which a wiki's id stands."""


class FileBackend:
    """A data directory of the embedded store."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def open_service(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> WikiService:
        return make_cached_service(self.data, model=model, seconds=seconds, background=background)

    def read_wiki(self, wiki_id: str) -> Mapping[str, object]:
        return read_all_files(self._get_directory(wiki_id))

    def find_wiki_codes(self, wiki_id: str) -> set[str]:
        return find_codes_on_disk(self._get_directory(wiki_id))

    def find_all_codes(self) -> set[str]:
        return find_codes_on_disk(self.data)

    def find_places(self, code: str) -> list[str]:
        return find_places_on_disk(self.data, code)

    def find_traces(self, wiki_id: str) -> list[str]:
        return find_traces_on_disk(self.data, wiki_id)

    def _get_directory(self, wiki_id: str) -> Path:
        return self.data / "wikis" / wiki_id


def find_places_on_disk(place: Path, code: str) -> list[str]:
    if code not in find_codes_on_disk(place):
        return []
    return [str(file) for file in place.rglob("*") if code in find_codes_in_file(file)]


def find_traces_on_disk(place: Path, wiki_id: str) -> list[str]:
    named = [str(file) for file in place.rglob("*") if wiki_id in str(file)]
    return named + [str(file) for file in place.rglob("*") if file.is_file() and wiki_id.encode() in file.read_bytes()]
