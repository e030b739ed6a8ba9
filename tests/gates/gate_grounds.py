"""Where the wikis of the isolation gate live: the same farm and the same questions on files and in PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from canaries import codes_of_file, codes_on_disk
from farm import contents, open_farm

from wikiholt.service import Service


class Ground(Protocol):
    """A place for a farm, and a look at every byte of it that no part of the product takes."""

    data: Path

    def open(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> Service:
        """The service over this place, with a stand-in for the model that takes so long for a batch."""

    def held(self, wiki_id: str) -> Mapping[str, object]:
        """All that is kept of one wiki, each part under a name; equal only if nothing has changed."""

    def codes_of(self, wiki_id: str) -> set[str]:
        """The wikis whose words are in what is kept of one."""

    def codes(self) -> set[str]:
        """The wikis whose words are anywhere."""

    def where(self, code: str) -> list[str]:
        """The places in which words of a wiki stand."""

    def traces(self, wiki_id: str) -> list[str]:
        """The places in which a wiki's id stands."""


class Files:
    """A data directory of the embedded store."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def open(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> Service:
        return open_farm(self.data, model=model, seconds=seconds, background=background)

    def held(self, wiki_id: str) -> Mapping[str, object]:
        return contents(self._place(wiki_id))

    def codes_of(self, wiki_id: str) -> set[str]:
        return codes_on_disk(self._place(wiki_id))

    def codes(self) -> set[str]:
        return codes_on_disk(self.data)

    def where(self, code: str) -> list[str]:
        return where_on_disk(self.data, code)

    def traces(self, wiki_id: str) -> list[str]:
        return traces_on_disk(self.data, wiki_id)

    def _place(self, wiki_id: str) -> Path:
        return self.data / "wikis" / wiki_id


def where_on_disk(place: Path, code: str) -> list[str]:
    if code not in codes_on_disk(place):
        return []
    return [str(file) for file in place.rglob("*") if code in codes_of_file(file)]


def traces_on_disk(place: Path, wiki_id: str) -> list[str]:
    named = [str(file) for file in place.rglob("*") if wiki_id in str(file)]
    return named + [str(file) for file in place.rglob("*") if file.is_file() and wiki_id.encode() in file.read_bytes()]
