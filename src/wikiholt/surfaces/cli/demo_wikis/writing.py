"""Writes the demo wikis as real git repositories, whole or not at all."""

import secrets
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from wikiholt.errors import InvalidSource, SourceCorrupt, SourceError
from wikiholt.sources.command import build_environment
from wikiholt.sources.git import GitSource
from wikiholt.surfaces.cli.demo_wikis.histories import HISTORIES, PATHS_IN_WIKI, DemoCommit

_GIT_TIMEOUT_S = 60


def write_demo_wikis(directory: Path) -> dict[str, Path]:
    """Make the demo wikis below a directory, by slug; one that is there already is left as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    repositories = {slug: directory / slug for slug in HISTORIES}
    for slug, repository in repositories.items():
        if not _exists(repository):
            _write_repository(slug, repository)
    return repositories


def _exists(repository: Path) -> bool:
    if not repository.exists() or (repository.is_dir() and not any(repository.iterdir())):
        return False
    try:
        GitSource(repository).get_head()
    except (SourceError, InvalidSource) as error:
        raise InvalidSource(
            f"{repository} is in the way of a demo wiki.", hint="Move it away, or choose another directory."
        ) from error
    return True


def _write_repository(slug: str, repository: Path) -> None:
    draft = repository.with_name(f".{slug}.{secrets.token_hex(8)}")
    try:
        draft.mkdir()
        _run_git(draft, "init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha1")
        stream = b"".join(_format_commit(slug, step) for step in HISTORIES[slug])
        _run_git(draft, "fast-import", "--quiet", stdin=stream)
        _run_git(draft, "reset", "--quiet", "--hard")
        _move_repository(draft, repository)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move_repository(draft: Path, repository: Path) -> None:
    try:
        draft.rename(repository)
    except OSError:
        # Another process may have been faster; its repository is as good.
        if not _exists(repository):
            raise


def _format_commit(slug: str, step: DemoCommit) -> bytes:
    """One commit in the language of `git fast-import`."""
    first, _, last = step.author.partition(" ")
    person = f"{step.author} <{first.lower()}.{last.lower()}@example.org> {step.timestamp} +0000"
    lines = [
        b"commit refs/heads/main\n",
        f"author {person}\ncommitter {person}\n".encode(),
        _format_data(step.message.encode()),
    ]
    lines += [f"R {_quote_path(old)} {_quote_path(new)}\n".encode() for old, new in step.renamed.items()]
    for page in step.pages:
        lines += [f"M 100644 inline {_quote_path(PATHS_IN_WIKI.get(page, page))}\n".encode(), _format_data(_read_page_text(slug, page, step))]
    return b"".join([*lines, b"\n"])


def _read_page_text(slug: str, page: str, step: DemoCommit) -> bytes:
    text = files(__package__).joinpath(slug, *page.split("/")).read_text("utf-8")
    if page not in step.ends_before:
        return text.encode()
    before, found, _ = text.partition(f"\n{step.ends_before[page]}\n")
    if not found:
        raise ValueError(f"{page} has no heading {step.ends_before[page]}")
    return before.encode()


def _format_data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def _quote_path(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _run_git(directory: Path, *arguments: str, stdin: bytes = b"") -> None:
    command = ["git", "-c", "safe.directory=*", "-c", "core.autocrlf=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            input=stdin,
            capture_output=True,
            env=build_environment(),
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise SourceCorrupt("Git is not installed.", hint="Install git and make sure it is on the PATH.") from error
    except subprocess.TimeoutExpired as error:
        raise SourceCorrupt(f"`git {arguments[0]}` did not end.", hint="Is the disk very slow?") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise SourceCorrupt(f"`git {arguments[0]}` failed: {said}", hint="Is there room on the disk?")
