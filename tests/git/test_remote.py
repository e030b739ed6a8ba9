"""Fetching from real servers on this machine's own address."""

import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import (
    LocalServer,
    encode_packet,
    make_advertising_handler,
    make_git_handler,
    make_redirect_handler,
    run_git_daemon,
    run_http_server,
)
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import Busy, InvalidSource, NoCommits, NotWritable, SourceCorrupt, SourceMissing
from wikiholt.git.remote import FetchLimits, RemoteSource

LOCAL_LIMITS = FetchLimits(schemes=("http", "https", "ssh", "git"), allow_private=True, timeout_s=TIMEOUT_S)


def wait_for_release(release: threading.Event) -> None:
    release.wait(TIMEOUT_S)


@pytest.fixture
def remote(server: LocalServer, tmp_path: Path) -> RemoteSource:
    return RemoteSource(server.get_url("wiki/.git"), tmp_path / "place", LOCAL_LIMITS)


def test_the_first_fetch_makes_a_mirror_and_later_ones_update_it(
    repository: Repository, remote: RemoteSource, tmp_path: Path
) -> None:
    first = repository.commit({"a.md": "one"})
    assert remote.fetch() is True
    assert remote.get_head() == first
    assert set(remote.read_tree(first)) == {"a.md"}
    assert remote.fetch() is False
    second = repository.commit({"b/c.md": "two"})
    assert remote.get_head() == first
    assert remote.fetch() is True
    assert remote.get_head() == second
    assert [commit.revision for commit in remote.read_history("b/c.md")] == [second]
    assert sorted(file.name for file in (tmp_path / "place").iterdir()) == ["mirror.git", "mirror.lock"]


def test_a_relative_mirror_directory_is_accepted(
    repository: Repository, server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = repository.commit({"a.md": "one"})
    monkeypatch.chdir(tmp_path)
    remote = RemoteSource(server.get_url("wiki/.git"), Path("data/place"), LOCAL_LIMITS)
    remote.fetch()
    assert remote.get_head() == head


def test_a_rewritten_history_and_another_default_branch_are_followed(
    repository: Repository, remote: RemoteSource
) -> None:
    repository.commit({"a.md": "one"})
    remote.fetch()
    repository.run_git("checkout", "--quiet", "--orphan", "other")
    other = repository.commit({"z.md": "new beginning"})
    assert remote.fetch() is True
    assert remote.get_head() == other
    repository.run_git("checkout", "--quiet", "--detach", "main")
    assert remote.fetch() is True
    assert remote.get_head() == repository.get_head()


def test_only_what_head_reaches_is_fetched_and_the_remote_names_no_refs(
    repository: Repository, remote: RemoteSource, tmp_path: Path
) -> None:
    repository.commit({"a.md": "one"})
    repository.run_git("branch", "g999999-x.sqlite")
    repository.run_git("tag", "v1")
    repository.run_git("checkout", "--quiet", "-b", "x-g000009-y")
    secret = repository.commit({"secret.md": "s"})
    repository.run_git("checkout", "--quiet", "main")
    remote.fetch()
    mirror = tmp_path / "place" / "mirror.git"
    listed = subprocess.check_output(["git", f"--git-dir={mirror}", "for-each-ref", "--format=%(refname)"], text=True)
    assert listed.split() == ["refs/heads/mirror"]
    assert not any("g0000" in file.name or "g9999" in file.name for file in mirror.rglob("*"))
    assert subprocess.run(["git", f"--git-dir={mirror}", "cat-file", "-e", secret], check=False).returncode != 0


def test_an_empty_repository_is_mirrored_and_says_that_it_has_no_commits(
    repository: Repository, remote: RemoteSource
) -> None:
    remote.check_readable()
    assert remote.fetch() is False
    with pytest.raises(NoCommits):
        remote.get_head()
    assert remote.read_log(5) == []
    revision = repository.commit({"a.md": "a"})
    assert remote.fetch() is True
    assert remote.get_head() == revision


def test_a_remote_that_lost_its_branch_keeps_the_fetched_commits(repository: Repository, remote: RemoteSource) -> None:
    head = repository.commit({"a.md": "a"})
    remote.fetch()
    repository.run_git("symbolic-ref", "HEAD", "refs/heads/nowhere")
    with pytest.raises(SourceCorrupt, match="no longer has a default branch"):
        remote.fetch()
    assert remote.get_head() == head


def test_sha256_repositories_are_mirrored(make_repository: Callable[..., Repository], tmp_path: Path) -> None:
    repository = make_repository("long", "--object-format=sha256")
    head = repository.commit({"a.md": "a"})
    with run_http_server(make_git_handler(tmp_path)) as server:
        remote = RemoteSource(server.get_url("long/.git"), tmp_path / "place", LOCAL_LIMITS)
        remote.fetch()
        assert remote.get_head() == head
        shutil.rmtree(repository.path)
        again = make_repository("long").commit({"b.md": "b"})
        assert remote.fetch() is True
        assert remote.get_head() == again


def test_before_the_first_fetch_the_error_says_that_nothing_was_fetched(remote: RemoteSource, tmp_path: Path) -> None:
    for ask in (remote.get_head, lambda: remote.read_tree("1" * 40), lambda: remote.read_history("a.md")):
        with pytest.raises(SourceMissing, match="Nothing has been fetched") as caught:
            ask()
        assert str(tmp_path) not in f"{caught.value}{caught.value.hint}"


def test_a_mirror_is_not_written(repository: Repository, remote: RemoteSource) -> None:
    repository.commit({"a.md": "a"})
    remote.fetch()
    with pytest.raises(NotWritable, match="read-only"):
        remote.commit([FileEdit("b.md", b"b", None)], Author("A", "a"), "Write")


def test_a_missing_repository_is_an_error_and_leaves_no_mirror(server: LocalServer, tmp_path: Path) -> None:
    remote = RemoteSource(server.get_url("absent"), tmp_path / "place", LOCAL_LIMITS)
    for act in (remote.check_readable, remote.fetch):
        with pytest.raises(SourceCorrupt, match="could not be read"):
            act()
    assert not (tmp_path / "place" / "mirror.git").exists()


def test_hooks_templates_and_settings_of_the_user_are_ignored(
    repository: Repository, remote: RemoteSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text('[url "http://127.0.0.1:1/"]\n\tinsteadOf = http://127.0.0.1\n')
    (home / ".netrc").write_text("machine 127.0.0.1 login eve password stolen\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home))
    for name in ("http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("GIT_ASKPASS", "/bin/false")
    head = repository.commit({"a.md": "a"})
    remote.fetch()
    assert remote.get_head() == head
    assert not (tmp_path / "place" / "mirror.git" / "hooks").exists()


def test_credentials_are_sent_and_shown_nowhere(
    repository: Repository, server: LocalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository.commit({"a.md": "a"})
    caplog.set_level(logging.DEBUG)
    url = server.get_url("wiki/.git").replace("://", "://bob:s3cr%40t@")
    remote = RemoteSource(url, tmp_path / "place", LOCAL_LIMITS)
    remote.fetch()
    assert set(server.authorization) == {"Basic Ym9iOnMzY3JAdA=="}
    broken = RemoteSource(url.replace("wiki", "absent"), tmp_path / "other", LOCAL_LIMITS)
    with pytest.raises(SourceCorrupt) as caught:
        broken.fetch()
    seen = f"{caught.value} {caught.value.hint} {caplog.text}"
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "wiki" not in file.parts)
    for secret in ("s3cr", "Ym9iOnMzY3JAdA"):
        assert secret not in seen
        assert secret.encode() not in files


def test_a_password_prompt_fails_at_once(tmp_path: Path) -> None:
    def challenge(request: object) -> None:
        request.send_response(401)  # type: ignore[attr-defined]
        request.send_header("WWW-Authenticate", 'Basic realm="x"')  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]

    with run_http_server(challenge) as server:
        began = time.monotonic()
        with pytest.raises(SourceCorrupt, match="could not be read"):
            RemoteSource(server.get_url(), tmp_path, LOCAL_LIMITS).fetch()
        assert time.monotonic() - began < TIMEOUT_S / 2


def test_a_redirect_is_not_followed(repository: Repository, server: LocalServer, tmp_path: Path) -> None:
    repository.commit({"a.md": "a"})
    with run_http_server(make_redirect_handler(f"http://127.0.0.1:{server.port}")) as pointing:
        with pytest.raises(SourceCorrupt):
            RemoteSource(pointing.get_url("wiki/.git"), tmp_path / "place", LOCAL_LIMITS).fetch()
        assert pointing.requested_paths
    assert server.requested_paths == []


def test_a_remote_that_never_answers_times_out(tmp_path: Path) -> None:
    release = threading.Event()
    with run_http_server(make_advertising_handler(lambda _: wait_for_release(release))) as server:
        with pytest.raises(SourceCorrupt, match="within 1 seconds"):
            RemoteSource(
                server.get_url(), tmp_path / "p", FetchLimits(("http",), allow_private=True, timeout_s=1)
            ).fetch()
        release.set()
    assert not (tmp_path / "p" / "mirror.git").exists()


@pytest.mark.slow
def test_an_endless_ref_list_is_aborted(tmp_path: Path) -> None:
    def endless(send: Callable[[bytes], object]) -> None:
        number = 0
        while True:
            number += 1
            send(encode_packet(f"{number:040x} HEAD{'' if number > 1 else chr(0) + 'side-band-64k'}\n".encode()))

    with run_http_server(make_advertising_handler(endless)) as server, pytest.raises(SourceCorrupt):
        RemoteSource(
            server.get_url(), tmp_path, FetchLimits(("http",), allow_private=True, timeout_s=3)
        ).check_readable()


@pytest.mark.slow
def test_a_remote_that_sends_too_much_is_aborted_and_the_mirror_stays(repository: Repository, tmp_path: Path) -> None:
    release = threading.Event()

    def wait_in_large_reply(content: bytes) -> None:
        """Send the rest of a large reply later, so that a fast transfer does not end before its size is checked."""
        if len(content) > 2_000_000:
            wait_for_release(release)

    head = repository.commit({"a.md": "a"})
    small = FetchLimits(("http",), allow_private=True, timeout_s=TIMEOUT_S, max_bytes=1_000_000)
    with run_http_server(make_git_handler(repository.path.parent, wait_in_large_reply)) as server:
        remote = RemoteSource(server.get_url("wiki/.git"), tmp_path / "place", small)
        remote.fetch()
        repository.commit({"big.md": os.urandom(5_000_000)})
        with pytest.raises(SourceCorrupt, match="1000000 bytes"):
            remote.fetch()
        assert sum(file.stat().st_size for file in (tmp_path / "place").rglob("*") if file.is_file()) < 1_000_000
        another = RemoteSource(server.get_url("wiki/.git"), tmp_path / "another", small)
        with pytest.raises(SourceCorrupt, match="1000000 bytes"):
            another.fetch()
        release.set()
        assert [file.name for file in (tmp_path / "another").iterdir()] == ["mirror.lock"]
        assert remote.get_head() == head
        repository.run_git("reset", "--hard", "--quiet", head)
        after = repository.commit({"a.md": "b"})
        remote.fetch()
        assert remote.get_head() == after
    left = sum(file.stat().st_size for file in (tmp_path / "place").rglob("*") if file.is_file())
    assert left < 1_000_000


def test_a_fetch_ends_when_its_wiki_is_being_removed(tmp_path: Path) -> None:
    release = threading.Event()
    with run_http_server(make_advertising_handler(lambda _: wait_for_release(release))) as server:
        with pytest.raises(Busy, match="stopped"):
            RemoteSource(server.get_url(), tmp_path / "place", LOCAL_LIMITS).fetch(lambda: bool(server.requested_paths))
        release.set()


def test_a_fetch_that_was_killed_is_done_again(repository: Repository, remote: RemoteSource, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "mirror.new" / "objects").mkdir(parents=True)
    repository.commit({"a.md": "a"})
    remote.fetch()
    mirror = place / "mirror.git"
    for name in ("HEAD.lock", "refs/heads/mirror.lock", "objects/pack/tmp_pack_x", "shallow.lock"):
        (mirror / name).write_text("left over")
    head = repository.commit({"a.md": "b"})
    remote.fetch()
    assert remote.get_head() == head
    assert not list(mirror.rglob("*.lock"))
    assert not list(mirror.rglob("tmp_*"))


def test_two_concurrent_fetches_transfer_once(repository: Repository, remote: RemoteSource) -> None:
    repository.commit({"a.md": "a"})
    came: list[bool] = []
    threads = [threading.Thread(target=lambda: came.append(remote.fetch())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [False, False, False, True]


def test_what_a_remote_says_reaches_no_terminal(tmp_path: Path) -> None:
    def rude(send: Callable[[bytes], object]) -> None:
        send(encode_packet(b"ERR \x1b[2J\x07 gone\r\nfatal: forged"))

    with run_http_server(make_advertising_handler(rude)) as server, pytest.raises(SourceCorrupt) as caught:
        RemoteSource(server.get_url(), tmp_path, LOCAL_LIMITS).check_readable()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500


def test_the_git_protocol_works_where_it_is_allowed(repository: Repository, tmp_path: Path) -> None:
    head = repository.commit({"a.md": "a"})
    with run_git_daemon(tmp_path) as port:
        remote = RemoteSource(f"git://localhost:{port}/wiki/.git", tmp_path / "place", LOCAL_LIMITS)
        remote.fetch()
        assert remote.get_head() == head
        with pytest.raises(InvalidSource, match="not allowed"):
            RemoteSource(f"git://localhost:{port}/wiki/.git", tmp_path / "place", FetchLimits())


def test_ssh_gets_no_prompt_and_the_address_that_was_checked(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake ssh records its arguments and runs the requested command, like the server."""
    head = repository.commit({"a.md": "a"})
    bin_, trace = tmp_path / "bin", tmp_path / "trace"
    bin_.mkdir()
    (bin_ / "ssh").write_text(
        f'#!/bin/sh\necho "$@" >> {trace}\nfor last; do :; done\ncd {tmp_path}\nexec sh -c "$last"\n'
    )
    (bin_ / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.215.14", 22))])
    remote = RemoteSource("git@git.example:wiki/.git", tmp_path / "place", FetchLimits())
    remote.fetch()
    assert remote.get_head() == head
    called = trace.read_text().splitlines()
    wanted = ["BatchMode=yes", "StrictHostKeyChecking=yes", "HostName=93.184.215.14", "HostKeyAlias=git.example"]
    for option in [*wanted, "ProxyCommand=none", "ForwardAgent=no"]:
        assert all(f"-o {option}" in line for line in called)
    assert all("git@git.example git-upload-pack 'wiki/.git'" in line for line in called)
