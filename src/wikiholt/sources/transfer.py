"""The git binary on the network: one protocol, one checked address, no prompt, no redirect, and an end to everything.

Secrets travel in the environment, where no other user of the machine sees them, never in arguments or files.
"""

import base64
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wikiholt.errors import Busy, SourceBroken, SourceError
from wikiholt.sources.address import Address
from wikiholt.sources.command import clean_environment
from wikiholt.sources.exchange import keep_small
from wikiholt.sources.network import addresses_of

_MOST_OUTPUT = 1 << 20
_MOST_COMPLAINT = 1 << 13
_POLL = 0.05
_SETTINGS = (
    "core.askPass=",
    "core.fsyncMethod=fsync",
    f"core.hooksPath={os.devnull}",
    "credential.helper=",
    "fetch.fsckObjects=false",
    # Always a pack: its size can be watched while it comes.
    "fetch.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "http.followRedirects=false",
    # Should the watching process be killed, a stalled git ends by itself.
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=60",
    "http.proxy=",
    "http.sslVerify=true",
    "maintenance.auto=false",
    "protocol.version=2",
    "submodule.recurse=false",
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Costs:
    """What a remote may cost: which protocols and machines are allowed, how long it may take, how much may come."""

    schemes: tuple[str, ...] = ("https", "ssh")
    allow_private: bool = False
    timeout: float = 300.0
    max_bytes: int = 2 * 1024**3


class Line:
    """A line to one remote, pinned to the addresses its host had when this was made. For one use after another."""

    def __init__(self, address: Address, costs: Costs) -> None:
        self._costs = costs
        self._deadline = time.monotonic() + costs.timeout
        self._settings = list(_SETTINGS)
        self._environment = _environment(address.scheme)
        self.url = address.url()
        if address.scheme == "file":
            return
        numbers = addresses_of(address, allow_private=costs.allow_private)
        if address.scheme in ("http", "https"):
            listed = ",".join(f"[{number}]" if ":" in number else number for number in numbers)
            self._settings.append(f"http.curloptResolve={address.host.strip('[]')}:{address.port}:{listed}")
            if address.user or address.password:
                secret = base64.b64encode(f"{address.user}:{address.password}".encode("latin-1")).decode()
                self._environment |= {
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "http.extraHeader",
                    "GIT_CONFIG_VALUE_0": f"Authorization: Basic {secret}",
                }
        elif address.scheme == "git":
            self.url = address.url(f"[{numbers[0]}]" if ":" in numbers[0] else numbers[0])
        else:
            pin = None if costs.allow_private else numbers[0]
            self._environment["GIT_SSH_COMMAND"] = _ssh(address.host.strip("[]"), pin)

    def run(self, *arguments: str, inside: Path, stop: Callable[[], bool], grows: Path | None = None) -> bytes:
        """Run one command to its end and return what it said; raises SourceBroken beyond any limit."""
        command = ["git", "--no-pager"]
        for setting in self._settings:
            command += ["-c", setting]
        try:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=inside,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceBroken(
                f"Git could not be started: {error.strerror}.", hint="Is git installed and on the PATH?"
            ) from error
        keep_small(process.pid)
        said, complaint = _Reader(process.stdout, _MOST_OUTPUT), _Reader(process.stderr, _MOST_COMPLAINT)
        try:
            self._watch(process, said, stop, grows)
        finally:
            _end(process)
            texts = said.close(), complaint.close()
        if process.returncode != 0:
            raise _failure(texts[1])
        return texts[0]

    def _watch(
        self, process: "subprocess.Popen[bytes]", said: "_Reader", stop: Callable[[], bool], grows: Path | None
    ) -> None:
        while True:
            try:
                process.wait(_POLL)
                return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > self._deadline:
                raise SourceBroken(
                    f"The remote repository did not come within {self._costs.timeout:g} seconds.",
                    hint="It may be slow or large; remote.timeout says how long it may take.",
                )
            if said.too_much or (grows is not None and _size(grows) > self._costs.max_bytes):
                raise SourceBroken(
                    f"The remote repository sends more than the {self._costs.max_bytes} bytes allowed.",
                    hint="remote.max_bytes says how much may come.",
                )
            if stop():
                raise Busy("The fetch was stopped.", hint="The wiki is being removed, or the service is about to end.")


class _Reader:
    """Reads a pipe to its end in a thread, keeping no more than the first bytes."""

    def __init__(self, pipe: IO[bytes] | None, most: int) -> None:
        self._pipe = pipe
        self._most = most
        self._kept = b""
        self.too_much = False
        self._thread = threading.Thread(target=self._read, name="git-output", daemon=True)
        self._thread.start()

    def close(self) -> bytes:
        self._thread.join()
        if self._pipe is not None:
            self._pipe.close()
        return self._kept

    def _read(self) -> None:
        while self._pipe is not None and (block := self._pipe.read1(1 << 16)):  # type: ignore[attr-defined]
            room = self._most - len(self._kept)
            self.too_much = self.too_much or len(block) > room
            self._kept += block[:room]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End git and all it started: its helpers hold the connection, and would hold our pipes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _environment(scheme: str) -> dict[str, str]:
    inherited = {name: value for name, value in clean_environment().items() if name.lower() not in _PROXIES}
    # An empty name of a program is no program: nobody is asked for a password. And a home that is none has no .netrc.
    return inherited | {"GIT_ALLOW_PROTOCOL": scheme, "GIT_ASKPASS": "", "SSH_ASKPASS": "", "HOME": os.devnull}


def _ssh(host: str, pin: str | None) -> str:
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=30", "ForwardAgent=no", "ForwardX11=no"]
    options += ["ClearAllForwardings=yes", "PermitLocalCommand=no", "ControlMaster=no", "ControlPath=none"]
    if pin is not None:
        options += [f"HostName={pin}", f"HostKeyAlias={host}", "CheckHostIP=no", "ProxyCommand=none", "ProxyJump=none"]
    return "ssh " + " ".join(f"-o {option}" for option in options)


def _size(directory: Path) -> int:
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                total += entry.stat().st_size
    except OSError:  # files come and go while git works
        return total
    return total


def _failure(stderr: bytes) -> SourceError:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("remote: ")] or lines or ["git gave no reason"]
    chosen: Sequence[str] = [line for line in own if line.startswith("fatal: ")] or own
    said = "".join(char if char.isprintable() else " " for char in chosen[0].removeprefix("fatal: "))[:300]
    hint = "Check the URL, and that whoever runs wikiholt may read it."
    if "Host key verification failed" in stderr.decode("utf-8", "replace"):
        hint = "Put the host's key into known_hosts of the user who runs wikiholt, after checking it."
    return SourceBroken(f"The remote repository could not be read: {said}", hint=hint)
