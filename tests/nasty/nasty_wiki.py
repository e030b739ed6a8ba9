"""A wiki of nasty pages among healthy ones, behind the real application."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient
from git_repository import Repository
from nasty_pages import LARGE, NASTY, ODD_NAMES

from wikiholt.handle import WikiHandle
from wikiholt.model import Floats
from wikiholt.settings import load
from wikiholt.sources.git import GitSource
from wikiholt.surfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build, open_farm

HEALTHY = {
    f"Healthy/{word.title()}.md": f"---\ntags: [fit]\n---\n# {word.title()}\n\nHere lives the {word}canary, "
    f"in good health. See [[{other.title()}]].\n"
    for word, other in (("kettle", "lantern"), ("lantern", "anvil"), ("anvil", "kettle"))
}
_UNLIMITED = {"limit.key_per_minute": 0, "limit.address_per_minute": 0, "sync.interval": 3600.0}
_WORD = re.compile(r"\w+|[^\w\s]")


class QuickEmbedder(FakeEmbedder):
    """The same vectors, with those of words kept: pages here repeat themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, Floats] = {}

    def passages(self, texts: "list[str]") -> Floats:  # type: ignore[override]
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Floats:
        total = np.full(self.dimensions, 1e-3, np.float32)
        for word in _WORD.findall(text.lower()):
            if word not in self._known:
                self._known[word] = super()._vector(word)
            total = total + self._known[word]
        return np.asarray(total / np.linalg.norm(total), np.float32)


def write(repository: Repository, files: Mapping[bytes, bytes]) -> None:
    """Commit exactly these files, whatever their names, with a link, a submodule and an empty page among them."""
    blobs: dict[bytes, str] = {}
    lines = []
    for name, data in files.items():
        if data not in blobs:
            blobs[data] = repository.blob(data)
        lines.append(b"100644 " + blobs[data].encode() + b"\t" + name)
    target = repository.blob(b"../../etc/passwd")
    lines.append(b"120000 " + target.encode() + b"\tlink.md")
    lines.append(b"160000 " + b"1" * 40 + b"\tmodule.md")
    index = repository.path / ".git" / "index"
    index.unlink(missing_ok=True)
    repository.git("update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines))
    tree = repository.git("write-tree", "--missing-ok").decode()
    commit = repository.git("commit-tree", tree, "-m", "Nasty").decode()
    repository.git("update-ref", "HEAD", commit)


def nasty_files() -> dict[bytes, bytes]:
    """Every nasty page and name, and the healthy ones."""
    files = {f"nasty/{name}.md".encode(): data for name, data in (NASTY | LARGE).items()}
    files |= {name: b"# Odd name\n\nnumber %d, see [x](other.md)\n" % number for number, name in enumerate(ODD_NAMES)}
    return files | {name.encode(): text.encode() for name, text in HEALTHY.items()}


@dataclass(frozen=True)
class NastyWiki:
    """The wiki, synced, and a client of the service it is served by."""

    repository: Repository
    handle: WikiHandle
    source: GitSource
    client: TestClient
    data: Path

    def files(self) -> set[str]:
        """All page files at HEAD, as the product names them."""
        return set(self.source.tree(self.repository.head()))


@contextmanager
def nasty_wiki(place: Path, files: Mapping[bytes, bytes]) -> Iterator[NastyWiki]:
    repository = Repository(place / "wiki")
    write(repository, files)
    settings = load(place / "data", overrides=_UNLIMITED)
    service = build(settings)
    embedder = QuickEmbedder()
    service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
    farm = open_farm(settings, service=service)
    service.add("nasty", str(repository.path), {})
    handle = service.wiki("nasty")
    handle.sync()
    with TestClient(create_app(farm), base_url="http://127.0.0.1") as client:
        yield NastyWiki(repository, handle, GitSource(repository.path), client, place / "data")
    service.close()
