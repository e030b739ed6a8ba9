"""The generations of one wiki's index: which files there are, which one is published, what the others were begun from.

CURRENT names the published one. Where it is lost, damaged, or names a file that is not there, the newest generation
that stands for a revision is the published one: what is good is never given up for a lost name. A generation that is
not published yet has a small file beside it that says what it is being made from, so that who finds it after a crash
knows whether to go on with it.
"""

import os
import re
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from wikiholt.errors import StorageError, WikiholtError
from wikiholt.regular_files import NotRegularFile, read_regular
from wikiholt.storage.sqlite.index import SqliteIndex

_DIGITS = 6
_NUMBER_PATTERN = re.compile(r"(?:^|-)g(\d{6})[.-]")
_ORIGIN_SUFFIX = ".from"


class GenerationOrigin(StrEnum):
    """What a generation that is not published yet is made from."""

    SCRATCH = "nothing"
    PREVIOUS = "before"
    """Vectors of the published one are taken over."""
    BACKUP = "backup"


class GenerationFiles:
    """Bound to one wiki's directory, which need not be there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_file(self, number: int) -> Path:
        return self._directory / f"g{number:0{_DIGITS}d}.sqlite"

    def list_numbers(self) -> list[int]:
        found = self._directory.glob("g??????.sqlite")
        return sorted(int(file.stem[1:]) for file in found if file.stem[1:].isdigit())

    def find_published(self) -> int | None:
        """The published one; a number whose file is not there only where nothing could take its place."""
        named = self._read_current()
        while named is None or not self.get_file(named).exists():
            again = self._read_current()
            if again == named:
                return self._find_replacement(named)
            named = again  # another was published, and this one swept away, between the two looks
        return named

    def recover_published(self) -> bool:
        """Have CURRENT name the published one where it does not; whether it did not. For the writer."""
        published = self.find_published()
        if published is None or published == self._read_current() or not self.get_file(published).exists():
            return False
        self.publish(published)
        return True

    def is_usable(self, number: int, *, full: bool = False) -> bool:
        """Whether that one can be opened and stands for a revision; `checked` reads every byte of it."""
        try:
            index = SqliteIndex(self.get_file(number), self._directory.name)
        except WikiholtError:
            return False
        try:
            return index.get_state().revision is not None and not (full and index.check())
        except WikiholtError:
            return False
        finally:
            index.close()

    def find_unused_number(self) -> int:
        """A number no file here bears, set aside or not: a cache of one index must never fit another."""
        names = (file.name for file in self._directory.rglob("*"))
        return max((int(found[1]) for name in names if (found := _NUMBER_PATTERN.search(name))), default=0) + 1

    def write_origin(self, number: int, origin: GenerationOrigin) -> None:
        """Say what a generation that is about to be made, or gone on with, is made from."""
        self._get_origin_file(number).write_text(origin)

    def read_origin(self, number: int) -> GenerationOrigin | None:
        """What it was begun from; None where that is not known."""
        try:
            return GenerationOrigin(read_regular(self._get_origin_file(number)).decode())
        except (OSError, ValueError):
            return None

    def remove_leftovers(self) -> None:
        """Remove what says where published ones came from, and a copy whose restoring never came to its end."""
        published = self.find_published()
        for file in list(self._directory.glob(f"g??????.sqlite{_ORIGIN_SUFFIX}")):
            number = int(file.name[1 : 1 + _DIGITS])
            if published is not None and number > published and self.read_origin(number) is GenerationOrigin.BACKUP:
                self.remove(number)
            elif published is None or number <= published or not self.get_file(number).exists():
                file.unlink(missing_ok=True)

    def publish(self, number: int) -> None:
        """Publish that one, in one step."""
        current = self._directory / "CURRENT"
        for leftover in current.parent.glob("CURRENT.*"):
            leftover.unlink(missing_ok=True)
        fresh = current.with_name(f"CURRENT.{os.getpid()}")
        with fresh.open("w") as out:
            out.write(f"{number}\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(current)
        descriptor = os.open(current.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(OSError):
            self._get_origin_file(number).unlink(missing_ok=True)

    def remove(self, number: int) -> None:
        """Remove one with its caches; what it was begun from goes last."""
        for pattern in (f"g{number:06d}.sqlite*", f"*-g{number:06d}-*"):
            for file in sorted(self._directory.glob(pattern)):
                file.unlink(missing_ok=True)

    def quarantine(self, directory: Path) -> None:
        """Move the published one, and every other that is not whole, to that directory; the newest of the rest, if
        there is one, is published in its place."""
        published = self.find_published()
        rest = [number for number in self.list_numbers() if number != published and self.is_usable(number, full=True)]
        for file in list(self._directory.glob("g??????.sqlite*")):
            if not any(file.name.startswith(self.get_file(number).name) for number in rest):
                file.rename(directory / file.name)
        if rest:
            self.publish(rest[-1])
        else:
            (self._directory / "CURRENT").unlink(missing_ok=True)

    def _read_current(self) -> int | None:
        """The number in CURRENT, if there is one."""
        try:
            text = read_regular(self._directory / "CURRENT").decode()
        except (FileNotFoundError, NotADirectoryError, NotRegularFile, UnicodeDecodeError):
            return None
        except OSError as error:
            raise StorageError(
                f"the data directory cannot be read ({error.strerror})", hint="check its permissions and the disk"
            ) from error
        number = text.strip()
        return int(number) if number.isascii() and number.isdigit() and len(number) <= _DIGITS else None

    def _find_replacement(self, named: int | None) -> int | None:
        """What is published where CURRENT does not lead to it."""
        there = self.list_numbers()
        standing = next((number for number in reversed(there) if self.is_usable(number)), None)
        if standing is not None or named is not None:
            return named if standing is None else standing
        return there[0] if there else None

    def _get_origin_file(self, number: int) -> Path:
        file = self.get_file(number)
        return file.with_name(file.name + _ORIGIN_SUFFIX)
