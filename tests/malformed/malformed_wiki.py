"""A wiki with malformed and healthy pages, served by the real application."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi.testclient import TestClient

from tests.malformed.malformed_pages import LARGE_PAGES, MALFORMED_PAGES, ODD_NAMES
from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.git.source import GitSource
from wikiholt.interfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle

HEALTHY_PAGES = {
    f"Healthy/{word.title()}.md": f"---\ntags: [fit]\n---\n# {word.title()}\n\nHere lives the {word}canary, "
    f"in good health. See [[{other.title()}]].\n"
    for word, other in (("kettle", "lantern"), ("lantern", "anvil"), ("anvil", "kettle"))
}
_UNLIMITED = {"limit.key_per_minute": 0, "limit.address_per_minute": 0, "sync.interval": 3600.0}


def commit_files(repository: Repository, files: Mapping[bytes, bytes]) -> None:
    """Commit exactly these files, with any names, and also a symbolic link and a submodule."""
    blobs: dict[bytes, str] = {}
    lines = []
    for name, data in files.items():
        if data not in blobs:
            blobs[data] = repository.write_blob(data)
        lines.append(b"100644 " + blobs[data].encode() + b"\t" + name)
    target = repository.write_blob(b"../../etc/passwd")
    lines.append(b"120000 " + target.encode() + b"\tlink.md")
    lines.append(b"160000 " + b"1" * 40 + b"\tmodule.md")
    index = repository.path / ".git" / "index"
    index.unlink(missing_ok=True)
    repository.run_git("update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines))
    tree = repository.run_git("write-tree", "--missing-ok").decode()
    commit = repository.run_git("commit-tree", tree, "-m", "Nasty").decode()
    repository.run_git("update-ref", "HEAD", commit)


def make_malformed_files() -> dict[bytes, bytes]:
    """All malformed pages, odd names and healthy pages."""
    files = {f"nasty/{name}.md".encode(): data for name, data in (MALFORMED_PAGES | LARGE_PAGES).items()}
    files |= {name: b"# Odd name\n\nnumber %d, see [x](other.md)\n" % number for number, name in enumerate(ODD_NAMES)}
    return files | {name.encode(): text.encode() for name, text in HEALTHY_PAGES.items()}


@dataclass(frozen=True)
class MalformedWiki:
    """The synced wiki, and a client of its service."""

    repository: Repository
    handle: WikiHandle
    source: GitSource
    client: TestClient
    data: Path

    def list_files(self) -> set[str]:
        """All page files at HEAD."""
        return set(self.source.read_tree(self.repository.get_head()))


@contextmanager
def open_malformed_wiki(directory: Path, files: Mapping[bytes, bytes]) -> Iterator[MalformedWiki]:
    repository = Repository(directory / "wiki")
    commit_files(repository, files)
    settings = load_settings(directory / "data", overrides=_UNLIMITED)
    service = build_service(settings)
    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    application = open_application(settings, service=service)
    service.add("nasty", str(repository.path), {})
    handle = service.get_handle("nasty")
    handle.sync()
    with TestClient(create_app(application), base_url="http://127.0.0.1") as client:
        yield MalformedWiki(repository, handle, GitSource(repository.path), client, directory / "data")
    service.close()
