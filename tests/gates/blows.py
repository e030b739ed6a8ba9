"""How a blow falls on processes at work."""

import os
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from broken_git import BrokenGit
from deeds import DEEDS, SERVE, bench_for, do
from gate_server import Visitor, serve, visit
from git_repository import Repository
from hindrances import UNSYNCED, Hindered, Hindrance
from processes import ESCAPED, OUT_OF_MEMORY, PATIENCE, Child, Line, Told, search_until

BLOWS = (
    *["kill at a step"] * 4,
    *["kill at a moment"] * 2,
    *["kill all", "power cut"],
    *["files"] * 4,
    *["disk full", "file limit", "read-only", "memory", "out of memory", "clock", "git", "git"],
)
GIT_DEEDS = ("sync", "reindex", "other model", "fetch", "restore")
_SPANS = {
    "publish": 0.03,
    "back up": 0.3,
    "restore": 0.5,
    "restore registry": 0.15,
    "remove": 0.2,
    "fetch": 0.4,
    SERVE: 4.0,
}
"""Seconds that what a blow is meant for takes, where it is not a second or so."""
_SERVED_STEPS = 2500
_NOBODY = 65534
_ROOM = 128 << 20
_BESIDE = 0.6


def fits(kind: str, deed: str) -> bool:
    """Whether this blow can fall on this deed."""
    if kind == "git":
        return deed in GIT_DEEDS
    return kind in BLOWS and (deed != SERVE or kind not in ("read-only", "memory", "clock"))


@dataclass(slots=True)
class Struck:
    """What came of the processes that were at work."""

    beside: str = ""
    outcome: str = ""
    hit: bool = False
    searches: dict[str, int] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Blow:
    """One blow of one round."""

    def __init__(self, kind: str, deed: str, place: Path, scratch: Path, rng: Random) -> None:
        self.kind = kind
        self.deed = deed
        self._place = place
        self._scratch = scratch
        self._rng = rng
        self._mounted = False
        self._stop = scratch / "stop"
        self._steps = _SERVED_STEPS if deed == SERVE else DEEDS[deed].steps
        self._git: BrokenGit | None = None

    @property
    def _data(self) -> Path:
        return self._place / "data"

    def prepare(self, template: Path) -> None:
        """Lay out the wikis of the round; where the disk is to fill up, on a small one of their own."""
        shutil.rmtree(self._place, ignore_errors=True)
        self._stop.unlink(missing_ok=True)
        if self.kind == "disk full":
            self._data.mkdir(parents=True)
            self._mounted = _mount(self._data, _ROOM)
        shutil.copytree(template, self._place, dirs_exist_ok=True)

    def clear(self) -> None:
        """Give back what the round had of the system."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self._data)], check=True)

    def strike(self, model: str, tokens: dict[str, str], operator: str, number: int) -> Struck:
        """Let a searcher, the one to be struck and perhaps another work at once; let the blow fall; hear them."""
        struck, own = Struck(), f"n{number}"
        self._narrow()
        subject = "victim" if self.deed == SERVE else DEEDS[self.deed].subject
        shared = sorted(tokens)
        mine, theirs = ({token: tokens[token] for token in some} for some in (shared[:2], shared[2:]))
        searcher = self._child("searcher", lambda _: search_until(self._data, subject, self._stop))
        seed = self._rng.random()
        writer = Child(
            self._scratch / "writer",
            lambda line: self._work(line, model, mine, f"{own}a", Random(seed)),
            30 if self.kind == "memory" else PATIENCE,
        )
        beside = self._beside(theirs, operator, own, struck, writer, Random(seed + 1))
        self._fall(writer, [searcher, *([beside] if beside else [])])
        ended = self._end(writer)
        self._stop.touch()
        children = {"writer": (writer, ended), "searcher": (searcher, searcher.join())}
        if beside:
            children["beside"] = (beside, beside.join())
        self._hear(struck, children)
        self._widen(struck)
        return struck

    def _child(self, name: str, task: "object") -> Child:
        def run(line: Line) -> object:
            if self.kind == "read-only":
                Hindered(line, Hindrance("drop"), None)
            return task(line)  # type: ignore[operator]

        return Child(self._scratch / name, run)

    def _work(self, line: Line, model: str, tokens: dict[str, str], own: str, rng: Random) -> object:
        """The whole life of the process that is to be struck."""
        hindrance = self._hindrance(rng)
        if self.deed == SERVE:
            Hindered(line, hindrance, None)
            return serve(self._data, model, 0.02, self._scratch / "listens", self._scratch / "log")
        deed = DEEDS[self.deed]
        Hindered(line, hindrance, deed.window)
        if model != "fake":
            return do(self.deed, bench_for(self.deed, self._data, self._elsewhere, own, rng, line, tokens, model))
        return do(self.deed, bench_for(self.deed, self._data, self._elsewhere, own, rng, line, tokens))

    @property
    def _elsewhere(self) -> Path:
        return self._place / "bystander"

    def _hindrance(self, rng: Random) -> Hindrance:
        step = rng.randrange(1, self._steps)
        if self.kind == "kill at a step":
            return Hindrance("kill", step)
        if self.kind == "power cut":
            # Or right after the last step, when all is said to be done.
            return Hindrance("kill group", step if rng.random() < 0.6 else 0)
        if self.kind == "file limit":
            return Hindrance(
                "file limit", rng.randrange(1, max(2, self._steps // 2)), rng.choice((0, 500, 5000, 10**5, 10**6))
            )
        if self.kind == "memory":
            return Hindrance("memory", step, rng.choice((0, 2, 8, 32)) * 2**20)
        if self.kind == "clock":
            jump = rng.choice((-1, 1)) * rng.choice((3600.0, 86400.0 * 40, 86400.0 * 3650))
            return Hindrance("clock", rng.choice((0, step)), jump)
        return Hindrance("drop" if self.kind == "read-only" else "")

    def _beside(
        self, tokens: dict[str, str], operator: str, own: str, struck: Struck, writer: Child, rng: Random
    ) -> Child | None:
        """Another process at work on the same data: visitors of a service, or somebody at a terminal."""
        if self.deed == SERVE:
            struck.beside = "visitors"
            (self._scratch / "listens").unlink(missing_ok=True)
            visitor = Visitor(self._scratch / "listens", operator, self._stop.exists)
            return Child(self._scratch / "beside", lambda line: visit(visitor, rng, line, f"{own}b"))
        if rng.random() > _BESIDE or self.kind in ("git", "out of memory"):
            return None
        struck.beside = name = rng.choice(DEEDS[self.deed].beside)
        return self._child(
            "beside",
            lambda line: do(name, bench_for(name, self._data, self._elsewhere, f"{own}b", rng, line, tokens)),
        )

    def _fall(self, writer: Child, others: list[Child]) -> None:
        """Wait for the moment of a blow that comes from outside, and let it fall."""
        if self._git is None and self.kind not in ("kill at a moment", "kill all", "power cut", "out of memory"):
            if self.deed == SERVE:
                _wait(lambda: others[-1].poll() or writer.poll(), 20)
            return
        if self.kind == "power cut":
            _wait(writer.poll, 20)
            for child in others:
                child.kill(group=True) if writer.poll() else None
            return
        _wait(lambda: writer.line.entered or writer.poll(), 20)
        if self.kind == "out of memory":
            self._kill_by_memory(writer)
            return
        time.sleep(self._rng.uniform(0, _SPANS.get(self.deed, 1.2)))
        if self._git is not None:
            self._git.strike()
            return
        writer.kill(group=self.kind == "kill all")
        for child in others if self.kind == "kill all" else ():
            child.kill(group=True)

    def _kill_by_memory(self, writer: Child) -> None:
        """As the kernel does it: who takes too much is ended with SIGKILL, without a word before."""
        base = _resident(writer.pid)
        most = base + self._rng.randrange(1, 8 << 20)
        _wait(lambda: writer.poll() or _resident(writer.pid) > most, 5)
        writer.kill() if not writer.poll() else None

    def _end(self, writer: Child) -> dict[str, object]:
        if self.deed == SERVE and not writer.poll():
            self._stop.touch()
            writer.kill(15)
        return writer.join()

    def _hear(self, struck: Struck, children: dict[str, tuple[Child, dict[str, object]]]) -> None:
        unsynced: dict[str, bool] = {}
        for name, (child, ended) in children.items():
            told = child.line.heard()
            struck.told.append([line for line in told if line[0] in ("begin", "done")])
            unsynced |= {str(line[1]): line[0] == UNSYNCED for line in told if line[0] in (UNSYNCED, "synced")}
            outcome = str(ended["outcome"])
            if self.deed == SERVE and name == "writer" and ended.get("trace") == "ended by SIGTERM":
                outcome = "ended early"  # it was told to end before it had begun to listen
            if name == "writer":
                struck.outcome, struck.hit = outcome, outcome == "killed" and child.line.inside
            elif name == "searcher" and isinstance(value := ended.get("value"), dict):
                struck.searches = value
            if outcome == ESCAPED or (outcome == OUT_OF_MEMORY and self.kind != "memory"):
                log = (self._scratch / "log").read_text().strip()[-6000:] if self.deed == SERVE else ""
                struck.faults.append(f"{name}: {ended.get('trace', ended)}\n{log}".strip())
            child.line.close()
        if self.kind == "power cut":
            _lose(self._data, [Path(name) for name, lost in unsynced.items() if lost])

    def _narrow(self) -> None:
        """Take room or rights away before the work begins."""
        if self.kind == "disk full":
            used = sum(file.stat().st_blocks * 512 for file in self._data.rglob("*"))
            room = int(2 ** self._rng.uniform(12, 22))
            if not self._mounted or not _mount(self._data, used + room, again=True):
                self.kind = "file limit"
        elif self.kind == "read-only":
            _give(self._place, _NOBODY)
            _allow(self._data, writing=False)
        elif self.kind == "git":
            repository = self._place / ("upstream" if DEEDS[self.deed].subject == "mirror" else "victim")
            self._git = BrokenGit(Repository(repository), self._scratch / "whole", self._rng)
            if self._rng.random() < 0.5:
                self._git.strike()
                broken, self._git = self._git, None
                self._mend = broken.mend
            else:
                self._mend = self._git.mend

    def _widen(self, struck: Struck) -> None:
        """Give back what was taken away: a disk with room, a directory that can be written, a whole repository."""
        if self.kind == "disk full":
            _mount(self._data, _ROOM, again=True)
        elif self.kind == "read-only":
            _allow(self._data, writing=True)
            _give(self._place, os.geteuid())
        elif self.kind == "git":
            self._mend()


def _mount(place: Path, size: int, *, again: bool = False) -> bool:
    """A small disk in memory, in a namespace of this process's own; False where the system gives none."""
    options = f"{'remount,' if again else ''}size={max(size, resource.getpagesize())},mode=755"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )
    return done.returncode == 0


def _lose(data: Path, files: list[Path]) -> None:
    """What a power cut does to files whose bytes were never forced to the disk. SQLite sees to its own."""
    for file in files:
        own = file.is_relative_to(data) and (file.suffix != ".sqlite" or "backups" in file.parts)
        if own and file.is_file():
            os.truncate(file, 0)


def _give(place: Path, user: int) -> None:
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def _allow(place: Path, *, writing: bool) -> None:
    for path in (place, *place.rglob("*")):
        path.chmod((0o755 if writing else 0o555) if path.is_dir() else (0o644 if writing else 0o444))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _wait(condition: "object", seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.002)
