"""Writes the demo wikis as real git repositories, whole or not at all."""

import secrets
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from wikiholt.errors import InvalidSource, SourceBroken, SourceError
from wikiholt.sources.command import clean_environment
from wikiholt.sources.git import GitSource
from wikiholt.surfaces.cli.demo_wikis.histories import HISTORIES, NAMES, Step

_TIMEOUT = 60


def write_demo_wikis(directory: Path) -> dict[str, Path]:
    """Make the demo wikis below a directory, by slug; one that is there already is left as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    repositories = {slug: directory / slug for slug in HISTORIES}
    for slug, repository in repositories.items():
        if not _is_there(repository):
            _write(slug, repository)
    return repositories


def _is_there(repository: Path) -> bool:
    if not repository.exists() or (repository.is_dir() and not any(repository.iterdir())):
        return False
    try:
        GitSource(repository).head()
    except (SourceError, InvalidSource) as error:
        raise InvalidSource(
            f"{repository} is in the way of a demo wiki.", hint="Move it away, or choose another directory."
        ) from error
    return True


def _write(slug: str, repository: Path) -> None:
    draft = repository.with_name(f".{slug}.{secrets.token_hex(8)}")
    try:
        draft.mkdir()
        _git(draft, "init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha1")
        stream = b"".join(_commit(slug, step) for step in HISTORIES[slug])
        _git(draft, "fast-import", "--quiet", stdin=stream)
        _git(draft, "reset", "--quiet", "--hard")
        _move(draft, repository)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, repository: Path) -> None:
    try:
        draft.rename(repository)
    except OSError:
        # Another process may have been faster; its repository is as good.
        if not _is_there(repository):
            raise


def _commit(slug: str, step: Step) -> bytes:
    """One commit in the language of `git fast-import`."""
    first, _, last = step.author.partition(" ")
    person = f"{step.author} <{first.lower()}.{last.lower()}@example.org> {step.moment} +0000"
    lines = [
        b"commit refs/heads/main\n",
        f"author {person}\ncommitter {person}\n".encode(),
        _data(step.message.encode()),
    ]
    lines += [f"R {_quoted(old)} {_quoted(new)}\n".encode() for old, new in step.renamed.items()]
    for page in step.pages:
        lines += [f"M 100644 inline {_quoted(NAMES.get(page, page))}\n".encode(), _data(_text(slug, page, step))]
    return b"".join([*lines, b"\n"])


def _text(slug: str, page: str, step: Step) -> bytes:
    text = files(__package__).joinpath(slug, *page.split("/")).read_text("utf-8")
    if page not in step.until:
        return text.encode()
    before, found, _ = text.partition(f"\n{step.until[page]}\n")
    if not found:
        raise ValueError(f"{page} has no heading {step.until[page]}")
    return before.encode()


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _git(directory: Path, *arguments: str, stdin: bytes = b"") -> None:
    command = ["git", "-c", "safe.directory=*", "-c", "core.autocrlf=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            input=stdin,
            capture_output=True,
            env=clean_environment(),
            timeout=_TIMEOUT,
            check=False,
        )
    except FileNotFoundError as error:
        raise SourceBroken("Git is not installed.", hint="Install git and make sure it is on the PATH.") from error
    except subprocess.TimeoutExpired as error:
        raise SourceBroken(f"`git {arguments[0]}` did not end.", hint="Is the disk very slow?") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise SourceBroken(f"`git {arguments[0]}` failed: {said}", hint="Is there room on the disk?")
