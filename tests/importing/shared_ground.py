"""Wikis that shared an index: two repositories, a service with a model that counts, and rows as others wrote them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from git_repository import Repository

from wikiholt import wiring
from wikiholt.importing import Importer, ImportReport, Options, Rules, SharedRow
from wikiholt.importing.shared import SharedRows
from wikiholt.importing.surveying import drafts
from wikiholt.model import Floats
from wikiholt.ports import Embedder
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.testing import FakeEmbedder

HARBOUR = {
    "home.md": "# Home\n\nThe quay where mackerelcanary is landed.\n",
    "ships/dredger.md": "# Dredger\n\nIt keeps the channel deep for ferries.\n",
    "tides.md": "# Tides\n\nHigh water comes twice a day.\n",
}
GARDEN = {
    "home.md": "# Home\n\nThe bed where rhubarbcanary grows.\n",
    "compost.md": "# Compost\n\nLeaves, peel and patience.\n",
}


@dataclass
class Rows:
    """A shared index in memory."""

    given: list[SharedRow] = field(default_factory=list)
    name: str = "rows"

    def rows(self) -> SharedRows:
        yield from self.given


class Ground:
    """`harbour` and `garden`, registered and not yet indexed."""

    def __init__(self, place: Path, wikis: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.place = place
        self.data = place / "data"
        self.embedder = FakeEmbedder()
        self.service = self.opened(self.data, self.embedder)
        self.repositories: dict[str, Repository] = {}
        for slug, pages in (wikis or {"harbour": HARBOUR, "garden": GARDEN}).items():
            self.repositories[slug] = Repository(place / "repositories" / slug)
            self.repositories[slug].commit(dict(pages))
            self.service.add(slug, str(self.repositories[slug].path), {})

    @staticmethod
    def opened(data: Path, embedder: Embedder) -> Service:
        service = wiring.build(load(data))
        service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
        return service

    def texts(self, slug: str) -> list[tuple[str, int, str]]:
        """Page, number and text of every chunk, as our own pipeline embeds it."""
        parts = self.service.parts(self.service.registry.get(slug))
        made = drafts(parts, parts.source.head(), self.embedder)
        return [(draft.page.path, n, text) for some in made for draft in some for n, text in enumerate(draft.texts)]

    def rows(self, slug: str, *, tenant: str | None = None, embedder: Embedder | None = None) -> list[SharedRow]:
        """The rows of one wiki, page names as Otterwiki writes them."""
        texts = self.texts(slug)
        vectors = (embedder or FakeEmbedder()).passages([text for _, _, text in texts])
        return [
            SharedRow(page.title(), text, vector, tenant, n)
            for (page, n, text), vector in zip(texts, vectors, strict=True)
        ]

    def run(self, rows: Sequence[SharedRow], rules: Rules | None = None, **options: object) -> ImportReport:
        self.embedder.embedded.clear()
        made = Options(rules or Rules(), **options)  # type: ignore[arg-type]
        return Importer(self.service, self.data, made).run(lambda _: Rows(list(rows)))

    def files(self) -> dict[str, bytes]:
        below = (self.data / "wikis").rglob("*")
        return {str(file): file.read_bytes() for file in below if file.is_file() and not file.name.endswith("-shm")}

    def close(self) -> None:
        self.service.close()


def entry(row: SharedRow) -> dict[str, object]:
    """A row as otterwiki-semantic-search writes it beside its vector."""
    metadata = {"page_path": row.page, "chunk_index": row.index}
    return {"id": f"{row.page}::chunk_{row.index}", "text": row.text, "metadata": metadata}


def write_rows(file: Path, rows: Sequence[SharedRow]) -> None:
    """For a child that is to put them into Chroma."""
    listed = [{**entry(row), "vector": row.vector.tolist()} for row in rows]
    file.write_text(json.dumps(listed), "utf-8")


def vectors_of(rows: Sequence[SharedRow]) -> Floats:
    return np.stack([row.vector for row in rows])
