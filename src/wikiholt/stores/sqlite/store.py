"""Indexes as files: a directory a wiki, a file a generation, and a CURRENT file that names the published one.

<root>/<wiki id>/CURRENT            the published generation's number
<root>/<wiki id>/g000001.sqlite     a generation (with .from beside it until it is published)
<root>/<wiki id>/write.lock         held by the one process that writes; says how the last one left the index (marks.py)
<root>/<wiki id>/vectors-…          caches, derived from the above
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from wikiholt.errors import Busy, IndexCorrupt, IndexFault, IndexMissing, InvalidSlug
from wikiholt.model import Proof, Recipe
from wikiholt.plainfiles import is_odd, move_away
from wikiholt.stores.sqlite import copies, notes, schema
from wikiholt.stores.sqlite.faults import stored, translated
from wikiholt.stores.sqlite.generations import Generations, Origin
from wikiholt.stores.sqlite.index import SqliteIndex
from wikiholt.stores.sqlite.lock import holding, is_held
from wikiholt.stores.sqlite.marks import Mark, bytes_of, checksum_of, read_mark, write_mark

_ID = re.compile(r"[a-z0-9]{8,64}")
_HALF_MADE = re.compile(r"g\d{6}\.sqlite\.making|CURRENT\.\d+$")
_OWN = re.compile(
    r"CURRENT|(?:health|reindex|activity)\.json|g\d{6}\.sqlite(?:-wal|-shm|-journal|\.from)?"
    r"|queries\.sqlite(?:-journal)?|(?:vectors|words)-g\d+-v\d+\.[a-z]+"
)
"""Names in a wiki's directory that only regular files may have."""
_LONG_AGO = 600.0
_READ_AT_ONCE_BYTES = 8 << 20
"""Up to this size a reader who finds an index changed reads all of it before it answers: half a second at most."""


class SqliteStore:
    """A `Store` in a directory of the local disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._compared: dict[str, tuple[str, float]] = {}
        """By wiki: the stamp its index had when it was last found right, and when that was."""

    def directory(self, wiki_id: str) -> Path:
        if not _ID.fullmatch(wiki_id):
            raise InvalidSlug("that is not the id of a wiki", hint="ids come from the registry, never from input")
        return self._root / wiki_id

    def holds(self, wiki_id: str) -> bool:
        return self.directory(wiki_id).exists()

    def note(self, wiki_id: str, name: str) -> str | None:
        return notes.read(self.directory(wiki_id), name)

    def keep_note(self, wiki_id: str, name: str, text: str, *, make: bool = False) -> None:
        notes.keep(self.directory(wiki_id), name, text, make=make)

    def sitting(self, wiki_id: str) -> AbstractContextManager[Callable[[str], None]]:
        return notes.sitting(self.directory(wiki_id))

    def seated(self, wiki_id: str) -> str | None:
        return notes.seated(self.directory(wiki_id))

    def disk_bytes(self, wiki_id: str) -> int:
        total = 0
        for file in self.directory(wiki_id).rglob("*"):
            with suppress(OSError):  # a writer at work makes and removes some meanwhile
                total += file.stat().st_size if file.is_file() else 0
        return total

    def aside(self, wiki_id: str) -> Sequence[str]:
        return sorted(path.name for path in self.directory(wiki_id).glob("broken-*"))

    def create(self, wiki_id: str, recipe: Recipe) -> SqliteIndex:
        if self.published(wiki_id) is not None:
            return self.open(wiki_id)
        with stored():
            self.directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
            known = self._generations(wiki_id)
            generation = known.unused()
            schema.create(known.file(generation), wiki_id, generation, recipe)
            known.point_at(generation)
        return self.open(wiki_id)

    def open(self, wiki_id: str) -> SqliteIndex:
        while (generation := self.published(wiki_id)) is not None:
            try:
                return SqliteIndex(self._file(wiki_id, generation), wiki_id)
            except IndexMissing:
                if self.published(wiki_id) == generation:
                    raise
        raise IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`")

    def new_generation(self, wiki_id: str, recipe: Recipe, *, afresh: bool = False) -> SqliteIndex:
        known = self._generations(wiki_id)
        origin = Origin.NOTHING if afresh else Origin.BEFORE
        published = known.published() or 0
        with stored():
            for generation in reversed(known.all()):
                if generation > published:
                    begun = _resumed(known, wiki_id, generation, recipe, afresh=afresh)
                    if begun is not None:
                        known.begin(generation, origin)
                        return begun
                    known.remove(generation)
            generation = known.unused()
            known.begin(generation, origin)
            schema.create(known.file(generation), wiki_id, generation, recipe)
        return SqliteIndex(known.file(generation), wiki_id)

    def publish(self, wiki_id: str, generation: int) -> None:
        with stored():
            self._generations(wiki_id).point_at(generation)

    def sweep(self, wiki_id: str) -> None:
        known = self._generations(wiki_id)
        published = known.published()
        for generation in known.all():
            if published is not None and generation < published:
                with stored():
                    known.remove(generation)

    def published(self, wiki_id: str) -> int | None:
        return self._generations(wiki_id).published()

    def regain(self, wiki_id: str) -> bool:
        with stored():
            return self._generations(wiki_id).regain()

    @contextmanager
    def writing(self, wiki_id: str, timeout: float) -> Iterator[None]:
        with stored():
            self.directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        with holding(self.directory(wiki_id) / "write.lock", timeout):
            self._clear(wiki_id)
            yield
            if self.directory(wiki_id).exists():
                self._empty_log(wiki_id)
                self._leave_mark(wiki_id)

    def stamp(self, wiki_id: str) -> str:
        published = self.published(wiki_id)
        file = self._file(wiki_id, published or 0)
        parts = [str(published)]
        for ending in ("", "-wal"):
            try:
                found = file.with_name(file.name + ending).stat()
            except OSError:
                continue
            if found.st_size:  # an empty log comes and goes with every reader
                parts.append(f"{found.st_size} {found.st_mtime_ns} {found.st_ino}")
        return ", ".join(parts)

    def sealed(self, wiki_id: str) -> bool:
        return self._mark(wiki_id).stamp == self.stamp(wiki_id)

    def confirm(self, wiki_id: str, max_age_s: float = 0.0) -> Proof:
        generation, stamp = self.published(wiki_id), self.stamp(wiki_id)
        known, at = self._compared.get(wiki_id, ("", 0.0))
        if generation is None or (known == stamp and time.monotonic() - at < max_age_s):
            return Proof.NONE if generation is None else Proof.COMPARED
        mark, files = self._mark(wiki_id), self._files(wiki_id, generation)
        checksum = checksum_of(files) if mark.stamp != stamp or mark.checksum is not None else None
        if mark.stamp != stamp and is_held(self.directory(wiki_id) / "write.lock"):
            return Proof.NONE
        if mark == Mark(stamp, None):
            return Proof.TOO_LARGE
        if checksum is None or mark != Mark(stamp, checksum):
            # Nobody who may write left it so; but a bit may have changed where nothing lies. Reading all of it tells.
            if checksum is None or bytes_of(files) > _READ_AT_ONCE_BYTES:
                return Proof.CHANGED if self.stamp(wiki_id) == stamp else Proof.NONE
            self._require_whole(wiki_id, generation, stamp)
        self._compared[wiki_id] = (stamp, time.monotonic())
        return Proof.COMPARED

    def _require_whole(self, wiki_id: str, generation: int, stamp: str = "") -> None:
        """Read every byte; raises IndexCorrupt, unless a writer has changed the stamp meanwhile."""
        index = SqliteIndex(self._file(wiki_id, generation), wiki_id)
        try:
            faults = index.check()
        finally:
            index.close()
        if faults and (not stamp or self.stamp(wiki_id) == stamp):
            raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to build it again")

    def prove(self, wiki_id: str, *, fully: bool = False) -> None:
        generation = self.published(wiki_id)
        if generation is None or (not fully and self._as_left(wiki_id, generation)):
            return
        # Caches may stand for versions that a lost log took back, and that will be given out once more.
        for file in self.directory(wiki_id).glob(f"*-g{generation:06d}-*"):
            move_away(file)
        self._require_whole(wiki_id, generation)
        self._leave_mark(wiki_id)

    def _as_left(self, wiki_id: str, generation: int) -> bool:
        """Whether the files have the times, and where they are not too large the bytes, that their writer left."""
        mark, stamp = self._mark(wiki_id), self.stamp(wiki_id)
        if mark.stamp != stamp or mark.checksum is None:
            return mark.stamp == stamp
        return checksum_of(self._files(wiki_id, generation)) == mark.checksum

    def set_aside(self, wiki_id: str, why: str) -> str:
        word = re.sub(r"[^a-z0-9]+", "-", why.lower())[:40].strip("-")
        name = f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{word}"
        aside = self.directory(wiki_id) / name
        with stored():
            aside.mkdir()
            self._generations(wiki_id).set_aside(aside)
        return name

    def copy_at(self, file: Path) -> SqliteIndex:
        return SqliteIndex(file, connect=schema.connect_unchanging)

    def adopt(self, wiki_id: str, file: Path) -> int:
        with stored():
            self.directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
            known = self._generations(wiki_id)
            generation = known.unused()
            known.begin(generation, Origin.BACKUP)
            copies.take_in(file, known.file(generation), generation, wiki_id)
        return generation

    def drop(self, wiki_id: str) -> Sequence[str]:
        directory = self.directory(wiki_id)
        # Renamed first, so that a crash half way never leaves an index that opens with half its files.
        going = self._root / f".dropped-{wiki_id}"
        names = sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if not file.is_dir())
        with stored():
            if going.exists():
                shutil.rmtree(going)
            if directory.exists():
                directory.rename(going)
                shutil.rmtree(going)
        return names

    def ids(self) -> Sequence[str]:
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir() and _ID.fullmatch(entry.name))

    def _clear(self, wiki_id: str) -> None:
        """Remove what killed writers left half made. Notes may be written without the lock, so theirs must be old."""
        with suppress(OSError):
            for file in self.directory(wiki_id).iterdir():
                if _OWN.fullmatch(file.name) and is_odd(file, follow=file.suffix == ".sqlite"):
                    move_away(file)
                    continue
                old = notes.DRAFT.fullmatch(file.name) and time.time() - file.stat().st_mtime > _LONG_AGO
                if old or _HALF_MADE.match(file.name):
                    file.unlink(missing_ok=True)
            self._generations(wiki_id).clear()

    def _empty_log(self, wiki_id: str) -> None:
        """Bring what was written into the index file, so that no reader's leaving changes it after the mark."""
        file = self._file(wiki_id, self.published(wiki_id) or 0)
        try:
            if not file.with_name(file.name + "-wal").stat().st_size:
                return
        except OSError:
            return
        with suppress(IndexFault, Busy), closing(schema.connect(file)) as db, translated():
            db.execute("PRAGMA busy_timeout = 200")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _mark(self, wiki_id: str) -> Mark:
        """How the last writer left the index."""
        return read_mark(self.directory(wiki_id) / "write.lock")

    def _leave_mark(self, wiki_id: str) -> None:
        generation, stamp = self.published(wiki_id), self.stamp(wiki_id)
        checksum = checksum_of(self._files(wiki_id, generation or 0))
        write_mark(self.directory(wiki_id) / "write.lock", Mark(stamp, checksum))
        self._compared[wiki_id] = (stamp, time.monotonic())

    def _files(self, wiki_id: str, generation: int) -> list[Path]:
        """The files whose bytes are an index: the file itself and its log."""
        file = self._file(wiki_id, generation)
        return [file, file.with_name(file.name + "-wal")]

    def _file(self, wiki_id: str, generation: int) -> Path:
        return self._generations(wiki_id).file(generation)

    def _generations(self, wiki_id: str) -> Generations:
        return Generations(self.directory(wiki_id))


def _resumed(known: Generations, wiki_id: str, generation: int, recipe: Recipe, *, afresh: bool) -> SqliteIndex | None:
    """A generation that was begun, if it may be gone on with: one that is to take over nothing must have so far."""
    origin = known.origin(generation)
    if origin is Origin.BACKUP or (afresh and origin is not Origin.NOTHING):
        return None
    try:
        begun = SqliteIndex(known.file(generation), wiki_id)
    except IndexFault:
        return None
    if begun.recipe == recipe and not begun.check():
        return begun
    begun.close()
    return None
