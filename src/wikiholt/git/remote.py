"""A remote repository as a page source: a local mirror of its default branch, refreshed when it is behind.

Git runs over the network with one protocol, validated addresses, no prompt, no redirect, and limits on time and size.
Credentials are passed in the environment, which other users cannot read, never in arguments or files.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import IO, Concatenate, ParamSpec, TypeVar

from wikiholt.domain.git import Author, Blob, FileEdit, FileHistories
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import Busy, NoCommits, NotWritable, SourceCorrupt, SourceError, SourceMissing
from wikiholt.git.mirror import (
    MIRROR_BRANCH,
    MIRROR_DIRECTORY,
    NO_OTHER_NODES,
    MirrorRefresher,
    SharedHead,
    combine_packs,
    is_usable,
    lock_copy,
    mark_suspect,
    read_mirror_tip,
    remove_stale_files,
)
from wikiholt.git.process import build_environment, limit_memory
from wikiholt.git.remote_url import RemoteUrl, parse_remote_url, redact_url, resolve_host
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.source import GitSource
from wikiholt.text.page_names import PAGE_EXTENSIONS

# Git over the network.

_MAX_OUTPUT_BYTES = 1 << 20
_MAX_ERROR_BYTES = 1 << 13
_POLL_INTERVAL_S = 0.05
_NETWORK_CONFIG = (
    "core.askPass=",
    "core.fsyncMethod=fsync",
    f"core.hooksPath={os.devnull}",
    "credential.helper=",
    "fetch.fsckObjects=false",
    # Always keep a pack: its size can be watched during the transfer.
    "fetch.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "http.followRedirects=false",
    # If the watching process is killed, a stalled git still ends.
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=60",
    "http.proxy=",
    "http.sslVerify=true",
    "maintenance.auto=false",
    "protocol.version=2",
    "submodule.recurse=false",
)
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits for a remote: allowed protocols and hosts, time and bytes."""

    schemes: tuple[str, ...] = ("https", "ssh")
    allow_private: bool = False
    timeout_s: float = 300.0
    max_bytes: int = 2 * 1024**3


class RemoteGit:
    """Runs git commands against one remote, pinned to the addresses its host resolved to. Not thread-safe."""

    def __init__(self, remote_url: RemoteUrl, limits: FetchLimits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.timeout_s
        self._config = list(_NETWORK_CONFIG)
        self._environment = _build_network_environment(remote_url.scheme)
        self.url = remote_url.format_url()
        if remote_url.scheme == "file":
            return
        addresses = resolve_host(remote_url, allow_private=limits.allow_private)
        if remote_url.scheme in ("http", "https"):
            pinned = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
            self._config.append(f"http.curloptResolve={remote_url.host.strip('[]')}:{remote_url.port}:{pinned}")
            if remote_url.user or remote_url.password:
                secret = base64.b64encode(f"{remote_url.user}:{remote_url.password}".encode("latin-1")).decode()
                self._environment |= {
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "http.extraHeader",
                    "GIT_CONFIG_VALUE_0": f"Authorization: Basic {secret}",
                }
        elif remote_url.scheme == "git":
            self.url = remote_url.format_url(f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0])
        else:
            pin = None if limits.allow_private else addresses[0]
            self._environment["GIT_SSH_COMMAND"] = _build_ssh_command(remote_url.host.strip("[]"), pin)

    def run(
        self, *arguments: str, directory: Path, stop: Callable[[], bool], growing_directory: Path | None = None
    ) -> bytes:
        """Run one command and return its output. Raises SourceCorrupt on failure or at a limit, Busy when stopped."""
        command = ["git", "--no-pager"]
        for setting in self._config:
            command += ["-c", setting]
        try:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceCorrupt(
                f"Git could not be started: {error.strerror}.", hint="Check that git is installed and on the PATH."
            ) from error
        limit_memory(process.pid)
        stdout, stderr = _PipeReader(process.stdout, _MAX_OUTPUT_BYTES), _PipeReader(process.stderr, _MAX_ERROR_BYTES)
        try:
            self._wait_within_limits(process, stdout, stop, growing_directory)
        finally:
            _kill_process_group(process)
            output = stdout.read_all(), stderr.read_all()
        if process.returncode != 0:
            raise _make_error(output[1])
        return output[0]

    def _wait_within_limits(
        self,
        process: "subprocess.Popen[bytes]",
        reader: "_PipeReader",
        stop: Callable[[], bool],
        growing_directory: Path | None,
    ) -> None:
        while True:
            try:
                process.wait(_POLL_INTERVAL_S)
                return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > self._deadline:
                raise SourceCorrupt(
                    f"The fetch did not finish within {self._limits.timeout_s:g} seconds.",
                    hint="The remote may be slow or large; raise remote.timeout.",
                )
            if reader.is_truncated or (
                growing_directory is not None and _get_directory_bytes(growing_directory) > self._limits.max_bytes
            ):
                raise SourceCorrupt(
                    f"The remote repository is larger than the limit of {self._limits.max_bytes} bytes.",
                    hint="Raise remote.max_bytes.",
                )
            if stop():
                raise Busy("The fetch was stopped.", hint="The wiki is being removed, or the service is shutting down.")


class _PipeReader:
    """Reads a pipe to its end in a thread and keeps only the first `max_bytes`."""

    def __init__(self, pipe: IO[bytes] | None, max_bytes: int) -> None:
        self._pipe = pipe
        self._max_bytes = max_bytes
        self._kept = b""
        self.is_truncated = False
        self._thread = threading.Thread(target=self._read_pipe, name="git-output", daemon=True)
        self._thread.start()

    def read_all(self) -> bytes:
        self._thread.join()
        if self._pipe is not None:
            self._pipe.close()
        return self._kept

    def _read_pipe(self) -> None:
        while self._pipe is not None and (block := self._pipe.read1(1 << 16)):  # type: ignore[attr-defined]
            room = self._max_bytes - len(self._kept)
            self.is_truncated = self.is_truncated or len(block) > room
            self._kept += block[:room]


def _kill_process_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill git and its helper processes, which hold the connection and the pipes open."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _build_network_environment(scheme: str) -> dict[str, str]:
    inherited = {name: value for name, value in build_environment().items() if name.lower() not in _PROXY_VARIABLES}
    # An empty program name disables password prompts. A home directory that does not exist has no .netrc.
    return inherited | {"GIT_ALLOW_PROTOCOL": scheme, "GIT_ASKPASS": "", "SSH_ASKPASS": "", "HOME": os.devnull}


def _build_ssh_command(host: str, pin: str | None) -> str:
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=30", "ForwardAgent=no", "ForwardX11=no"]
    options += ["ClearAllForwardings=yes", "PermitLocalCommand=no", "ControlMaster=no", "ControlPath=none"]
    if pin is not None:
        options += [f"HostName={pin}", f"HostKeyAlias={host}", "CheckHostIP=no", "ProxyCommand=none", "ProxyJump=none"]
    return "ssh " + " ".join(f"-o {option}" for option in options)


def _get_directory_bytes(directory: Path) -> int:
    total = 0
    with suppress(OSError), os.scandir(directory) as entries:  # files appear and disappear while git works
        for entry in entries:
            total += entry.stat().st_size
    return total


def _make_error(stderr: bytes) -> SourceError:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    local_lines = [line for line in lines if not line.startswith("remote: ")] or lines or ["git gave no reason"]
    chosen: Sequence[str] = [line for line in local_lines if line.startswith("fatal: ")] or local_lines
    message = "".join(char if char.isprintable() else " " for char in chosen[0].removeprefix("fatal: "))[:300]
    hint = "Check the URL, and that the user who runs wikiholt may read it."
    if "Host key verification failed" in stderr.decode("utf-8", "replace"):
        hint = "Verify the host's key, then add it to known_hosts of the user who runs wikiholt."
    return SourceCorrupt(f"The remote repository could not be read: {message}", hint=hint)


# The page source.

_REMOTE_HEAD_PATTERN = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\tHEAD")


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _mark_damage(
    read: "Callable[Concatenate[RemoteSource, _P], _T]",
) -> "Callable[Concatenate[RemoteSource, _P], _T]":
    """Let the next fetch check the mirror if it cannot be read."""

    @wraps(read)
    def run(source: "RemoteSource", /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return read(source, *arguments, **options)
        except SourceCorrupt:
            mark_suspect(source._path)
            raise

    return run


class RemoteSource(GitSource):
    """A wiki's remote repository. Reads use the mirror; only `fetch` and `check_readable` use the network.

    With `shared_head`, reads also fetch if the mirror does not exist yet or another node's mirror is ahead.
    """

    def __init__(
        self,
        url: str,
        directory: Path | None,
        limits: FetchLimits,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        shared_head: SharedHead = NO_OTHER_NODES,
    ) -> None:
        """`directory` contains the mirror. It is None while the wiki is only validated."""
        self._remote_url = parse_remote_url(url, limits.schemes)
        self._display_url = redact_url(url)
        self._limits = limits
        self._directory = (directory or Path("/nonexistent")).absolute()
        self._shared_head = shared_head
        self._refresher = MirrorRefresher(self.fetch)
        super().__init__(
            self._directory / MIRROR_DIRECTORY, subdirectory=subdirectory, ignore=ignore, extensions=extensions
        )

    def get_head(self) -> str:
        """The mirror's HEAD; fetches first if another node has a different one."""
        shared = self._shared_head.read()
        if shared is not None and self._path.exists():
            with suppress(NoCommits):
                if super().get_head() == shared:
                    return shared
            self._refresher.refresh(shared)
        return super().get_head()

    def get_head_and_probe(self) -> tuple[str, None]:
        return self.get_head(), None  # another node may have a newer one

    def get_last_known_head(self) -> str:
        """The HEAD that any node fetched last."""
        if (shared := self._shared_head.read()) is not None:
            return shared
        self._require_mirror()
        return super().get_head()

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Update the mirror, creating it if needed; return whether anything changed."""
        with lock_copy(self._directory, "mirror.lock", self._limits.timeout_s):
            has_changed = self._update_mirror(stop)
            self._shared_head.publish(super().get_head)
            return has_changed

    read_tree = _mark_damage(GitSource.read_tree)
    read_all_files = _mark_damage(GitSource.read_all_files)
    get_changes = _mark_damage(GitSource.get_changes)
    get_change_dates = _mark_damage(GitSource.get_change_dates)
    get_former_files = _mark_damage(GitSource.get_former_files)

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        for blob in super().read_blobs(blobs, limit):
            if blob.size < 0:
                mark_suspect(self._path)
            yield blob

    @_mark_damage
    def read_file_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        histories = super().read_file_histories(files, revision, since)
        if histories.fault and not self._is_shallow():
            mark_suspect(self._path)
        return histories

    def check_readable(self) -> None:
        """Read the mirror or, before the first fetch, the remote's HEAD; the remote may have no commits."""
        if self._path.exists():
            super().check_readable()
            return
        self._read_remote_head(RemoteGit(self._remote_url, self._limits), never_stop)

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:  # noqa: ARG002
        """Always raises NotWritable: a mirror is read-only."""
        raise NotWritable(
            "This wiki is a mirror of a remote repository and is read-only.",
            hint="Commit and push to the remote; the pages are fetched from it.",
        )

    def _update_mirror(self, stop: Callable[[], bool]) -> bool:
        """Bring the mirror up to date, with its lock held; return whether anything changed."""
        remote = RemoteGit(self._remote_url, self._limits)
        remote_head = self._read_remote_head(remote, stop)
        mirror = self._directory / MIRROR_DIRECTORY
        usable = is_usable(mirror, self._limits.timeout_s)
        local_head = read_mirror_tip(mirror, self._limits.timeout_s) if usable else None
        if remote_head is None and local_head is not None:
            raise SourceCorrupt(
                f"The repository at {self._display_url} no longer has a default branch.",
                hint="The pages fetched before are kept. Check where HEAD points in the remote.",
            )
        if usable and local_head == remote_head:
            return False
        target = mirror
        # A mirror without a tip is empty or damaged; and the remote may have changed its hash algorithm.
        if not usable or local_head is None or len(remote_head or local_head) != len(local_head):
            target = self._create_mirror(remote, remote_head, stop)
        if remote_head is not None:
            remove_stale_files(target)
            try:
                self._fetch_into(remote, target, stop)
            except BaseException:
                if target == mirror:
                    remove_stale_files(mirror)
                    mark_suspect(mirror)
                else:
                    shutil.rmtree(target, ignore_errors=True)
                raise
        if target != mirror:
            shutil.rmtree(mirror, ignore_errors=True)
            target.rename(mirror)
        return remote_head is not None

    def _create_mirror(self, remote: RemoteGit, remote_head: str | None, stop: Callable[[], bool]) -> Path:
        """Create an empty mirror in a temporary directory, with the remote's hash algorithm."""
        temporary = self._directory / "mirror.new"
        shutil.rmtree(temporary, ignore_errors=True)
        kind = "sha256" if remote_head and len(remote_head) == 64 else "sha1"
        options = ("--quiet", "--bare", "--template=", f"--object-format={kind}", "--initial-branch=mirror")
        remote.run("init", *options, str(temporary), directory=self._directory, stop=stop)
        return temporary

    def _fetch_into(self, remote: RemoteGit, mirror: Path, stop: Callable[[], bool]) -> None:
        remote.run(
            f"--git-dir={mirror}",
            "fetch",
            *("--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--no-auto-maintenance", "--refmap=", "--update-head-ok", "--end-of-options"),
            remote.url,
            f"+HEAD:{MIRROR_BRANCH}",
            directory=mirror,
            stop=stop,
            growing_directory=mirror / "objects" / "pack",
        )
        combine_packs(mirror, self._limits.timeout_s)

    def _read_remote_head(self, remote: RemoteGit, stop: Callable[[], bool]) -> str | None:
        output = remote.run(
            "ls-remote", "--quiet", "--end-of-options", remote.url, "HEAD", directory=Path("/"), stop=stop
        )
        match = _REMOTE_HEAD_PATTERN.search(output)
        return match[1].decode() if match else None

    def _find_location(self) -> RepositoryLocation:
        if not self._path.exists() and self._shared_head.store is not None:
            failure = self._refresher.refresh(self._shared_head.read())
            if failure is not None:
                raise failure
        self._require_mirror()
        return super()._find_location()

    def _require_mirror(self) -> None:
        """Raise SourceMissing if the remote was never fetched."""
        if not self._path.exists():
            raise SourceMissing(
                f"Nothing has been fetched from {self._display_url} yet.",
                hint="The first sync fetches it: `wikiholt sync`. If a fetch is running, try again in a moment.",
            )
