"""A check of everything Wikiholt stands on, with what to do about each fault found."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.handle import WikiHandle
from wikiholt.model import Wiki
from wikiholt.ports import Embedder
from wikiholt.service import Service

_LITTLE_DISK = 500 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` says what to do where it is not well."""

    subject: str
    well: bool
    detail: str
    advice: str = ""


def examine(service: Service, data: Path) -> Iterator[Finding]:
    """Look at git, model, disk, permissions and every wiki; changes nothing."""
    yield _git()
    yield _model(service.workshop.embedder)
    yield _directory(data)
    yield _disk(data)
    wikis: Sequence[Wiki] = ()
    try:
        wikis = service.wikis()
    except WikiholtError as error:
        yield Finding("registry", False, error.message, error.hint)
    else:
        yield Finding("registry", True, "1 wiki" if len(wikis) == 1 else f"{len(wikis)} wikis")
    for wiki in wikis:
        try:
            yield from _wiki(service.wiki(wiki.slug))
        except WikiholtError as error:
            yield Finding(f"wiki {wiki.slug}", False, error.message, error.hint)
    known = {wiki.id for wiki in wikis}
    for stray in service.workshop.store.ids():
        if stray not in known:
            place = service.workshop.store.directory(stray)
            yield Finding("strays", False, f"{place} belongs to no wiki", "delete it if nothing else put it there")


def _git() -> Finding:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", False, f"git does not run ({error})", "install git and put it on PATH")
    return Finding("git", True, done.stdout.strip())


def _model(embedder: Callable[[], Embedder]) -> Finding:
    try:
        model = embedder()
        model.prove()
    except WikiholtError as error:
        return Finding("model", False, error.message, error.hint)
    return Finding("model", True, f"{model.fingerprint}, {model.dimensions} dimensions, gives the vectors it should")


def _directory(data: Path) -> Finding:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("data directory", False, f"{nearest} cannot be written", "change its owner, or choose --data")
    made = "" if data.exists() else " (will be made)"
    return Finding("data directory", True, f"{data}{made}")


def _disk(data: Path) -> Finding:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < _LITTLE_DISK:
        return Finding("disk", False, text, "make room: an index needs about four times the size of its pages")
    return Finding("disk", True, text)


def _wiki(handle: WikiHandle) -> Iterator[Finding]:
    subject = f"wiki {handle.wiki.slug}"
    status = handle.status()
    if status.error is not None:
        yield Finding(subject, False, status.error.message, status.error.hint)
    if status.state is None:
        return
    faults = handle.check()
    if faults:
        handle.examine()  # what it finds is remembered, so that the next sync mends it
    again = f"run `wikiholt sync {handle.wiki.slug}`"
    for fault in faults:
        yield Finding(subject, False, fault, f"{again}: it puts the damaged index aside and mends it")
    if status.stale and status.error is None:
        yield Finding(subject, False, "the index is behind HEAD", again)
    if status.problems:
        first = status.problems[0]
        detail = f"{len(status.problems)} pages could not be indexed; the first: {first.file}: {first.detail}"
        yield Finding(subject, False, detail, f"see `wikiholt status {handle.wiki.slug}` and mend the pages")
    elif not faults and not status.stale:
        counts = f"pages: {status.state.pages}, chunks: {status.state.chunks}"
        yield Finding(subject, True, f"whole and at HEAD; {counts}")
