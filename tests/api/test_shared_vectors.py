"""Vectors that are shared through a wiki's own repository: what a team mate embeds, and what is refused."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.support.git_repository import Repository
from wikiholt.api import bootstrap, shared_vectors
from wikiholt.api.operations.table import OPERATIONS_OF_SERVICE, OPERATIONS_OF_WIKI
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.api.shared_vectors import pull_vectors, push_index
from wikiholt.domain.protocols import Embedder
from wikiholt.errors import InvalidSource, ModelMismatch, NotFound, NothingIndexed, SourceError
from wikiholt.testing import FakeEmbedder

MAX_BYTES = 1 << 24
PAGES: dict[str, str | bytes | None] = {
    f"page-{number}.md": f"# Page {number}\n\nThe word is unique{number}.\n" for number in range(12)
}
HIDDEN: dict[str, str | bytes | None] = {"secret.md": "---\nhidden: true\n---\n# Secret\n\nA hidden word.\n"}


@pytest.fixture
def origin(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "origin")
    repository.commit(PAGES | HIDDEN)
    return repository


class Mate:
    """A team mate with a clone, a data directory and a model."""

    def __init__(self, directory: Path, origin: Repository, model: str = "fake") -> None:
        subprocess.run(["git", "clone", "-q", str(origin.path), str(directory / "clone")], check=True)
        self.clone = directory / "clone"
        self.embedder = FakeEmbedder(name=model)
        settings = load_settings(directory / "data", None, {}, {})
        self.service = bootstrap.build_service(settings)
        self.service.components = replace(self.service.components, embedder=lambda: self.embedder, identity=None)
        self.wiki = self.service.add("notes", str(self.clone), {})
        self.config = self.service.get_config(self.wiki)

    def push(self) -> int:
        handle = self.service.get_handle("notes")
        return push_index(handle, self.config, self.embedder, "origin", MAX_BYTES).texts

    def pull(self, sample: int = 64) -> tuple[int, int]:
        """The texts that were used, and those that were embedded."""
        embedder, _ = pull_vectors(self.wiki, self.config, self.embedder, "origin", sample, MAX_BYTES)
        with closing(self.service.open_with_embedder("notes", cast(Embedder, embedder))) as handle:
            handle.sync()
        return embedder.reused, embedder.embedded


@pytest.fixture
def ada(tmp_path: Path, origin: Repository) -> Iterator[Mate]:
    (tmp_path / "ada").mkdir()
    mate = Mate(tmp_path / "ada", origin)
    mate.service.get_handle("notes").sync()
    yield mate
    mate.service.close()


@pytest.fixture
def bo(tmp_path: Path, origin: Repository) -> Iterator[Mate]:
    (tmp_path / "bo").mkdir()
    mate = Mate(tmp_path / "bo", origin)
    yield mate
    mate.service.close()


def list_refs(origin: Repository) -> list[str]:
    return origin.run_git("for-each-ref", "--format=%(refname)", "refs/wikiholt").decode().split()


def test_a_team_mate_embeds_only_what_is_new_and_the_sample(ada: Mate, bo: Mate, origin: Repository) -> None:
    files = set(ada.clone.rglob("*"))
    assert ada.push() == len(PAGES)  # hidden pages have no vectors
    assert set(ada.clone.rglob("*")) == files, "nothing is written in the clone"
    (ref,) = list_refs(origin)
    origin.commit({"new.md": "# New\n\nA new page.\n"})
    subprocess.run(["git", "-C", str(bo.clone), "pull", "-q"], check=True)
    assert bo.pull(sample=4) == (len(PAGES), 1)
    assert len(bo.embedder.embedded) == 4 + 1
    one, other = (mate.service.get_handle("notes") for mate in (ada, bo))
    with one.open_contents() as (first, *_), other.open_contents() as (second, *_):
        hashes = [bytes(row) for row in read_rows(origin, ref)["hash"]]
        theirs, ours = first.find_vectors_by_hash(hashes), second.find_vectors_by_hash(hashes)
        assert theirs.keys() == ours.keys() == set(hashes)
        for digest in hashes:
            np.testing.assert_allclose(theirs[digest], ours[digest], atol=5e-5)


def read_rows(origin: Repository, ref: str) -> np.ndarray:  # type: ignore[type-arg]
    data = subprocess.check_output(["git", "-C", str(origin.path), "cat-file", "blob", f"{ref}:part-0000"])
    return np.frombuffer(data, np.dtype([("hash", "V16"), ("codes", "<i2", (32,))]))


def test_a_push_replaces_what_was_there_without_history(ada: Mate, origin: Repository) -> None:
    ada.push()
    (ref,) = list_refs(origin)
    (ada.clone / "more.md").write_text("# More\n\nMore words.\n")
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for command in (["add", "."], [*author, "commit", "-qm", "More"]):
        subprocess.run(["git", "-C", str(ada.clone), *command], check=True)
    ada.service.get_handle("notes").sync()
    assert ada.push() == len(PAGES) + 1
    assert list_refs(origin) == [ref]
    assert origin.run_git("rev-list", "--count", ref) == b"1"


def test_another_model_finds_nothing_and_an_index_without_vectors_is_not_pushed(
    ada: Mate, bo: Mate, tmp_path: Path, origin: Repository
) -> None:
    with pytest.raises(NotFound, match="no index for this model"):
        bo.pull()
    bo.service.get_handle("notes").sync(words_only=True)
    ada.push()
    (tmp_path / "cy").mkdir()
    other = Mate(tmp_path / "cy", origin, model="other")
    with pytest.raises(NotFound, match="no index for this model"):
        other.pull()
    other.service.close()
    ada.embedder.fingerprint = "changed"
    with pytest.raises(ModelMismatch):
        ada.push()


def test_pages_that_wait_for_their_vectors_are_not_pushed(bo: Mate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikiholt.index.batch._MAX_BATCH_TEXTS", 1)
    bo.service.get_handle("notes").sync(words_only=True)
    with pytest.raises(NothingIndexed):
        bo.push()


def tamper(origin: Repository, change: str) -> None:
    """Replace the pushed files as somebody with the right to push could."""
    (ref,) = list_refs(origin)
    rows = read_rows(origin, ref).copy()
    if change == "vectors of other texts":
        rows["codes"] = np.roll(rows["codes"], 1, axis=0)
    elif change == "order":
        rows = rows[::-1].copy()
    elif change == "length":
        rows["codes"] = rows["codes"] // 2
    part = rows.tobytes()
    if change == "size":
        part = part[:-1]
    blobs = [("part-0000", origin.write_blob(part))] if change != "no parts" else []
    tree = origin.run_git("mktree", stdin="".join(f"100644 blob {blob}\t{name}\n" for name, blob in blobs).encode())
    commit = origin.run_git("commit-tree", tree.decode(), "-m", "x")
    origin.run_git("update-ref", ref, commit.decode())


@pytest.mark.parametrize("change", ["vectors of other texts", "order", "length", "size", "no parts"])
def test_what_was_tampered_with_is_refused_and_nothing_of_it_is_used(
    ada: Mate, bo: Mate, origin: Repository, change: str
) -> None:
    ada.push()
    tamper(origin, change)
    with pytest.raises((ModelMismatch, SourceError)):
        bo.pull()
    assert not bo.service.has_index(bo.wiki.id)


def test_vectors_of_no_text_of_the_wiki_are_not_trusted(ada: Mate, bo: Mate, origin: Repository) -> None:
    ada.push()
    origin.commit({**dict.fromkeys(PAGES), "other.md": "# Other\n\nOther words.\n"})
    subprocess.run(["git", "-C", str(bo.clone), "pull", "-q"], check=True)
    assert bo.pull() == (0, 1)


def test_vectors_are_in_parts_of_limited_size(ada: Mate, bo: Mate, monkeypatch: pytest.MonkeyPatch) -> None:
    row_bytes = 16 + 2 * ada.embedder.dimensions
    for part_bytes in (2 * row_bytes, 100):  # the last part is empty, or not
        monkeypatch.setattr(shared_vectors, "_PART_BYTES", part_bytes)
        ada.push()
        assert bo.pull() == (len(PAGES) if part_bytes > 100 else 0, 0)
    monkeypatch.setattr(shared_vectors, "_PART_BYTES", 10)
    with pytest.raises(SourceError, match="bytes"):
        bo.pull()
    monkeypatch.setattr(shared_vectors, "_PART_BYTES", 100)
    with pytest.raises(SourceError, match="part-0006"):
        pull_vectors(bo.wiki, bo.config, bo.embedder, "origin", 4, max_bytes=600)


def test_a_missing_remote_an_unreachable_one_and_a_refused_push_have_hints(ada: Mate, origin: Repository) -> None:
    def run(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(ada.clone), *arguments], check=True)

    hook = origin.path / ".git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no such ref for you >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SourceError) as refused:
        ada.push()
    assert "permission" in refused.value.hint
    hook.unlink()
    run("remote", "set-url", "origin", str(origin.path.parent / "nowhere"))
    with pytest.raises(SourceError) as unreachable:
        ada.push()
    assert "address" in unreachable.value.hint
    run("remote", "rename", "origin", "upstream")
    with pytest.raises(InvalidSource) as unknown:
        ada.push()
    assert "upstream" in unknown.value.hint
    run("remote", "remove", "upstream")
    with pytest.raises(InvalidSource, match="no remote"):
        ada.push()


def test_a_wiki_without_a_clone_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.md").write_text("# A\n\nText.\n")
    service = bootstrap.build_service(load_settings(tmp_path / "data", None, {}, {}))
    embedder = FakeEmbedder()
    for slug, wiki in (
        ("folder", service.add("folder", str(tmp_path / "pages"), {"kind": "directory"})),
        ("kept", service.create("kept", {})),
    ):
        with pytest.raises(InvalidSource, match="has none"):
            pull_vectors(wiki, service.get_config(service.registry.get(slug)), embedder, "origin", 4, MAX_BYTES)
    service.close()


def test_no_route_of_a_service_pushes_or_pulls() -> None:
    routes = [operation.route for operation in (*OPERATIONS_OF_WIKI, *OPERATIONS_OF_SERVICE)]
    assert not [route for route in routes if "push" in route or "pull" in route]


@pytest.mark.parametrize("refspec", ["+refs/*:refs/remotes/origin/*", "+refs/*:refs/*"], ids=["all", "mirror"])
def test_no_ref_of_a_clone_that_follows_all_refs_names_what_is_only_temporary(
    ada: Mate, bo: Mate, refspec: str
) -> None:
    for mate in (ada, bo):
        subprocess.run(["git", "-C", str(mate.clone), "config", "remote.origin.fetch", refspec], check=True)
    ada.push()
    assert bo.pull()[0] == len(PAGES)
    for mate in (ada, bo):
        names = subprocess.check_output(["git", "-C", str(mate.clone), "for-each-ref", "--format=%(refname)"]).decode()
        assert "wikiholt" not in names
        subprocess.run(["git", "-C", str(mate.clone), "fsck"], check=True, capture_output=True)


def test_a_branch_that_is_named_like_the_ref_is_not_pulled(ada: Mate, bo: Mate, origin: Repository) -> None:
    ada.push()
    (ref,) = list_refs(origin)
    origin.run_git("update-ref", f"refs/heads/{ref}", "HEAD")
    assert bo.pull() == (len(PAGES), 0)
