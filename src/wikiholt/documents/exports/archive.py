"""Reads the members of a zip archive that is not trusted: names, sizes and contents are checked."""

import lzma
import re
import stat
import tempfile
import weakref
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from wikiholt.documents.exports.items import ExportProblem
from wikiholt.errors import InvalidImport

_MAX_MEMBER_BYTES = 64 * 1024**2
_MAX_TOTAL_BYTES = 16 * 1024**3
"""Unpacked bytes; an archive of a few megabytes can expand to terabytes."""
_BLOCK_BYTES = 1 << 20
_DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError)
_MAX_MEMBERS = 500_000
_UTF8_NAME = 0x800
_JUNK = re.compile(r"(?:^|/)(?:__MACOSX/|\.DS_Store$|Thumbs\.db$|desktop\.ini$)")
_MIN_YEAR = 1981
"""Programs that do not know the date of a member write 1980."""


class UnreadableMember(Exception):
    """Why a member cannot be read."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive; `name` is a relative path without `..`."""

    name: str
    info: zipfile.ZipInfo

    @property
    def date(self) -> str:
        """When the file was changed, as an ISO date without a time zone; empty if unknown."""
        if self.info.date_time[0] < _MIN_YEAR:
            return ""
        try:
            return datetime(*self.info.date_time).isoformat(sep=" ")  # noqa: DTZ001 - a zip has no time zone
        except ValueError:
            return ""


class ExportArchive:
    """The files of one archive. Raises InvalidImport if it cannot be opened."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        """Read the file, if there is one, instead of the path."""
        try:
            self._zip = zipfile.ZipFile(file or path)
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise InvalidImport(
                f"{path.name} is a damaged or incomplete zip archive ({error})", hint="export or download it again"
            ) from error
        if len(infos) > _MAX_MEMBERS:
            raise InvalidImport(f"{path.name} has more than {_MAX_MEMBERS:,} files", hint="export it in parts")
        self._remaining = _MAX_TOTAL_BYTES
        self.members: dict[str, Member] = {}
        self.problems: list[ExportProblem] = []
        for info in infos:
            name = _decode_name(info)
            if info.is_dir() or _JUNK.search(name):
                continue
            if fault := self._find_fault(name, info):
                self.problems.append(ExportProblem(name, fault))
            else:
                self.members[name] = Member(name, info)

    def _find_fault(self, name: str, info: zipfile.ZipInfo) -> str:
        if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name) or ".." in name.split("/"):
            return "its name leads out of the archive"
        if stat.S_ISLNK(info.external_attr >> 16):
            return "it is a symbolic link"
        if name in self.members:
            return "the archive contains two files with this name; the first is imported"
        return ""

    def read(self, member: Member) -> bytes:
        """The content. Raises UnreadableMember."""
        limit = min(_MAX_MEMBER_BYTES, self._remaining)
        try:
            with self._zip.open(member.info) as stream:
                data = stream.read(limit + 1)
        except NotImplementedError as error:
            raise UnreadableMember(
                "it is compressed by an unknown method; create the archive as a plain zip"
            ) from error
        except RuntimeError as error:
            raise UnreadableMember("it is encrypted with a password; create the archive without one") from error
        except _DAMAGES as error:
            raise UnreadableMember(f"it is damaged in the archive ({str(error) or 'it ends early'})") from error
        if len(data) > limit:
            raise UnreadableMember(
                f"it is larger than {_MAX_MEMBER_BYTES // 1024**2} MB"
                if limit == _MAX_MEMBER_BYTES
                else _make_size_fault()
            )
        self._remaining -= len(data)
        return data

    def open_nested(self, member: Member) -> "ExportArchive":
        """An archive in this archive. Raises InvalidImport."""
        with ExitStack() as on_error:
            file = on_error.enter_context(tempfile.TemporaryFile())
            try:
                with self._zip.open(member.info) as stream:
                    while block := stream.read(_BLOCK_BYTES):
                        self._remaining -= len(block)
                        if self._remaining < 0:
                            raise InvalidImport(
                                _make_size_fault(), hint="unpack it, and import its archives one by one"
                            )
                        file.write(block)
            except (*_DAMAGES, RuntimeError) as error:
                raise InvalidImport(f"{member.name} is damaged ({error})", hint="export it again") from error
            archive = ExportArchive(Path(member.name), file)
            weakref.finalize(archive, on_error.pop_all().close)
        return archive

    def find_root(self) -> str:
        """The folder, with a slash, that contains all members; empty if there is none."""
        tops = {name.partition("/")[0] for name in self.members}
        return f"{tops.pop()}/" if len(tops) == 1 and all("/" in name for name in self.members) else ""


def _make_size_fault() -> str:
    return f"the archive expands to more than {_MAX_TOTAL_BYTES // 1024**3} GB"


def _decode_name(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & _UTF8_NAME:
        return info.filename
    try:
        return info.filename.encode("cp437").decode()  # many programs write UTF-8 without saying so
    except UnicodeError:
        return info.filename
