"""The repositories that Wikiholt creates and deletes itself: one bare repository per managed wiki, named by its id.

They have the only copy of their pages, so they are not in the directory of the index, which may be deleted at any time.
"""

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.domain.protocols import never_stop
from wikiholt.errors import InvalidSetting, NoPagesYet, StorageError
from wikiholt.git.mirror import combine_packs, make_bare_runner
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.source import GitSource
from wikiholt.regular_files import fsync_path

_INIT_TIMEOUT_S = 60.0
_BUNDLE_TIMEOUT_S = 3600.0
_BUNDLE_SUFFIX = ".bundle"


class ManagedSource(GitSource):
    """A repository that nobody else maintains: a fetch also packs its objects now and then."""

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        changed = super().fetch(stop)
        combine_packs(self._path, self._timeout_s)
        return changed

    def _resolve_head(self, location: RepositoryLocation) -> str:
        if _is_unwritten(location.git_dir):
            raise NoPagesYet(
                "This wiki has no pages yet.", hint="Write one over HTTP or MCP, or with `wikiholt import-pages`."
            )
        return super()._resolve_head(location)


def _is_unwritten(git_dir: Path) -> bool:
    """Whether a repository is as `git init` made it. One that has lost its branch still has objects."""
    try:
        return (
            {path.name for path in (git_dir / "objects").iterdir()} <= {"info", "pack"}
            and not any((git_dir / "objects/pack").iterdir())
            and not any((git_dir / "refs/heads").iterdir())
            and not (git_dir / "packed-refs").exists()
        )
    except OSError:
        return False


class RepositoryDirectory:
    """The repositories of all managed wikis. Safe to use from many threads."""

    def __init__(self, directory: Path, *, reason_against: str = "") -> None:
        """With `reason_against`, no repository is created, and the error says why."""
        self._directory = directory
        self._reason_against = reason_against

    def create(self, wiki_id: str) -> None:
        if self._reason_against:
            raise InvalidSetting(
                self._reason_against,
                hint="Set repositories.directory to a directory on storage that all nodes share.",
            )
        with _translate_errors():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._directory / f".new-{secrets.token_hex(8)}"
            draft.mkdir(mode=0o700)
            try:
                options = ("--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=main")
                result = make_bare_runner(draft, _INIT_TIMEOUT_S).run("init", *options)
                if result.status != 0:
                    raise result.to_error("create a repository")
                draft.rename(self._get_path(wiki_id))
                fsync_path(self._directory)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def delete(self, wiki_id: str) -> None:
        path = self._get_path(wiki_id)
        trash = path.with_name(f".dropped-{wiki_id}")
        with _translate_errors():
            shutil.rmtree(trash, ignore_errors=True)
            with suppress(FileNotFoundError):  # a writer that still runs fails, and cannot create it again
                path.rename(trash)
                shutil.rmtree(trash)

    def list_ids(self) -> set[str]:
        with suppress(OSError):
            return {path.name.removeprefix(".dropped-").removesuffix(".git") for path in self._directory.iterdir()}
        return set()

    def write_backup(self, wiki_id: str, directory: Path) -> None:
        git = make_bare_runner(self._get_path(wiki_id), _BUNDLE_TIMEOUT_S)
        head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.status != 0:
            return  # nothing was written yet
        target = directory / f"pages-{head.stdout.decode().strip()}{_BUNDLE_SUFFIX}"
        if target.exists():
            return
        draft = target.with_name(f".{secrets.token_hex(8)}{_BUNDLE_SUFFIX}")
        with _translate_errors():
            try:
                result = git.run("bundle", "create", "--quiet", str(draft), "HEAD", "--branches")
                if result.status != 0 or git.run("bundle", "verify", "--quiet", str(draft)).status != 0:
                    raise result.to_error("write a backup of the pages")
                fsync_path(draft)
                older = list(directory.glob(f"pages-*{_BUNDLE_SUFFIX}"))
                draft.rename(target)
                fsync_path(directory)
            finally:
                draft.unlink(missing_ok=True)
            for file in older:  # the new bundle contains their commits
                file.unlink(missing_ok=True)

    def _get_path(self, wiki_id: str) -> Path:
        return self._directory / f"{wiki_id}.git"


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"The directory of the repositories cannot be written ({error.strerror or error}).",
            hint="Check its permissions and the free disk space.",
        ) from error
