"""Ways to damage a file, and the kinds of files in a data directory."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

_ID = r"wikis/[a-z0-9]{8,64}(?:/past/[0-9a-f]{40}/[a-z0-9]{8,64})?"
"""The directory of an index: a wiki's own, or that of one of its past commits."""
_SQLITE = r"(?:-wal|-shm|-journal)?"
_PATTERNS = {
    "settings": r"wikiholt\.toml",
    "owner link": r"owner-link",
    "registry": r"registry\.sqlite",
    "registry-journal": r"registry\.sqlite-journal",
    "revoked list": r"(?:backups/registry/)?revoked",
    "revoked list draft": r"(?:backups/registry/)?\.revoked",
    "registry set aside": rf"broken-[^/]+-registry\.sqlite{_SQLITE}",
    "CURRENT": rf"{_ID}/CURRENT",
    "index": rf"{_ID}/g\d{{6}}\.sqlite",
    "index-wal": rf"{_ID}/g\d{{6}}\.sqlite-wal",
    "index-shm": rf"{_ID}/g\d{{6}}\.sqlite-shm",
    "origin": rf"{_ID}/g\d{{6}}\.sqlite\.from",
    "vectors": rf"{_ID}/g\d{{6}}-\d+\.vectors",
    "codes": rf"{_ID}/g\d{{6}}-\d+\.(?:exact|faiss)",
    "keywords": rf"{_ID}/g\d{{6}}\.keywords",
    "lock": rf"{_ID}/(?:write|mirror|files)\.lock",
    "job": rf"{_ID}/reindex\.json",
    "view use": r"wikis/[a-z0-9]{8,64}/past/[0-9a-f]{40}/used",
    "health": rf"{_ID}/health\.json",
    "history": rf"{_ID}/history\.json",
    "wanted": rf"{_ID}/wanted\.json",
    "background lock": r"background\.lock",
    "current activity": rf"{_ID}/activity\.json",
    "queries": rf"{_ID}/queries\.sqlite(?:-journal)?",
    "set aside": rf"{_ID}/broken-[^/]+/g\d{{6}}[.-][^/]*",
    "backup": r"backups/[a-z0-9]{12,64}/\d{8}T[^/]+\.sqlite",
    "registry backup": r"backups/registry/\d{8}T[^/]+\.sqlite",
    "files": rf"{_ID}/files\.sqlite(?:-journal)?",
    "mirror pack": rf"{_ID}/mirror\.git/objects/.*",
    "mirror ref": rf"{_ID}/mirror\.git/(?:refs/.*|packed-refs)",
    "mirror HEAD": rf"{_ID}/mirror\.git/HEAD",
    "mirror other": rf"{_ID}/mirror\.git/.*",
}
_LEFTOVER_PATTERNS = (
    rf"{_ID}/CURRENT\.\d+",
    rf"{_ID}/g\d{{6}}\.sqlite\.making{_SQLITE}",
    rf"{_ID}/[^/]+\.writing",
    rf"{_ID}/(?:reindex|health|history|wanted)\.json\.[0-9a-f]+",
    rf"{_ID}/wikiholt\.(?:pending|new)",
    rf"{_ID}/mirror\.new/.*",
    r"wikis/(?:[a-z0-9]{8,64}/past/[0-9a-f]{40}/)?\.dropped-[^/]+/.*",
    rf"backups/[a-z0-9]+/\.making-[0-9a-f]+\.sqlite{_SQLITE}",
    r"backups/\.dropped-[^/]+/.*",
    rf"\.registry\.sqlite\.[0-9a-f]+{_SQLITE}",
)
LEFTOVER = "leftover"
"""The kind of files that only a killed process leaves behind."""
FILE_KINDS = (*_PATTERNS, LEFTOVER)


def get_file_kind(file: Path, data: Path) -> str | None:
    """The kind of a file; None for a kind that is not listed here."""
    name = file.relative_to(data).as_posix()
    if any(re.fullmatch(pattern, name) for pattern in _LEFTOVER_PATTERNS):
        return LEFTOVER
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, name)), None)


def find_unknown_files(data: Path) -> list[str]:
    """Files of a data directory that are of no listed kind."""
    return [str(file.relative_to(data)) for file in list_files(data) if get_file_kind(file, data) is None]


def list_files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())


def damage_file(file: Path, rng: Random) -> str:
    """Damage one file in a random way. Returns the name of the damage."""
    damage = rng.choice((truncate, flip, flip, zero, delete, garble))
    file.chmod(0o644)
    damage(file, rng)
    return damage.__name__


def truncate(file: Path, rng: Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size + 1))


def flip(file: Path, rng: Random) -> None:
    """Flip a few bits at random positions."""
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 8, 200)) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def zero(file: Path, rng: Random) -> None:
    """Overwrite a block with zeroes, like a torn write or a lost sector."""
    size = file.stat().st_size
    start = rng.randrange(size + 1) // 4096 * 4096
    with file.open("r+b") as out:
        out.seek(start)
        out.write(bytes(min(size - start, rng.choice((512, 4096, 65536, size)))))


def delete(file: Path, rng: Random) -> None:
    file.unlink()


def garble(file: Path, rng: Random) -> None:
    """Replace the content with random bytes."""
    file.write_bytes(rng.randbytes(rng.choice((0, 1, 100, max(1, file.stat().st_size)))))


def make_directory(file: Path, rng: Random) -> None:
    """Replace the file with a directory, empty or not."""
    file.unlink()
    file.mkdir()
    if rng.random() < 0.5:
        (file / "inside").write_bytes(b"something")


def make_link(file: Path, rng: Random) -> None:
    """Replace the file with a symbolic link: to nothing, to itself, or to a damaged copy."""
    copy = file.with_name(f"{file.name}.elsewhere")
    shutil.copyfile(file, copy)
    file.unlink()
    target = rng.choice((file.parent / "nowhere", file, copy))
    if target != copy:
        copy.unlink()
    else:
        flip(copy, rng)
    file.symlink_to(target)


def make_pipe(file: Path, rng: Random) -> None:
    """Replace the file with a named pipe: a process that opens it to read may wait forever."""
    file.unlink()
    os.mkfifo(file)


DamageFunction = Callable[[Path, Random], None]
OTHER_FILE: tuple[DamageFunction, ...] = (make_directory, make_link, make_pipe)
"""Something that is not a file, at the path of a file."""
