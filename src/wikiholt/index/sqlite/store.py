"""Indexes as files: one directory per wiki, one file per generation, and CURRENT naming the published one.

<root>/<wiki id>/CURRENT            the published generation's number
<root>/<wiki id>/g000001.sqlite     a generation (with .from beside it until it is published)
<root>/<wiki id>/g000001-1.vectors  its vectors (with .exact or .faiss beside it in a large wiki)
<root>/<wiki id>/write.lock         locked by the writing process
<root>/<wiki id>/g000001.keywords   its keyword cache, in a large wiki
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from wikiholt.domain.index import Recipe
from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, IndexUnavailable
from wikiholt.index.sqlite import schema, wiki_directory
from wikiholt.index.sqlite.connections import open_immutable, translate_os_errors
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.vectors import CodesChoice, choose_quantized
from wikiholt.index.sqlite.wiki_directory import GenerationFiles, GenerationOrigin, lock_file
from wikiholt.regular_files import is_irregular, make_quarantine_name, move_away

_UNFINISHED_FILE = re.compile(r"g\d{6}\.sqlite\.making|CURRENT\.\d+$")
_OWN_FILES = re.compile(
    r"CURRENT|(?:health|reindex|activity)\.json|g\d{6}\.sqlite(?:-wal|-shm|-journal|\.from)?"
    r"|queries\.sqlite(?:-journal)?|g\d{6}-\d+\.[a-z]+|g\d{6}\.keywords"
)
"""Names in a wiki's directory that must be regular files."""
_STALE_NOTE_S = 600.0


class SqliteStore:
    """An `IndexStore` in a directory of the local disk."""

    def __init__(self, root: Path, choose_codes: CodesChoice = choose_quantized) -> None:
        """`choose_codes` chooses how candidates for the nearest vectors of large wikis are found."""
        self._root = root
        self._choose_codes = choose_codes

    def get_directory(self, wiki_id: str) -> Path:
        wiki_directory.validate_wiki_id(wiki_id)
        return self._root / wiki_id

    def exists(self, wiki_id: str) -> bool:
        return self.get_directory(wiki_id).exists()

    def get_note(self, wiki_id: str, name: str) -> str | None:
        return wiki_directory.read_note(self.get_directory(wiki_id), name)

    def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
        wiki_directory.write_note(self.get_directory(wiki_id), name, text, create=create)

    def activity_lock(self, wiki_id: str) -> AbstractContextManager[Callable[[str], None]]:
        return wiki_directory.lock_activity(self.get_directory(wiki_id))

    def get_activity(self, wiki_id: str) -> str | None:
        return wiki_directory.read_activity(self.get_directory(wiki_id))

    def get_disk_bytes(self, wiki_id: str) -> int:
        return wiki_directory.get_directory_bytes(self.get_directory(wiki_id))

    def list_quarantined(self, wiki_id: str) -> Sequence[str]:
        return sorted(path.name for path in self.get_directory(wiki_id).glob("broken-*"))

    def create(self, wiki_id: str, recipe: Recipe) -> SqliteIndex:
        if self.get_published(wiki_id) is not None:
            return self.open(wiki_id)
        with translate_os_errors():
            self.get_directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
            generations = self._get_generations(wiki_id)
            generation = generations.find_unused_number()
            schema.create_index_file(generations.get_file(generation), wiki_id, generation, recipe)
            generations.publish(generation)
        return self.open(wiki_id)

    def open(self, wiki_id: str) -> SqliteIndex:
        while (generation := self.get_published(wiki_id)) is not None:
            try:
                return SqliteIndex(self._get_file(wiki_id, generation), wiki_id, choose_codes=self._choose_codes)
            except (IndexMissing, IndexCorrupt):
                if self.get_published(wiki_id) == generation:
                    raise
        raise IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`")

    def create_generation(self, wiki_id: str, recipe: Recipe, *, from_scratch: bool = False) -> SqliteIndex:
        generations = self._get_generations(wiki_id)
        origin = GenerationOrigin.SCRATCH if from_scratch else GenerationOrigin.PREVIOUS
        published = generations.find_published() or 0
        with translate_os_errors():
            for generation in reversed(generations.list_numbers()):
                if generation > published:
                    index = self._resume_generation(generations, wiki_id, generation, recipe, from_scratch=from_scratch)
                    if index is not None:
                        generations.write_origin(generation, origin)
                        return index
                    generations.remove(generation)
            generation = generations.find_unused_number()
            generations.write_origin(generation, origin)
            schema.create_index_file(generations.get_file(generation), wiki_id, generation, recipe)
        return SqliteIndex(generations.get_file(generation), wiki_id, choose_codes=self._choose_codes)

    def publish(self, wiki_id: str, generation: int) -> None:
        with translate_os_errors():
            self._get_generations(wiki_id).publish(generation)

    def remove_old_generations(self, wiki_id: str) -> None:
        generations = self._get_generations(wiki_id)
        published = generations.find_published()
        for generation in generations.list_numbers():
            if published is not None and generation < published:
                with translate_os_errors():
                    generations.remove(generation)

    def get_published(self, wiki_id: str) -> int | None:
        return self._get_generations(wiki_id).find_published()

    def recover_published(self, wiki_id: str) -> bool:
        with translate_os_errors():
            return self._get_generations(wiki_id).recover_published()

    @contextmanager
    def write_lock(self, wiki_id: str, timeout_s: float) -> Iterator[None]:
        with translate_os_errors():
            self.get_directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_file(self.get_directory(wiki_id) / "write.lock", timeout_s):
            self._remove_leftovers(wiki_id)
            yield

    def get_change_token(self, wiki_id: str) -> str:
        generations = self._get_generations(wiki_id)
        published = generations.find_published()
        name = generations.get_name(published or 0)
        parts = [str(published)]
        for suffix in ("", "-wal"):
            try:
                status = os.stat(name + suffix)  # noqa: PTH116 - strings, because this is done for every wiki
            except OSError:
                continue
            if status.st_size:  # readers create and remove an empty log
                parts.append(f"{status.st_size} {status.st_mtime_ns} {status.st_ino}")
        return ", ".join(parts)

    def quarantine(self, wiki_id: str, reason: str) -> str:
        name = make_quarantine_name(re.sub(r"[^a-z0-9]+", "-", reason.lower())[:40].strip("-"))
        directory = self.get_directory(wiki_id) / name
        with translate_os_errors():
            directory.mkdir()
            self._get_generations(wiki_id).quarantine(directory)
        return name

    def open_quarantined(self, wiki_id: str) -> SqliteIndex | None:
        for file in sorted(self.get_directory(wiki_id).glob("broken-*/g??????.sqlite"), reverse=True):
            with suppress(IndexUnavailable, Busy):
                return SqliteIndex(file, wiki_id, check=False)
        return None

    def open_backup(self, file: Path) -> SqliteIndex:
        return SqliteIndex(file, connect=open_immutable)

    def import_backup(self, wiki_id: str, file: Path) -> int:
        with translate_os_errors():
            self.get_directory(wiki_id).mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._get_generations(wiki_id).import_backup(file)

    def delete(self, wiki_id: str) -> Sequence[str]:
        directory = self.get_directory(wiki_id)
        # Renamed first, so that a crash never leaves an index with only some of its files.
        dropped = self._root / f".dropped-{wiki_id}"
        names = wiki_directory.list_files(directory)
        with translate_os_errors():
            if dropped.exists():
                shutil.rmtree(dropped)
            if directory.exists():
                directory.rename(dropped)
                shutil.rmtree(dropped)
        return names

    def list_wiki_ids(self) -> Sequence[str]:
        return wiki_directory.list_wiki_directories(self._root)

    def _remove_leftovers(self, wiki_id: str) -> None:
        """Remove unfinished files of killed writers. Notes need no lock, so only old temporary notes are removed."""
        with suppress(OSError):
            for file in self.get_directory(wiki_id).iterdir():
                if _OWN_FILES.fullmatch(file.name) and is_irregular(file, follow=file.suffix == ".sqlite"):
                    move_away(file)
                    continue
                is_stale_note = (
                    wiki_directory.TEMPORARY_NOTE.fullmatch(file.name)
                    and time.time() - file.stat().st_mtime > _STALE_NOTE_S
                )
                if is_stale_note or _UNFINISHED_FILE.match(file.name):
                    file.unlink(missing_ok=True)
            self._get_generations(wiki_id).remove_leftovers()

    def _get_file(self, wiki_id: str, generation: int) -> Path:
        return self._get_generations(wiki_id).get_file(generation)

    def _get_generations(self, wiki_id: str) -> GenerationFiles:
        return GenerationFiles(self.get_directory(wiki_id))

    def _resume_generation(
        self, files: GenerationFiles, wiki_id: str, generation: int, recipe: Recipe, *, from_scratch: bool
    ) -> SqliteIndex | None:
        """Open an unfinished generation if it can be resumed: same recipe, intact, and built from the same origin."""
        origin = files.read_origin(generation)
        if origin is GenerationOrigin.BACKUP or (from_scratch and origin is not GenerationOrigin.SCRATCH):
            return None
        try:
            index = SqliteIndex(files.get_file(generation), wiki_id, choose_codes=self._choose_codes)
        except IndexUnavailable:
            return None
        if index.recipe == recipe and not index.check():
            return index
        index.close()
        return None
