"""The wikis of a soak: git repositories of small real pages, each with a word that no other has, and clones of them."""

import hashlib
import random
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from bench.corpus import run_git
from bench.many_wikis.repositories import SmallPage, create_repository, pick_pages, read_small_pages
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.wiki import Scope

CANARY_PAGE = "Canary"
SECRET = "soak-webhook"
_LETTERS = "bcfghjkmpqvwxz"


@dataclass(slots=True)
class SoakWiki:
    """A wiki, its keys, and the acknowledged commits."""

    slug: str
    repository: Path
    canary: str
    titles: Sequence[str]
    read_key: str = ""
    """A key for reading."""
    admin_key: str = ""
    """A key for everything."""
    commits: list[str] = field(default_factory=list)
    """Commits that the service or git acknowledged."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_commit(self, revision: str) -> None:
        with self.lock:
            self.commits.append(revision)


def make_canary(name: str) -> str:
    """A word that belongs to one wiki, and that no stemmer changes."""
    digest = hashlib.sha256(name.encode()).digest()[:10]
    return "kanari" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)


def load_pages(collections: Path) -> list[SmallPage]:
    """Small pages of real wikis: those of the collections, or those of the demo if there are no collections."""
    if (collections / "wiki-dendron").exists():
        return read_small_pages(collections)
    texts = [file for file in _iter_files(files("wikiholt.interfaces.cli.demo_wikis")) if file.name.endswith(".md")]
    return [SmallPage(file.name, file.name.removesuffix(".md"), file.read_bytes()) for file in texts]


def _iter_files(place: Traversable) -> Iterable[Traversable]:
    for each in sorted(place.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _iter_files(each)
        else:
            yield each


def create_wikis(pages: Sequence[SmallPage], root: Path, names: Sequence[str], seed: int) -> list[SoakWiki]:
    """Write a new bare repository for each name."""
    wikis = []
    root.mkdir(parents=True)
    for number, name in enumerate(names):
        word, own = make_canary(name), pick_pages(pages, seed * 100_003 + number)
        first = SmallPage(f"{CANARY_PAGE}.md", CANARY_PAGE, f"# {CANARY_PAGE}\n\nThe canary is {word}.\n".encode())
        home = SmallPage("Home.md", "Home", f"# Home\n\nThis is {word}. See [[{CANARY_PAGE}]].\n".encode())
        tagged = [_add_tags(page, number) for page in own if page.file not in ("Home.md", f"{CANARY_PAGE}.md")]
        path = root / f"{name}.git"
        create_repository(path, [first, home, *tagged])
        wikis.append(SoakWiki(name, path.resolve(), word, [page.title for page in own]))
    return wikis


def _add_tags(page: SmallPage, number: int) -> SmallPage:
    """The page with a tag and a category to filter by."""
    if not page.content.startswith(b"---\n"):
        return page
    head = f"---\ntags: [soak, t{number % 3}]\ncategory: c{number % 2}\n".encode()
    return SmallPage(page.file, page.title, head + page.content.removeprefix(b"---\n"))


def register_wikis(data: Path, wikis: Sequence[SoakWiki]) -> str:
    """Register the wikis and create their keys; returns the operator's key."""
    service = open_service(data)
    try:
        secret = {"webhook_secret": SECRET}
        service.registry.add_many([(wiki.slug, str(wiki.repository), secret) for wiki in wikis])
        for wiki in wikis:
            wiki_id = service.registry.get(wiki.slug).id
            wiki.read_key = service.registry.keys.create(wiki_id, Scope.READ, "reader")[1]
            wiki.admin_key = service.registry.keys.create(wiki_id, Scope.ADMIN, "owner")[1]
        return service.registry.keys.create(None, Scope.ADMIN, "operator")[1]
    finally:
        service.close()


class Clone:
    """A fresh clone for commits and pushes, like a user's."""

    def __init__(self, wiki: SoakWiki, place: Path) -> None:
        self._wiki = wiki
        self.place = place
        shutil.rmtree(place, ignore_errors=True)
        run_git(place.parent, "clone", "--quiet", "--depth=1", f"file://{wiki.repository}", str(place))

    def push(self) -> bool:
        """Commit all changes and push them; False if another push was faster."""
        run_git(self.place, "add", "--all")
        run_git(self.place, "commit", "--quiet", "--allow-empty", "-m", "Work in a clone")
        revision = run_git(self.place, "rev-parse", "HEAD").strip()
        try:
            run_git(self.place, "push", "--quiet", "origin", "HEAD")
        except subprocess.CalledProcessError:
            return False
        self._wiki.add_commit(revision)
        return True

    def list_files(self, folder: str) -> list[Path]:
        return sorted((self.place / folder).glob("*.md"))


def make_text(rng: random.Random, wiki: SoakWiki, mark: str, pages: Sequence[SmallPage]) -> str:
    """A page with its mark, the canary of its wiki, and some real text."""
    text = rng.choice(pages).content.decode().rpartition("---\n")[2].strip()
    return f"# Note {mark}\n\n{mark} of {wiki.canary}. [Home](../Home.md)\n\n{text[:700]}\n"
