"""Failures of running processes."""

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from random import Random

from tests.crash.child_process import TIMEOUT_S, UNEXPECTED_ERROR, ChildChannel, ChildProcess, search_until
from tests.crash.crash_round import FailureOutcome
from tests.crash.fault_injection import UNSYNCED, FaultInjector, InjectedFault
from tests.crash.git_failures import GitFailure
from tests.crash.operations import OPERATIONS, SERVE, make_context, run_operation
from tests.crash.server_process import run_server, start_clients
from tests.support.git_repository import Repository
from tests.support.wait import wait_up_to

FAILURES = (
    *["kill at a step"] * 4,
    *["kill at a moment"] * 2,
    *["kill all", "power cut"],
    *["disk full", "file limit", "read-only", "clock", "git", "git"],
)
GIT_OPERATIONS = ("sync", "reindex", "other model", "fetch", "restore")
_DURATIONS_S = {
    "publish": 0.03,
    "back up": 0.3,
    "restore": 0.5,
    "restore registry": 0.15,
    "remove": 0.2,
    "fetch": 0.4,
    "scan": 0.6,
    SERVE: 4.0,
}
"""Duration of the operations that do not take about one second."""
_SERVED_STEPS = 2500
_NOBODY_UID = 65534
_SMALL_DISK_BYTES = 128 << 20
_CONCURRENT_PROBABILITY = 0.6


def can_fail(kind: str, operation: str) -> bool:
    """Whether this failure is possible during this operation."""
    if kind == "git":
        return operation in GIT_OPERATIONS
    return kind in FAILURES and (operation != SERVE or kind not in ("read-only", "clock"))


class Failure:
    """The failure of one round."""

    def __init__(self, kind: str, operation: str, directory: Path, scratch: Path, rng: Random) -> None:
        self.kind = kind
        self.operation = operation
        self._directory = directory
        self._scratch = scratch
        self._rng = rng
        self._mounted = False
        self._stop = scratch / "stop"
        self._steps = _SERVED_STEPS if operation == SERVE else OPERATIONS[operation].steps
        self._git: GitFailure | None = None

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def prepare(self, template: Path) -> None:
        """Copy the wikis of the round; for a full disk, onto a small separate disk."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._stop.unlink(missing_ok=True)
        if self.kind == "disk full":
            self._data.mkdir(parents=True)
            self._mounted = _mount_tmpfs(self._data, _SMALL_DISK_BYTES)
        shutil.copytree(template, self._directory, dirs_exist_ok=True)

    def clean_up(self) -> None:
        """Unmount the disk of the round."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self._data)], check=True)

    def run_processes(self, tokens: dict[str, str], operator: str, number: int) -> FailureOutcome:
        """Run a searcher, the writer and sometimes another process, cause the failure, and collect the results."""
        outcome, page_prefix = FailureOutcome(), f"n{number}"
        self._restrict()
        subject = "victim" if self.operation == SERVE else OPERATIONS[self.operation].subject
        shared = sorted(tokens)
        writer_tokens, other_tokens = ({token: tokens[token] for token in half} for half in (shared[:2], shared[2:]))
        searcher = self._start_child("searcher", lambda _: search_until(self._data, subject, self._stop))
        seed = self._rng.random()
        writer = ChildProcess(
            self._scratch / "writer",
            lambda channel: self._run_writer(channel, writer_tokens, f"{page_prefix}a", Random(seed)),
        )
        concurrent = self._start_concurrent(other_tokens, operator, page_prefix, outcome, writer, Random(seed + 1))
        self._cause_failure(writer, [searcher, *([concurrent] if concurrent else [])])
        ended = self._wait_for_writer(writer)
        self._stop.touch()
        children = {"writer": (writer, ended), "searcher": (searcher, searcher.wait())}
        if concurrent:
            children["concurrent"] = (concurrent, concurrent.wait())
        self._collect_messages(outcome, children)
        self._lift_restrictions(outcome)
        return outcome

    def _start_child(self, name: str, task: "object") -> ChildProcess:
        def run(channel: ChildChannel) -> object:
            if self.kind == "read-only":
                FaultInjector(channel, InjectedFault("drop"), None)
            return task(channel)  # type: ignore[operator]

        return ChildProcess(self._scratch / name, run)

    def _run_writer(self, channel: ChildChannel, tokens: dict[str, str], page_prefix: str, rng: Random) -> object:
        """Run the process that is to fail."""
        fault = self._choose_fault(rng)
        if self.operation == SERVE:
            FaultInjector(channel, fault, None)
            return run_server(self._data, "fake", 0.02, self._scratch / "address", self._scratch / "log")
        FaultInjector(channel, fault, OPERATIONS[self.operation].window)
        return run_operation(
            self.operation,
            make_context(self.operation, self._data, self._spare_repository, page_prefix, rng, channel, tokens),
        )

    @property
    def _spare_repository(self) -> Path:
        return self._directory / "bystander"

    def _choose_fault(self, rng: Random) -> InjectedFault:
        step = rng.randrange(1, self._steps)
        if self.kind == "kill at a step":
            return InjectedFault("kill", step)
        if self.kind == "power cut":
            # Or right after the last step, when everything is acknowledged.
            return InjectedFault("kill group", step if rng.random() < 0.6 else 0)
        if self.kind == "file limit":
            return InjectedFault(
                "file limit", rng.randrange(1, max(2, self._steps // 2)), rng.choice((0, 500, 5000, 10**5, 10**6))
            )
        if self.kind == "clock":
            jump = rng.choice((-1, 1)) * rng.choice((3600.0, 86400.0 * 40, 86400.0 * 3650))
            return InjectedFault("clock", rng.choice((0, step)), jump)
        return InjectedFault("drop" if self.kind == "read-only" else "")

    def _start_concurrent(
        self,
        tokens: dict[str, str],
        operator: str,
        page_prefix: str,
        outcome: FailureOutcome,
        writer: ChildProcess,
        rng: Random,
    ) -> ChildProcess | None:
        """Start another process on the same data: clients of a service, or a command."""
        if self.operation == SERVE:
            outcome.concurrent_operation = "clients"
            return start_clients(self._scratch, operator, self._stop, rng, f"{page_prefix}b")
        if rng.random() > _CONCURRENT_PROBABILITY or self.kind == "git":
            return None
        outcome.concurrent_operation = name = rng.choice(OPERATIONS[self.operation].concurrent)
        return self._start_child(
            "concurrent",
            lambda channel: run_operation(
                name, make_context(name, self._data, self._spare_repository, f"{page_prefix}b", rng, channel, tokens)
            ),
        )

    def _cause_failure(self, writer: ChildProcess, others: list[ChildProcess]) -> None:
        """Wait for the moment of a failure that comes from outside, and cause it."""
        is_served = self.operation == SERVE
        if self._git is None and self.kind not in ("kill at a moment", "kill all", "power cut"):
            if is_served:
                wait_up_to(lambda: others[-1].has_ended() or writer.has_ended(), TIMEOUT_S)
            return
        if self.kind == "power cut":
            # A service does nothing when its clients have gone, and may not have reached the moment of the failure.
            wait_up_to(lambda: writer.has_ended() or (is_served and others[-1].has_ended()), TIMEOUT_S)
            for child in others:
                child.send_signal(group=True) if writer.has_ended() else None
            return
        wait_up_to(lambda: writer.channel.has_entered or writer.has_ended(), TIMEOUT_S)
        time.sleep(self._rng.uniform(0, _DURATIONS_S.get(self.operation, 1.2)))
        if self._git is not None:
            self._git.damage()
            return
        writer.send_signal(group=self.kind == "kill all")
        for child in others if self.kind == "kill all" else ():
            child.send_signal(group=True)

    def _wait_for_writer(self, writer: ChildProcess) -> dict[str, object]:
        if self.operation == SERVE and not writer.has_ended():
            self._stop.touch()
            writer.send_signal(15)
        return writer.wait()

    def _collect_messages(
        self, result: FailureOutcome, children: dict[str, tuple[ChildProcess, dict[str, object]]]
    ) -> None:
        unsynced: dict[str, bool] = {}
        for name, (child, ended) in children.items():
            messages = child.channel.receive_all()
            result.messages.append([line for line in messages if line[0] in ("begin", "done")])
            unsynced |= {str(line[1]): line[0] == UNSYNCED for line in messages if line[0] in (UNSYNCED, "synced")}
            ending = str(ended["outcome"])
            if self.operation == SERVE and name == "writer" and ended.get("trace") == "ended by SIGTERM":
                ending = "ended early"  # it was stopped before it listened
            if name == "writer":
                result.outcome, result.hit_window = ending, ending == "killed" and child.channel.is_inside
            elif name == "searcher" and isinstance(value := ended.get("value"), dict):
                result.searches = value
            if ending == UNEXPECTED_ERROR:
                log = (self._scratch / "log").read_text().strip()[-6000:] if self.operation == SERVE else ""
                result.faults.append(f"{name}: {ended.get('trace', ended)}\n{log}".strip())
            child.channel.close()
        if self.kind == "power cut":
            _truncate_unsynced(self._data, [Path(name) for name, lost in unsynced.items() if lost])

    def _restrict(self) -> None:
        """Reduce disk space or permissions before the operation starts."""
        if self.kind == "disk full":
            used = sum(file.stat().st_blocks * 512 for file in self._data.rglob("*"))
            room = int(2 ** self._rng.uniform(12, 22))
            if not self._mounted or not _mount_tmpfs(self._data, used + room, again=True):
                self.kind = "file limit"
        elif self.kind == "read-only":
            _change_owner(self._directory, _NOBODY_UID)
            _set_writable(self._data, writing=False)
        elif self.kind == "git":
            repository = self._directory / ("upstream" if OPERATIONS[self.operation].subject == "mirror" else "victim")
            self._git = GitFailure(Repository(repository), self._scratch / "intact", self._rng)
            if self._rng.random() < 0.5:
                self._git.damage()
                damaged, self._git = self._git, None
                self._restore_git = damaged.restore
            else:
                self._restore_git = self._git.restore

    def _lift_restrictions(self, outcome: FailureOutcome) -> None:
        """Restore disk space, permissions and the repository."""
        if self.kind == "disk full":
            _mount_tmpfs(self._data, _SMALL_DISK_BYTES, again=True)
        elif self.kind == "read-only":
            _set_writable(self._data, writing=True)
            _change_owner(self._directory, os.geteuid())
        elif self.kind == "git":
            self._restore_git()


def _mount_tmpfs(directory: Path, size: int, *, again: bool = False) -> bool:
    """Mount a small disk in memory, in the mount namespace of this process; False if that is not possible."""
    options = f"{'remount,' if again else ''}size={max(size, resource.getpagesize())},mode=755"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], capture_output=True, check=False
    )
    return done.returncode == 0


def _truncate_unsynced(data: Path, files: list[Path]) -> None:
    """Empty the files that were never synced, as a power cut does. SQLite syncs its own files."""
    for file in files:
        own = file.is_relative_to(data) and (file.suffix != ".sqlite" or "backups" in file.parts)
        if own and file.is_file():
            os.truncate(file, 0)


def _change_owner(directory: Path, user: int) -> None:
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def _set_writable(directory: Path, *, writing: bool) -> None:
    for path in (directory, *directory.rglob("*")):
        path.chmod((0o755 if writing else 0o555) if path.is_dir() else (0o644 if writing else 0o444))
