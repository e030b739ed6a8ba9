"""The owner of a repository can damage only the own wiki."""

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.git import Author, DiscoveredRepository, FileEdit
from wikiholt.errors import InvalidPage, SourceCorrupt, SourceError
from wikiholt.git import history, objects, process
from wikiholt.git.repository import find_repositories
from wikiholt.git.source import GitSource
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_discovery import WikiDiscovery
from wikiholt.sync.wiki_records import SchedulerConfig

ATTACKER = Author("Eve", "eve@example.org")
PROGRAM_SETTINGS = (
    *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.alternateRefsCommand"),
    *("diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.smudge", "filter.x.process"),
    *(
        "gpg.program",
        "gpg.ssh.program",
        "uploadpack.packObjectsHook",
        "credential.helper",
        "pager.log",
        "core.gitProxy",
    ),
)
HOOKS = ("post-index-change", "reference-transaction", "pre-commit", "post-commit", "update", "post-checkout")


def make_repository(path: Path, text: str = "# Home\n\ncanary\n") -> Repository:
    repository = Repository(path)
    repository.commit({"Home.md": text})
    return repository


def make_tree_bomb(path: Path, levels: int) -> Repository:
    """A repository of a few hundred bytes with 10 ** `levels` pages."""
    repository = Repository(path)
    blob = repository.write_blob(b"boom\n")
    tree = [f"100644 blob {blob}\tf{number}.md".encode() for number in range(10)]
    for _ in range(levels - 1):
        name = repository.run_git("mktree", "-z", stdin=b"".join(line + b"\0" for line in tree)).decode()
        tree = [f"040000 tree {name}\td{number}".encode() for number in range(10)]
    repository.commit_tree(tree)
    return repository


def test_a_tree_with_a_huge_number_of_files_uses_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_OUTPUT_BYTES", 1 << 20)
    monkeypatch.setattr(process, "MAX_MEMORY_BYTES", 64 << 20)
    source = GitSource(make_tree_bomb(tmp_path / "bomb", 9).path)
    with pytest.raises(SourceCorrupt, match="exceeded the output limit"):
        source.read_tree(source.get_head())
    with pytest.raises(SourceCorrupt, match="history"):
        source.read_log(10)


def test_a_commit_message_of_megabytes_is_truncated(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "wiki")
    repository.commit({"Other.md": "x"})
    tree = repository.run_git("rev-parse", "HEAD^{tree}").decode()
    long = repository.run_git("commit-tree", tree, "-p", "HEAD~1", stdin=b"m" * (8 << 20)).decode()
    repository.run_git("update-ref", "HEAD", long)
    (entry,) = GitSource(repository.path).read_log(1)
    assert len(entry.commit.message) < 2 << 20


def test_a_head_that_git_cannot_read_does_not_delay_the_checks_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.git.source._HEAD_TIMEOUT_S", 0.2)
    repository = make_repository(tmp_path / "wiki")
    (repository.path / ".git/HEAD").write_text("ref: refs/heads/.other\n")  # only git can tell that this is invalid
    (repository.path / ".git/config").unlink()
    os.mkfifo(repository.path / ".git/config")
    began = time.monotonic()
    with pytest.raises(SourceCorrupt, match="timed out"):
        GitSource(repository.path, timeout_s=60).get_head_and_probe()
    assert time.monotonic() - began < 30


def test_a_repository_that_does_not_answer_leaves_threads_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_MAX_QUEUE_S", 0.2)
    monkeypatch.setattr(process, "_POLL_S", 0.05)
    repository = make_repository(tmp_path / "wiki")
    source, head = GitSource(repository.path, timeout_s=8), repository.get_head()
    blob = source.read_tree(head)["Home.md"].blob
    config = repository.path / ".git/config"
    config.rename(tmp_path / "config")
    os.mkfifo(config)
    with ThreadPoolExecutor(20) as pool:
        readers = [
            pool.submit(read, value)
            for read, value in ((source.read_tree, head), (lambda blob: list(source.read_blobs([blob], 9)), blob))
            for _ in range(10)
        ]
        refused = list(islice(as_completed(readers), 17))
        assert all("get no answer" in str(reader.exception()) for reader in refused)
        began = time.monotonic()
        for _ in range(5):
            with pytest.raises(SourceCorrupt, match="get no answer"):
                source.read_tree(head)
        assert time.monotonic() - began < 2
        assert sum(not reader.done() for reader in readers) == 3
    assert all("timed out" in str(reader.exception()) for reader in readers if reader not in refused)
    config.unlink()
    (tmp_path / "config").rename(config)
    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(source.read_tree, [head] * 20))


@pytest.mark.parametrize("name", ["read_tree", "read_log"])
def test_a_process_that_cannot_be_killed_occupies_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As on a network disk that does not answer: such a process ends when the disk answers."""
    monkeypatch.setattr(process, "_MAX_QUEUE_S", 0.1)
    monkeypatch.setattr(process, "_KILL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(history, "_LOG_TIMEOUT_FACTOR", 1)
    stuck: list[subprocess.Popen[bytes]] = []

    def read(source: GitSource) -> object:
        return source.read_tree(head) if name == "read_tree" else source.read_log(1)

    repository = make_repository(tmp_path / "wiki")
    source, head = GitSource(repository.path, timeout_s=0.2), repository.get_head()
    config = repository.path / ".git/config"
    config.rename(tmp_path / "config")
    os.mkfifo(config)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess.Popen, "kill", lambda process: stuck.append(process))  # noqa: PLW0108 - a method
            for _ in range(3):
                with pytest.raises(SourceCorrupt, match="timed out"):
                    read(source)
            with pytest.raises(SourceCorrupt, match="get no answer"):
                read(source)
        assert len(set(stuck)) == 3
    finally:
        for each in stuck:
            each.kill()
    config.unlink()
    (tmp_path / "config").rename(config)
    wait_until(lambda: all(each.poll() is not None for each in stuck))
    assert read(source)


@pytest.mark.parametrize("position", [0, 60, 119])
def test_a_blob_of_gigabytes_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    repository = make_repository(tmp_path / "wiki")
    huge = repository.write_blob(b"0" * (8 << 20))
    blobs = [repository.write_blob(b"%d" % number) for number in range(4)] * 30
    blobs[position] = huge
    blobs[5] = "0" * 40
    monkeypatch.setattr(objects, "_MAX_SKIPPED_BYTES", 1 << 20)
    skipped: list[int] = []
    monkeypatch.setattr(objects, "_skip_bytes", lambda _, size: skipped.append(size))
    found = list(GitSource(repository.path).read_blobs(blobs, 1000))
    assert [blob.id for blob in found] == blobs
    assert found[position].size == 8 << 20
    expected = [None if n in (position, 5) else b"%d" % (n % 4) for n in range(120)]
    assert [blob.data for blob in found] == expected
    assert not skipped


def test_renames_that_take_long_to_find_do_not_occupy_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(history, "_MAX_RENAME_WALK_S", 0.0)
    repository = make_repository(tmp_path / "wiki")
    for number in range(20):
        repository.run_git("mv", "Home.md" if not number else f"P{number - 1}.md", f"P{number}.md")
        repository.run_git("commit", "-m", "move")
    source = GitSource(repository.path)
    assert len(source.get_former_files(["P19.md"], source.get_head()).get("P19.md", ())) < 5
    assert "renames in older commits are not found" in caplog.text


def test_a_pipe_instead_of_a_file_blocks_nothing(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "wiki")
    source = GitSource(repository.path, timeout_s=3600)  # longer than the test may take
    assert source.get_head() == repository.get_head()
    head = repository.path / ".git" / "HEAD"
    head.unlink()
    os.mkfifo(head)
    with pytest.raises(SourceError):
        source.get_head()


def borrow_by_links(eve: Repository, victim: Repository) -> None:
    for part in ("objects", "refs"):
        own = eve.path / ".git" / part
        own.rename(own.with_suffix(".old"))
        own.symlink_to(victim.path / ".git" / part)


def write_alternates(eve: Repository, victim: Repository, text: str) -> None:
    (eve.path / ".git/objects/info").mkdir(exist_ok=True)
    (eve.path / ".git/objects/info/alternates").write_text(text)
    (eve.path / ".git/refs/heads/main").write_text(victim.get_head() + "\n")


def borrow_by_alternates(eve: Repository, victim: Repository) -> None:
    write_alternates(eve, victim, f"{victim.path}/.git/objects\n")


def borrow_single_objects(eve: Repository, victim: Repository) -> None:
    for file in (victim.path / ".git" / "objects").glob("??/*"):
        own = eve.path / ".git" / "objects" / file.parent.name / file.name
        own.parent.mkdir(exist_ok=True)
        if not own.exists():
            own.symlink_to(file)
    (eve.path / ".git/refs/heads/main").write_text(victim.get_head() + "\n")


# `test_confinement` has every method.
BORROW_METHODS = [borrow_by_links, borrow_by_alternates]


@pytest.mark.parametrize("method", BORROW_METHODS, ids=lambda method: method.__name__)
def test_a_discovered_wiki_cannot_become_another(tmp_path: Path, method) -> None:  # type: ignore[no-untyped-def]
    root = tmp_path / "wikis"
    victim, eve = make_repository(root / "victim", "secret of the victim"), make_repository(root / "eve", "mine")
    service = build_service(load_settings(tmp_path / "data"), [root])
    try:
        service.add("eve", str(eve.path), {})
        source = GitSource(eve.path, confined_to=root / "eve")
        assert list(source.read_tree(source.get_head())) == ["Home.md"]
        method(eve, victim)
        with pytest.raises(SourceCorrupt, match="references files outside"):
            source.read_tree(victim.get_head())
        with pytest.raises(SourceCorrupt, match="references files outside"):
            service.get_handle("eve").pages.read("Home")
    finally:
        service.close()


@pytest.mark.parametrize("at_rest", [False, True])
def test_links_to_objects_are_found_after_earlier_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_rest: bool
) -> None:
    victim, eve = make_repository(tmp_path / "victim", "secret"), make_repository(tmp_path / "eve", "mine")
    own = eve.path / ".git" / "objects" / eve.get_head()[:2]
    (eve.path / "inside").write_text("x")
    (own / "link").symlink_to(eve.path / "inside")
    if at_rest:
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + 10_000_000_000)
    source = GitSource(eve.path, confined_to=eve.path)
    for _ in range(2):
        assert list(source.read_tree(source.get_head())) == ["Home.md"]
    (eve.path / "inside").unlink()
    (eve.path / "inside").symlink_to(victim.path / "Home.md")
    with pytest.raises(SourceCorrupt, match="references files outside"):
        source.read_tree(eve.get_head())
    (eve.path / "inside").unlink()
    assert list(source.read_tree(source.get_head())) == ["Home.md"]
    borrow_single_objects(eve, victim)
    with pytest.raises(SourceCorrupt, match="references files outside"):
        source.read_tree(victim.get_head())


@pytest.mark.parametrize("method", BORROW_METHODS, ids=lambda method: method.__name__)
def test_a_discovered_wiki_stays_confined_for_every_other_command(tmp_path: Path, method) -> None:  # type: ignore[no-untyped-def]
    root, settings = tmp_path / "wikis", load_settings(tmp_path / "data")
    victim, eve = make_repository(root / "victim", "secret of the victim"), make_repository(root / "eve", "mine")
    application = open_application(settings, [root])
    WikiDiscovery(application.service, SchedulerState(), SchedulerConfig(), lambda: find_repositories(root)).scan()
    assert application.service.registry.get("eve").settings == {"confined": str(root / "eve")}
    application.service.close()
    method(eve, victim)
    service = build_service(settings)  # as `wikiholt sync` does, which gets no directory
    try:
        with pytest.raises(SourceCorrupt, match="references files outside"):
            service.get_handle("eve").pages.read("Home")
        with pytest.raises(SourceCorrupt, match="references files outside"):
            service.get_source(service.registry.get("eve")).get_head()
        service.configure("eve", {"confined": ""})
        assert service.get_source(service.registry.get("eve")).get_head() == victim.get_head(), (
            "the owner of the registry may allow it"
        )
    finally:
        service.close()


@pytest.mark.parametrize("method", BORROW_METHODS, ids=lambda method: method.__name__)
def test_borrowed_objects_are_detected_by_discovery(tmp_path: Path, method) -> None:  # type: ignore[no-untyped-def]
    victim, eve = make_repository(tmp_path / "victim"), make_repository(tmp_path / "eve")
    method(eve, victim)
    assert {found.slug: found.reason for found in find_repositories(tmp_path)} == {
        "victim": "",
        "eve": "it references files outside its own directory",
    }


def write_git_file(eve: Repository, text: str) -> None:
    (eve.path / ".git").rename(eve.path / "old")
    (eve.path / ".git").write_text(text)


def point_after_many_spaces(eve: Repository) -> None:
    write_git_file(eve, f"gitdir: x{' ' * 5000}/../../victim/.git\n")


def point_through_a_link(eve: Repository) -> None:
    (eve.path / "a" / "b").mkdir(parents=True)
    (eve.path / "link").symlink_to("a/b")
    write_git_file(eve, "gitdir: link/../../victim/.git\n")


def share_after_many_spaces(eve: Repository) -> None:
    name = f"x{' ' * 254}"
    (eve.path / ".git" / name).mkdir()
    (eve.path / ".git" / "commondir").write_text(f"{'./' * 1920}/{name}/../../../victim/.git\n")


def share_through_a_name_like_a_prefix(eve: Repository) -> None:
    (eve.path / ".git" / "gitdir: x").symlink_to("../../victim/.git")
    (eve.path / ".git" / "commondir").write_text("gitdir: x\n")


def share_before_a_zero(eve: Repository) -> None:
    (eve.path / ".git" / "commondir").write_text("../../victim/.git\0x\n")


@pytest.mark.parametrize(
    "method",
    [
        point_after_many_spaces,
        point_through_a_link,
        share_after_many_spaces,
        share_through_a_name_like_a_prefix,
        share_before_a_zero,
    ],
    ids=lambda method: method.__name__,
)
def test_a_path_in_a_repository_means_what_was_checked(tmp_path: Path, method) -> None:  # type: ignore[no-untyped-def]
    root = tmp_path / "wikis"
    make_repository(root / "victim", "secret of the victim")
    eve = make_repository(root / "eve", "mine")
    method(eve)
    assert "" in [found.reason for found in find_repositories(root) if found.slug == "victim"]
    source = GitSource(eve.path, confined_to=eve.path)
    with pytest.raises(SourceCorrupt):
        source.read_tree(source.get_head())


def test_a_repository_whose_name_is_not_text_does_not_prevent_others(tmp_path: Path) -> None:
    root = tmp_path / "wikis"
    make_repository(root / "good")
    make_repository(root / "eve").path.rename(os.fsdecode(os.fsencode(root) + b"/eve\xff"))
    application = open_application(load_settings(tmp_path / "data"), [root])
    try:
        found = WikiDiscovery(application.service, SchedulerState(), SchedulerConfig(), lambda: find_repositories(root))
        found.scan()
        assert [wiki.slug for wiki in application.service.list_wikis()] == ["good"]
        assert ["not UTF-8" in skipped.reason for skipped in found.skipped] == [True]
    finally:
        application.service.close()


def test_discovery_survives_any_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Iterator[DiscoveredRepository]:
        raise ValueError("embedded null byte")

    application = open_application(load_settings(tmp_path / "data"))
    try:
        WikiDiscovery(application.service, SchedulerState(), SchedulerConfig(), fail).scan()
    finally:
        application.service.close()
    assert "embedded null byte" in caplog.text


def test_no_program_configured_in_a_repository_is_run(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "wiki")
    repository.commit({".gitattributes": "*.md filter=x diff=x\n", "Home.md": "changed\n"})
    trace, program = tmp_path / "trace", tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {trace}\ncat\n')
    program.chmod(0o755)
    for name in PROGRAM_SETTINGS:
        repository.run_git("config", name, str(program))
    for name, value in (("commit.gpgSign", "true"), ("log.showSignature", "true"), ("color.ui", "always")):
        repository.run_git("config", name, value)
    (tmp_path / "hooks").mkdir()
    repository.run_git("config", "core.hooksPath", str(tmp_path / "hooks"))
    for hook in HOOKS:
        for folder in (tmp_path / "hooks", repository.path / ".git" / "hooks"):
            folder.mkdir(exist_ok=True)
            (folder / hook).write_bytes(program.read_bytes())
            (folder / hook).chmod(0o755)
    trace.unlink(missing_ok=True)
    source = GitSource(repository.path)
    head = source.get_head()
    assert source.read_tree(head)
    assert source.read_log(10)
    assert source.read_history("Home.md")
    source.commit([FileEdit("New.md", b"new\n", None)], ATTACKER, "Write")
    assert source.fetch() is False
    assert source.get_changes(head, source.get_head())
    assert not trace.exists(), trace.read_text()


def test_no_page_is_written_with_a_bidi_control_in_its_name(tmp_path: Path) -> None:
    source = GitSource(make_repository(tmp_path / "wiki").path)
    for mark in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        with pytest.raises(InvalidPage, match="direction"):
            source.commit([FileEdit(f"a{mark}dm.md", b"x", None)], ATTACKER, "Write")


@pytest.mark.parametrize("name", ["-rf", "--help", "--output=x", "-"])
def test_a_name_that_looks_like_an_option_is_used_as_a_name(tmp_path: Path, name: str) -> None:
    repository = make_repository(tmp_path / "wiki")
    source = GitSource(repository.path)
    source.commit([FileEdit(f"{name}.md", b"text\n", None)], ATTACKER, "--amend")
    assert source.find_file(f"{name}.md", source.get_head()) is not None
    assert source.read_history(f"{name}.md")[0].message == "--amend"
    assert source.get_change_dates([f"{name}.md"], source.get_head(), None)
    assert (repository.path / f"{name}.md").read_bytes() == b"text\n"
