"""Storage backends of the isolation tests: the same wikis and the same queries on files and in PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.isolation.canaries import find_codes_in_file, find_codes_on_disk
from tests.support.services import make_cached_service, read_all_files
from wikiholt.wikis.service import WikiService


class IsolationBackend(Protocol):
    """Storage of wikis, and functions that read all of it without the product code."""

    data: Path

    def open_service(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> WikiService:
        """A service on this storage, with a fake model that takes `seconds` for a batch."""

    def read_wiki(self, wiki_id: str) -> Mapping[str, object]:
        """All stored data of one wiki by name; equal only if nothing has changed."""

    def find_wiki_codes(self, wiki_id: str) -> set[str]:
        """The codes of the wikis whose words are in the stored data of one wiki."""

    def find_all_codes(self) -> set[str]:
        """The codes of the wikis whose words are anywhere in the storage."""

    def find_places(self, *codes: str) -> list[str]:
        """The places that contain words of one of these wikis."""

    def find_traces(self, *wiki_ids: str) -> list[str]:
        """The places that contain one of these ids of wikis."""


class FileBackend:
    """A data directory of the SQLite store."""

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

    def find_places(self, *codes: str) -> list[str]:
        return find_places_on_disk(self.data, *codes)

    def find_traces(self, *wiki_ids: str) -> list[str]:
        return find_traces_on_disk(self.data, *wiki_ids)

    def _get_directory(self, wiki_id: str) -> Path:
        return self.data / "wikis" / wiki_id


def find_places_on_disk(directory: Path, *codes: str) -> list[str]:
    if not find_codes_on_disk(directory) & set(codes):
        return []
    return [str(file) for file in directory.rglob("*") if find_codes_in_file(file) & set(codes)]


def find_traces_on_disk(directory: Path, *wiki_ids: str) -> list[str]:
    found = []
    for file in directory.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        if any(wiki_id in str(file) or wiki_id.encode() in content for wiki_id in wiki_ids):
            found.append(str(file))
    return found
