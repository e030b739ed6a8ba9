"""Locates repositories on disk: the one at a path, and all in a directory of wikis; checks that each is confined."""

import errno
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.slugs import propose_free_slug, validate_slug
from wikiholt.errors import InvalidSlug, InvalidSource, SourceCorrupt, SourceError, SourceMissing

_MAX_PATH_BYTES = 4096
_READ_BLOCK_BYTES = 1 << 16
_GIT_FILE_PREFIX = b"gitdir: "


@dataclass(frozen=True, slots=True)
class RepositoryLocation:
    """A repository on disk: `git_dir` contains HEAD, `common_dir` objects and branches (often the same directory)."""

    git_dir: Path
    common_dir: Path


def find_repository(path: Path) -> RepositoryLocation:
    """Find the repository exactly at `path`, never one in a parent directory. Raises SourceError, InvalidSource."""
    try:
        dot_git = path / ".git"
        kind = get_file_type(dot_git)
        if kind == stat.S_IFDIR and get_file_type(dot_git / "HEAD") == stat.S_IFREG:
            return _build_location(dot_git)
        if kind == stat.S_IFREG:
            return _build_location(_resolve_git_file(dot_git))
        if _is_git_dir(path):
            return _build_location(path)
    except OSError as error:
        raise make_unreadable_error(path, error) from error
    raise _make_missing_error(path, dot_git)


def make_unreadable_error(path: Path, error: OSError) -> SourceError:
    """The error for a repository file that cannot be read."""
    return SourceCorrupt(
        f"The repository at {path} cannot be read: {error.strerror or error}.",
        hint="Check that the user who runs wikiholt may read every file of the repository.",
    )


def _build_location(git_dir: Path) -> RepositoryLocation:
    pointer = git_dir / "commondir"
    if not get_file_type(pointer):
        return RepositoryLocation(git_dir, git_dir)
    return RepositoryLocation(git_dir, Path(_resolve_pointer(pointer)))


def _resolve_git_file(dot_git: Path) -> Path:
    git_dir = Path(_resolve_pointer(dot_git, _GIT_FILE_PREFIX))
    if get_file_type(git_dir / "HEAD") == stat.S_IFREG:
        return git_dir
    raise SourceCorrupt(
        f"{dot_git} does not point to a repository.",
        hint="A linked work tree or submodule was moved; run `git worktree repair` in its main repository.",
    )


def _resolve_pointer(file: str | Path, prefix: bytes = b"") -> str:
    """The directory that a file names after `prefix`, found as git finds it: links are resolved before `..`.

    Raises OSError.
    """
    content = read_start(file, _MAX_PATH_BYTES + 1)
    if len(content) > _MAX_PATH_BYTES or b"\0" in content or not content.startswith(prefix):
        raise OSError(errno.EINVAL, f"{os.path.basename(file)} names no directory")  # noqa: PTH119
    target = os.fsdecode(content.removeprefix(prefix).rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(os.path.dirname(file), target))  # noqa: PTH118, PTH120


def read_start(path: str | Path, max_bytes: int) -> bytes:
    """The first bytes of a file. Does not block on a named pipe, which the owner may put there. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = bytearray()
        while block := os.read(descriptor, min(_READ_BLOCK_BYTES, max_bytes - len(content))):
            content += block
        return bytes(content)
    finally:
        os.close(descriptor)


def _is_git_dir(path: Path) -> bool:
    # The git directory of a linked work tree has no objects.
    linked = get_file_type(path / "commondir") == stat.S_IFREG
    return get_file_type(path / "HEAD") == stat.S_IFREG and (
        linked or all(get_file_type(path / name) for name in ("objects", "refs"))
    )


def get_file_type(path: str | Path, *, follow: bool = True) -> int:
    """The file type bits of a path (`stat.S_IFMT`), 0 if it does not exist; raises OSError if not permitted."""
    try:
        return stat.S_IFMT(os.stat(path, follow_symlinks=follow).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_within(path: str | Path, directory: str | Path) -> bool:
    """Whether the path, with links resolved, is the directory or inside it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _make_missing_error(path: Path, dot_git: Path) -> SourceError | InvalidSource:
    if not path.exists():
        return SourceMissing(f"{path} does not exist.", hint="Check the path, and that its disk is mounted.")
    if not path.is_dir():
        return InvalidSource(f"{path} is a file, not a git repository.", hint="Use the directory of the repository.")
    if dot_git.exists():
        return SourceCorrupt(
            f"The repository at {path} has no HEAD.",
            hint="It is damaged: restore it from a clone or a backup, or check it with `git fsck`.",
        )
    for parent in path.parents:
        if (parent / ".git").exists():
            return InvalidSource(
                f"{path} is a directory inside a git repository, not a repository itself.",
                hint=f"Use {parent} as the source, with subdirectory={path.relative_to(parent).as_posix()}. To read its"
                " files from disk instead, add it with --worktree (setting kind=directory).",
            )
    return SourceMissing(
        f"{path} is not a git repository.", hint=f"To make it one: `git -C {path} init`, then commit the pages."
    )


# Stamps of files and directories: inode, size and times, by which a later change is noticed. A file system may have
# coarse timestamps, and an inode is used again. So a stamp is trusted only if everything in it was at rest for a while
# before: a second change at the same time cannot hide behind the first.

TIMESTAMP_GRANULARITY_NS = 2_000_000_000
"""FAT has the coarsest timestamps: two seconds."""
_STAMP = struct.Struct("=QQqq")


def compute_stamp(paths: Iterable[str]) -> bytes:
    """The stamps of these paths, without following links; zeros for what does not exist."""
    parts = []
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError:
            parts.append(bytes(_STAMP.size))
        else:
            parts.append(_STAMP.pack(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return b"".join(parts)


def take_stamp(paths: Iterable[str], now_ns: int) -> bytes | None:
    """The stamps of these paths; None if one is a link, or was modified less than two seconds before `now_ns`."""
    paths = list(paths)
    stamp = compute_stamp(paths)
    rested = all(
        max(modified_ns, changed_ns) < now_ns - TIMESTAMP_GRANULARITY_NS
        for _, _, modified_ns, changed_ns in _STAMP.iter_unpack(stamp)
    )
    return stamp if rested and not any(map(_is_link, paths)) else None


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


# Confinement: a repository must not reference anything outside its directory. Otherwise anybody who can write there
# could serve another wiki's pages, or any repository of the machine, as their own: by a link, a `.git` file, a linked
# work tree, or borrowed objects (alternates).

_CHECKED_PATHS = (
    "HEAD",
    "commondir",
    "packed-refs",
    "refs",
    "refs/heads",
    "reftable",
    "objects",
    "objects/info",
    "objects/pack",
)
_WRITTEN_DIRECTORIES = ("refs", "logs", "reftable")
_MAX_LINK_STEPS = 5
_FAN_OUT_CHARS = 2
"""Loose objects are in directories that are named by the first characters of their id."""


def has_outside_references(repository: Path, root: Path, checked_objects: "CheckedObjects | None" = None) -> bool:
    """Whether the repository uses anything outside `root`, or alternates. With `checked_objects`, every object counts.

    Without it this takes a dozen `stat` calls; discovery does that for thousands of repositories.
    """
    return any(
        _is_path_outside(str(root), path, _MAX_LINK_STEPS, checked_objects)
        for path in (str(repository), f"{repository}/.git")
    )


def _is_path_outside(root: str, path: str, steps: int, checked_objects: "CheckedObjects | None") -> bool:
    kind = get_file_type(path, follow=False)
    if kind == stat.S_IFLNK:
        if path != root and not is_within(path, root):
            return True
        kind = get_file_type(path)
    if not kind or steps == 0:
        return bool(kind)  # a longer chain is suspicious
    if kind == stat.S_IFREG:
        target = _resolve_pointer(path, _GIT_FILE_PREFIX)
        return not is_within(target, root) or _is_path_outside(root, target, steps - 1, checked_objects)
    if any(_is_outside_link(f"{path}/{part}", root) for part in _CHECKED_PATHS):
        return True
    common = f"{path}/commondir"
    if get_file_type(common, follow=False):
        target = _resolve_pointer(common)
        if not is_within(target, root) or _is_path_outside(root, target, steps - 1, checked_objects):
            return True
    # Alternates may be quoted, relative to a link, or have alternates themselves: it is safer to refuse all.
    return bool(get_file_type(f"{path}/objects/info/alternates", follow=False)) or (
        checked_objects is not None and checked_objects.has_outside_link(f"{path}/objects", root)
    )


def has_written_links(location: RepositoryLocation) -> bool:
    """Whether a write could follow a link in the git directory, even one that leads to the inside. Raises OSError."""
    directories = {str(location.git_dir), str(location.common_dir)}
    for directory in tuple(directories):
        for name in _WRITTEN_DIRECTORIES:
            directories.update(folder for folder, _, _ in os.walk(f"{directory}/{name}"))
    return any(map(_list_links, directories))


class CheckedObjects:
    """Finds links among the objects of one repository. Directories of objects at rest are read once, if without links.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, bytes] = {}

    def has_outside_link(self, objects: str, root: str) -> bool:
        """Whether an object, or a directory with objects, is a link to the outside."""
        now_ns, names = time.time_ns(), _list_names(objects)
        paths = [f"{objects}/{name}" for name in names if len(name) == _FAN_OUT_CHARS or name in ("pack", "info")]
        for path in paths:
            if path in self._stamps and compute_stamp([path]) == self._stamps[path]:
                continue
            stamp, links = take_stamp([path], now_ns), _list_links(path)
            if _is_outside_link(path, root) or any(not is_within(link, root) for link in links):
                return True
            if stamp is not None and not links:
                self._stamps[path] = stamp
        return False


def _list_names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - strings are faster
    except (FileNotFoundError, NotADirectoryError):
        return []


def _list_links(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_outside_link(path: str, root: str) -> bool:
    return get_file_type(path, follow=False) == stat.S_IFLNK and not is_within(path, root)


# Discovery of the repositories in a directory of wikis: `slug/`, `slug/repo`, `slug/repository`, `slug.git`.
# A directory whose name is not a slug gets one like its name: `robots` is the wiki `robots-pages`. It takes a few
# `stat` calls per entry and starts no git process. A repository must not reference anything outside its own directory.

_REPOSITORY_SUBDIRECTORIES = ("", "repo", "repository")
_DISCOVERY_TTL_S = 600.0
"""How long stamps may replace the complete check of a repository at rest."""


def find_repositories(root: Path, cache: "DiscoveryCache | None" = None) -> Iterator[DiscoveredRepository]:
    """Every repository below the directory, by slug; one that cannot be served comes with the reason.

    With a cache from earlier calls for the same directory, repositories at rest take less time.
    """
    cache = cache if cache is not None else DiscoveryCache()
    try:
        top = root.resolve()
        with os.scandir(top) as entries:
            names = {entry.name: entry.is_symlink() for entry in entries if not entry.name.startswith(".")}
    except OSError as error:
        yield DiscoveredRepository("", root, f"the directory cannot be read ({error.strerror})")
        return
    # Names that are slugs come first, so that no other name takes theirs; then `name` before `name.git`.
    claimed: dict[str, Path] = {}
    cache.keep_only(names.keys())
    slugs = {name: cache.choose_slug(name) for name in names}
    for name in sorted(names, key=lambda name: (slugs[name] != name.removesuffix(".git"), slugs[name], name)):
        for repository in cache.find_in_entry(top, name, is_link=names[name]):
            slug, path = repository.slug, repository.path
            if not repository.reason and (winner := claimed.setdefault(slug, path)) != path:
                yield DiscoveredRepository(slug, path, f"{winner.relative_to(top)} is already the wiki {slug}")
            else:
                yield repository


@dataclass(frozen=True, slots=True)
class _RestingEntry:
    """An entry with one repository without fault: the places that were stamped, and until when that counts."""

    slug: str
    subdirectory: str
    git_dir: str
    stamp: bytes
    until: float

    def list_stamped_paths(self, entry: str) -> list[str]:
        """What the complete check looks at, directly or in these directories."""
        path = f"{entry}{self.subdirectory}"
        git_dir = f"{path}{self.git_dir}"
        return [*dict.fromkeys((entry, path, git_dir)), f"{git_dir}/objects", f"{git_dir}/objects/info"]

    def is_unchanged(self, entry: str) -> bool:
        return time.monotonic() < self.until and compute_stamp(self.list_stamped_paths(entry)) == self.stamp


class DiscoveryCache:
    """Remembers the repositories at rest in one directory of wikis. Used by one thread."""

    def __init__(self) -> None:
        self._resting: dict[str, _RestingEntry] = {}

    def keep_only(self, names: Set[str]) -> None:
        """Forget other entries."""
        for name in self._resting.keys() - names:
            del self._resting[name]

    def choose_slug(self, name: str) -> str:
        """The slug of an entry."""
        return self._resting[name].slug if name in self._resting else _choose_slug(name.removesuffix(".git"))

    def find_in_entry(self, directory: Path, name: str, *, is_link: bool) -> Iterable[DiscoveredRepository]:
        """The repositories of one entry, from a complete check if something may have changed."""
        slug, now_ns = self.choose_slug(name), time.time_ns()
        resting, entry = self._resting.pop(name, None), directory / name
        if resting is not None and not is_link and resting.is_unchanged(str(entry)):
            self._resting[name] = resting
            path = Path(f"{entry}{resting.subdirectory}") if resting.subdirectory else entry
            return (DiscoveredRepository(slug, path, "", entry),)
        found = list(_find_in_entry(directory, name, slug, is_link=is_link))
        if len(found) == 1 and not found[0].reason and not is_link:
            self._remember(name, found[0], now_ns)
        return found

    def _remember(self, name: str, found: DiscoveredRepository, now_ns: int) -> None:
        """Remember an entry with this one repository, if its stamps tell all, and it has not changed since `now_ns`."""
        entry, path = str(found.confined_to), str(found.path)
        git_dir = "/.git" if os.path.isdir(f"{path}/.git") else ""  # noqa: PTH112
        # The complete check reads some files, and looks into some directories, that have no stamp.
        unstamped = [f"{path}{git_dir}/commondir", f"{path}/commondir"]
        unstamped.append(f"{path}/objects" if git_dir else f"{path}/.git")
        if path != entry:
            others = {f"{entry}/{name}" for name in (".git", *_REPOSITORY_SUBDIRECTORIES[1:])} - {path}
            unstamped.extend(others)
        if any(map(os.path.lexists, unstamped)):
            return
        until = time.monotonic() + _DISCOVERY_TTL_S
        resting = _RestingEntry(found.slug, path.removeprefix(entry), git_dir, b"", until)
        stamp = take_stamp(resting.list_stamped_paths(entry), now_ns)
        if stamp is not None:
            self._resting[name] = replace(resting, stamp=stamp)


def _choose_slug(name: str) -> str:
    """The name, or a slug like it if the name cannot be one."""
    try:
        return validate_slug(name)
    except InvalidSlug:
        return propose_free_slug(name, ())


def _find_in_entry(directory: Path, name: str, slug: str, *, is_link: bool) -> Iterator[DiscoveredRepository]:
    """The repositories of one directory entry: the entry itself, or one or two inside it."""
    entry = directory / name
    try:
        if is_link and not is_within(entry, directory):
            if _is_repository(entry):
                yield DiscoveredRepository(slug, entry, "it is a link to outside the directory")
            return
        subdirectories = ("",) if name.endswith(".git") else _REPOSITORY_SUBDIRECTORIES
        for path in (entry / subdirectory for subdirectory in subdirectories):
            if _is_repository(path):
                yield DiscoveredRepository(slug, path, _find_fault(entry, path), entry)
                if path == entry:
                    return  # directories inside a repository are its content
    except OSError as error:
        yield DiscoveredRepository(slug, entry, f"it cannot be read ({error.strerror})")


def _find_fault(entry: Path, repository: Path) -> str:
    try:
        str(repository).encode()
    except UnicodeEncodeError:
        return "its path is not UTF-8, which the registry needs"
    return "it references files outside its own directory" if has_outside_references(repository, entry) else ""


def _is_repository(path: Path) -> bool:
    # Called for thousands of entries every few seconds: strings are many times faster here than Path objects.
    root = str(path)
    dot_git = get_file_type(f"{root}/.git")
    if dot_git == stat.S_IFDIR:
        return bool(get_file_type(f"{root}/.git/HEAD"))
    return dot_git == stat.S_IFREG or (
        bool(get_file_type(f"{root}/HEAD")) and get_file_type(f"{root}/objects") == stat.S_IFDIR
    )
