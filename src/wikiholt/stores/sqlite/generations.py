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

from wikiholt.errors import StorageRefused, WikiholtError
from wikiholt.plainfiles import NotPlain, read_plain
from wikiholt.stores.sqlite.index import SqliteIndex

_DIGITS = 6
_NUMBER = re.compile(r"(?:^|-)g(\d{6})[.-]")
_ORIGIN = ".from"


class Origin(StrEnum):
    """What a generation that is not published yet is made from."""

    NOTHING = "nothing"
    BEFORE = "before"
    """Vectors of the published one are taken over."""
    BACKUP = "backup"


class Generations:
    """Bound to one wiki's directory, which need not be there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def file(self, number: int) -> Path:
        return self._directory / f"g{number:0{_DIGITS}d}.sqlite"

    def all(self) -> list[int]:
        found = self._directory.glob("g??????.sqlite")
        return sorted(int(file.stem[1:]) for file in found if file.stem[1:].isdigit())

    def published(self) -> int | None:
        """The published one; a number whose file is not there only where nothing could take its place."""
        named = self._named()
        while named is None or not self.file(named).exists():
            again = self._named()
            if again == named:
                return self._instead(named)
            named = again  # another was published, and this one swept away, between the two looks
        return named

    def regain(self) -> bool:
        """Have CURRENT name the published one where it does not; whether it did not. For the writer."""
        published = self.published()
        if published is None or published == self._named() or not self.file(published).exists():
            return False
        self.point_at(published)
        return True

    def standing(self, number: int, *, checked: bool = False) -> bool:
        """Whether that one can be opened and stands for a revision; `checked` reads every byte of it."""
        try:
            index = SqliteIndex(self.file(number), self._directory.name)
        except WikiholtError:
            return False
        try:
            return index.state().revision is not None and not (checked and index.check())
        except WikiholtError:
            return False
        finally:
            index.close()

    def unused(self) -> int:
        """A number no file here bears, set aside or not: a cache of one index must never fit another."""
        names = (file.name for file in self._directory.rglob("*"))
        return max((int(found[1]) for name in names if (found := _NUMBER.search(name))), default=0) + 1

    def begin(self, number: int, origin: Origin) -> None:
        """Say what a generation that is about to be made, or gone on with, is made from."""
        self._origin_file(number).write_text(origin)

    def origin(self, number: int) -> Origin | None:
        """What it was begun from; None where that is not known."""
        try:
            return Origin(read_plain(self._origin_file(number)).decode())
        except (OSError, ValueError):
            return None

    def clear(self) -> None:
        """Remove what says where published ones came from, and a copy whose restoring never came to its end."""
        published = self.published()
        for file in list(self._directory.glob(f"g??????.sqlite{_ORIGIN}")):
            number = int(file.name[1 : 1 + _DIGITS])
            if published is not None and number > published and self.origin(number) is Origin.BACKUP:
                self.remove(number)
            elif published is None or number <= published or not self.file(number).exists():
                file.unlink(missing_ok=True)

    def point_at(self, number: int) -> None:
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
            self._origin_file(number).unlink(missing_ok=True)

    def remove(self, number: int) -> None:
        """Remove one with its caches; what it was begun from goes last."""
        for pattern in (f"g{number:06d}.sqlite*", f"*-g{number:06d}-*"):
            for file in sorted(self._directory.glob(pattern)):
                file.unlink(missing_ok=True)

    def set_aside(self, aside: Path) -> None:
        """Move the published one, and every other that is not whole, to that directory; the newest of the rest, if
        there is one, is published in its place."""
        published = self.published()
        rest = [number for number in self.all() if number != published and self.standing(number, checked=True)]
        for file in list(self._directory.glob("g??????.sqlite*")):
            if not any(file.name.startswith(self.file(number).name) for number in rest):
                file.rename(aside / file.name)
        if rest:
            self.point_at(rest[-1])
        else:
            (self._directory / "CURRENT").unlink(missing_ok=True)

    def _named(self) -> int | None:
        """The number in CURRENT, if there is one."""
        try:
            text = read_plain(self._directory / "CURRENT").decode()
        except (FileNotFoundError, NotADirectoryError, NotPlain, UnicodeDecodeError):
            return None
        except OSError as error:
            raise StorageRefused(
                f"the data directory cannot be read ({error.strerror})", hint="check its permissions and the disk"
            ) from error
        number = text.strip()
        return int(number) if number.isascii() and number.isdigit() and len(number) <= _DIGITS else None

    def _instead(self, named: int | None) -> int | None:
        """What is published where CURRENT does not lead to it."""
        there = self.all()
        standing = next((number for number in reversed(there) if self.standing(number)), None)
        if standing is not None or named is not None:
            return named if standing is None else standing
        return there[0] if there else None

    def _origin_file(self, number: int) -> Path:
        file = self.file(number)
        return file.with_name(file.name + _ORIGIN)
