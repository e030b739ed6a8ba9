"""The wiki of 14,593 pages for sync and search benchmarks, as a bare repository that benchmarks may commit to, and git."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.report import CORPUS, DATA
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.sqlite.store import SqliteStore

_ENVIRONMENT = {f"GIT_{role}_NAME": "Bench" for role in ("AUTHOR", "COMMITTER")}
_ENVIRONMENT |= {f"GIT_{role}_EMAIL": "bench@example.org" for role in ("AUTHOR", "COMMITTER")}
_ENVIRONMENT |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}


def run_git(directory: Path, *arguments: str, stdin: str = "") -> str:
    """Run git in a directory without the settings of the user, and return its output."""
    command, environment = ["git", "-C", str(directory), *arguments], os.environ | _ENVIRONMENT
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, check=True, env=environment)
    return done.stdout.decode()


def list_pages(repository: Path) -> list[str]:
    """The Markdown files at HEAD."""
    return [
        file
        for file in run_git(repository, "ls-tree", "-rz", "--name-only", "HEAD").split("\0")
        if file.endswith(".md")
    ]


def read_pages(repository: Path, files: Sequence[str]) -> list[str]:
    """The texts of these files at HEAD."""
    command = ["git", "-C", str(repository), "cat-file", "--batch"]
    names = "".join(f"HEAD:{file}\n" for file in files).encode()
    data = subprocess.run(command, input=names, capture_output=True, check=True).stdout
    pages, position = [], 0
    while position < len(data):
        end = data.index(b"\n", position)
        position = end + 2 + int(data[position:end].split()[2])
        pages.append(data[end + 1 : position - 1].decode())
    return pages


class BareWiki:
    """A bare repository whose HEAD a bench moves."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run_git(self, *arguments: str, stdin: str = "") -> str:
        return run_git(self.path, *arguments, stdin=stdin).strip()

    def set_head(self, revision: str) -> None:
        self.run_git("update-ref", "HEAD", revision)

    def commit(self, tree: str, message: str) -> str:
        commit = self.run_git("commit-tree", tree, "-p", "HEAD", "-m", message)
        self.set_head(commit)
        return commit

    def write_page(self, file: str, text: str) -> str:
        """Commit one file's new content."""
        blob = self.run_git("hash-object", "-w", "--stdin", stdin=text)
        return self.commit(
            self._put(self.run_git("rev-parse", "HEAD^{tree}"), file.split("/"), f"100644 blob {blob}"), "edit"
        )

    def rename_directory(self, old: str, new: str) -> str:
        """Commit a directory under another name, beside the old one."""
        *above, name = old.split("/")
        parent = (
            self.run_git("rev-parse", "HEAD:" + "/".join(above)) if above else self.run_git("rev-parse", "HEAD^{tree}")
        )
        lines = self.run_git("ls-tree", parent).splitlines()
        renamed = "\n".join(f"{line.split(chr(9))[0]}\t{new}" if line.endswith(f"\t{name}") else line for line in lines)
        tree = self.run_git("mktree", stdin=renamed + "\n")
        root = self._put(self.run_git("rev-parse", "HEAD^{tree}"), above, f"040000 tree {tree}") if above else tree
        return self.commit(root, "rename")

    def _put(self, tree: str, parts: list[str], entry: str) -> str:
        """A tree like this one with the entry at a path."""
        name, *rest = parts
        if rest:
            entry = f"040000 tree {self._put(self.run_git('rev-parse', f'{tree}:{name}'), rest, entry)}"
        lines = [line for line in self.run_git("ls-tree", tree).splitlines() if not line.endswith(f"\t{name}")]
        return self.run_git("mktree", stdin="\n".join([*lines, f"{entry}\t{name}"]) + "\n")


def open_clone(bundle: Path = CORPUS, to: Path = DATA / "mdn.git") -> BareWiki:
    """The clone of a bundle; cloned if it does not exist."""
    if not (to / "HEAD").exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        run_git(Path(), "clone", "-q", "--bare", "-b", "main", str(bundle), str(to))
    return BareWiki(to)


def make_smaller(wiki: BareWiki, to: Path, pages: int) -> BareWiki:
    """A wiki of every k-th page of this one, with about this number of pages."""
    if not (to / "HEAD").exists():
        run_git(Path(), "init", "-q", "--bare", "-b", "main", str(to))
        lines = wiki.run_git("ls-tree", "-r", "HEAD").splitlines()
        chosen = lines[:: max(1, len(lines) // pages)][:pages]
        (to / "objects/info/alternates").write_text(str((wiki.path / "objects").resolve()) + "\n")
        small = BareWiki(to)
        small.run_git("update-index", "--index-info", stdin="\n".join(chosen) + "\n")
        commit = small.run_git("commit-tree", small.run_git("write-tree"), "-m", "some pages")
        small.set_head(commit)
    return BareWiki(to)


@contextmanager
def open_large_index(chunks: int) -> Iterator[WikiIndex]:
    """An index of bench.sync with at least this number of chunks; exits if there is none."""
    store = SqliteStore(DATA / "sync" / "wikis")
    for wiki_id in store.list_wiki_ids():
        with closing(store.open(wiki_id)) as index:
            if index.get_state().chunks >= chunks:
                yield index
                return
    sys.exit(f"there is no index of {chunks:,} chunks: run `python -m bench.sync` first")
