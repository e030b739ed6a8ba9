"""The wiki of 14,593 pages for sync and search benchmarks, as a bare repository that benchmarks may commit to."""

import subprocess
from pathlib import Path

DEFAULT = Path("../shared/corpora/mdn.bundle")
DATA = Path("bench/data")


class BareWiki:
    """A bare repository whose HEAD a bench moves."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run_git(self, *arguments: str, stdin: str = "") -> str:
        who = {"GIT_AUTHOR_NAME": "Bench", "GIT_AUTHOR_EMAIL": "bench@example.org"}
        who |= {"GIT_COMMITTER_NAME": "Bench", "GIT_COMMITTER_EMAIL": "bench@example.org", "PATH": "/usr/bin:/bin"}
        command = ["git", "-C", str(self.path), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, env=who).stdout.strip()

    def set_head(self, revision: str) -> None:
        self.run_git("update-ref", "HEAD", revision)

    def commit(self, tree: str, message: str) -> str:
        commit = self.run_git("commit-tree", tree, "-p", "HEAD", "-m", message)
        self.set_head(commit)
        return commit

    def write_page(self, file: str, text: str) -> str:
        """Commit one file's new content."""
        blob = self.run_git("hash-object", "-w", "--stdin", stdin=text)
        return self.commit(self._put_blob(self.run_git("rev-parse", "HEAD^{tree}"), file.split("/"), blob), "edit")

    def rename_directory(self, old: str, new: str) -> str:
        """Commit a directory under another name, beside the old one."""
        *above, name = old.split("/")
        parent = (
            self.run_git("rev-parse", "HEAD:" + "/".join(above)) if above else self.run_git("rev-parse", "HEAD^{tree}")
        )
        lines = self.run_git("ls-tree", parent).splitlines()
        renamed = "\n".join(f"{line.split(chr(9))[0]}\t{new}" if line.endswith(f"\t{name}") else line for line in lines)
        tree = self.run_git("mktree", stdin=renamed + "\n")
        root = self._put_tree(self.run_git("rev-parse", "HEAD^{tree}"), above, tree) if above else tree
        return self.commit(root, "rename")

    def _put_blob(self, tree: str, parts: list[str], blob: str) -> str:
        if len(parts) == 1:
            return self._replace_entry(tree, parts[0], f"100644 blob {blob}")
        inner = self.run_git("rev-parse", f"{tree}:{parts[0]}")
        return self._replace_entry(tree, parts[0], f"040000 tree {self._put_blob(inner, parts[1:], blob)}")

    def _put_tree(self, tree: str, parts: list[str], leaf: str) -> str:
        if not parts:
            return leaf
        inner = self.run_git("rev-parse", f"{tree}:{parts[0]}")
        return self._replace_entry(tree, parts[0], f"040000 tree {self._put_tree(inner, parts[1:], leaf)}")

    def _replace_entry(self, tree: str, name: str, entry: str) -> str:
        lines = [line for line in self.run_git("ls-tree", tree).splitlines() if not line.endswith(f"\t{name}")]
        return self.run_git("mktree", stdin="\n".join([*lines, f"{entry}\t{name}"]) + "\n")


def open_clone(bundle: Path, to: Path) -> BareWiki:
    if not (to / "HEAD").exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "clone", "-q", "--bare", "-b", "main", str(bundle), str(to)]
        subprocess.run(command, check=True, capture_output=True)
    return BareWiki(to)


def make_smaller(wiki: BareWiki, to: Path, pages: int) -> BareWiki:
    """A wiki of every k-th page of this one, with about this number of pages."""
    if not (to / "HEAD").exists():
        to.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(to)], check=True)
        lines = wiki.run_git("ls-tree", "-r", "HEAD").splitlines()
        chosen = lines[:: max(1, len(lines) // pages)][:pages]
        (to / "objects/info/alternates").write_text(str((wiki.path / "objects").resolve()) + "\n")
        small = BareWiki(to)
        small.run_git("update-index", "--index-info", stdin="\n".join(chosen) + "\n")
        commit = small.run_git("commit-tree", small.run_git("write-tree"), "-m", "some pages")
        small.set_head(commit)
    return BareWiki(to)
