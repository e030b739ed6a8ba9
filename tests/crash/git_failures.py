"""Damage to a repository while its wiki is being indexed. It is restored afterwards: indexes are built from git."""

import shutil
from pathlib import Path
from random import Random

from tests.crash.file_damage import damage_file
from tests.crash.random_edits import make_random_edits
from tests.support.git_repository import Repository

GIT_FAILURES = ("files", "files", "force-push", "gc", "objects", "pack", "HEAD", "gone")


class GitFailure:
    """One repository, damaged in one way. `restore` brings it back, at the commit it had."""

    def __init__(self, repository: Repository, backup: Path, rng: Random) -> None:
        self._repository = repository
        self._backup = backup
        self._rng = rng
        self.kind = rng.choice(GIT_FAILURES)
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(repository.path, backup)

    def damage(self) -> None:
        getattr(self, "_" + self.kind.replace("-", "_").lower())()

    def restore(self) -> None:
        """Restore the copy. After a force-push or a `git gc` the repository is intact and stays."""
        if self.kind not in ("force-push", "gc"):
            shutil.rmtree(self._repository.path, ignore_errors=True)
            shutil.copytree(self._backup, self._repository.path)

    def _git_files(self, pattern: str) -> list[Path]:
        found = (self._repository.path / ".git").rglob(pattern)
        return sorted(file for file in found if file.is_file() and "hooks" not in file.parts)

    def _files(self) -> None:
        for _ in range(self._rng.randrange(1, 4)):
            if files := self._git_files("*"):
                damage_file(self._rng.choice(files), self._rng)

    def _force_push(self) -> None:
        make_random_edits(self._repository, self._rng)
        self._repository.run_git("commit", "--quiet", "--amend", "--allow-empty", "-m", "Rewritten")

    def _gc(self) -> None:
        self._force_push()
        self._repository.run_git("reflog", "expire", "--expire=now", "--all", check=False)
        self._repository.run_git("gc", "--quiet", "--prune=now", check=False)

    def _objects(self) -> None:
        files = [file for file in self._git_files("*") if len(file.parent.name) == 2]
        for file in self._rng.sample(files, len(files) // 2):
            file.unlink()

    def _pack(self) -> None:
        for file in self._git_files("*.pack"):
            file.chmod(0o644)
            with file.open("r+b") as out:
                out.truncate(self._rng.randrange(file.stat().st_size))

    def _head(self) -> None:
        nowhere = self._rng.choice(("ref: refs/heads/nowhere\n", "f" * 40 + "\n", "", "nonsense\n"))
        (self._repository.path / ".git" / "HEAD").write_text(nowhere)

    def _gone(self) -> None:
        shutil.rmtree(self._repository.path)
