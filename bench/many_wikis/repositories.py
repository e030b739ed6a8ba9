"""Creates many small wikis: git repositories of a few small real pages each, the same ones every time.

Objects are written as git writes loose ones, without starting git once a wiki: 10,000 repositories take a minute
instead of half an hour, and `git fsck` finds nothing wrong with them.
"""

import hashlib
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.collections import get_page_path, read_documents

MIN_CHARS, MAX_CHARS = 200, 1500
"""The length of a small page."""
MIN_PAGES, MAX_PAGES = 2, 5
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
_WHO = b"Bench <bench@example.org> 1700000000 +0000"


@dataclass(frozen=True)
class SmallPage:
    """A page and a question that it answers: its own title."""

    file: str
    title: str
    content: bytes


def read_small_pages(collections: Path) -> list[SmallPage]:
    """Every small page of the real wikis among the collections."""
    found = []
    for name in ("wiki-dendron", "wiki-k8s-en"):
        for document in read_documents(collections / name):
            text, title = document["text"].strip(), document["title"].strip().replace('"', "'")
            if MIN_CHARS <= len(text) <= MAX_CHARS and title:
                content = f'---\ntitle: "{title}"\n---\n\n{text}\n'.encode()
                found.append(SmallPage(f"{get_page_path(document['id'])}.md", title, content))
    return found


def pick_pages(pages: Sequence[SmallPage], number: int) -> list[SmallPage]:
    """The pages of the wiki with this number."""
    rng = random.Random(number)
    some = rng.sample(pages, rng.randint(MIN_PAGES, MAX_PAGES))
    return list({page.file: page for page in some}.values())


def make_slug(number: int) -> str:
    return f"wiki-{number:05d}"


def create_repositories(pages: Sequence[SmallPage], root: Path, count: int) -> Iterator[Path]:
    """Create the repositories that do not exist, and yield all paths."""
    root.mkdir(parents=True, exist_ok=True)
    existing = {path.name for path in root.iterdir()}
    for number in range(count):
        path = root / f"{make_slug(number)}.git"
        if path.name not in existing:
            create_repository(path, pick_pages(pages, number))
        yield path


def create_repository(path: Path, pages: Sequence[SmallPage]) -> None:
    """Create a bare repository of one commit."""
    temporary = path.with_name(f".{path.name}.making")
    for directory in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (temporary / directory).mkdir(parents=True, exist_ok=True)
    tree = _write_tree(temporary, {page.file: page.content for page in pages})
    commit = _write_object(
        temporary, b"commit", b"tree %s\nauthor %s\ncommitter %s\n\nWrite\n" % (tree.encode(), _WHO, _WHO)
    )
    (temporary / "config").write_bytes(_CONFIG)
    (temporary / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (temporary / "refs/heads/main").write_text(f"{commit}\n")
    temporary.rename(path)


def _write_tree(repository: Path, files: dict[str, bytes]) -> str:
    """The tree of these files, with the trees below it."""
    entries: dict[bytes, tuple[bytes, str]] = {}
    below: dict[str, dict[str, bytes]] = {}
    for file, content in files.items():
        top, _, rest = file.partition("/")
        if rest:
            below.setdefault(top, {})[rest] = content
        else:
            entries[top.encode()] = (b"100644", _write_object(repository, b"blob", content))
    for name, inner in below.items():
        entries[name.encode() + b"/"] = (b"40000", _write_tree(repository, inner))
    # Git sorts a directory as if its name ended in a slash.
    lines = (
        b"%s %s\0%s" % (entries[key][0], key.rstrip(b"/"), bytes.fromhex(entries[key][1])) for key in sorted(entries)
    )
    return _write_object(repository, b"tree", b"".join(lines))


def _write_object(repository: Path, kind: bytes, content: bytes) -> str:
    whole = b"%s %d\0%s" % (kind, len(content), content)
    name = hashlib.sha1(whole).hexdigest()
    file = repository / "objects" / name[:2] / name[2:]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(zlib.compress(whole, 1))
    return name
