"""What can happen to files while nobody looks, and which kinds of files there are for it to happen to."""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

_ID = r"wikis/[a-z0-9]{8,64}"
_SQLITE = r"(?:-wal|-shm|-journal)?"
_PATTERNS = {
    "settings": r"wikiholt\.toml",
    "registry": r"registry\.sqlite",
    "registry-wal": r"registry\.sqlite-wal",
    "registry-shm": r"registry\.sqlite-shm",
    "registry-seal": r"registry\.sqlite-seal",
    "registry set aside": rf"broken-[^/]+-registry\.sqlite{_SQLITE}",
    "CURRENT": rf"{_ID}/CURRENT",
    "index": rf"{_ID}/g\d{{6}}\.sqlite",
    "index-wal": rf"{_ID}/g\d{{6}}\.sqlite-wal",
    "index-shm": rf"{_ID}/g\d{{6}}\.sqlite-shm",
    "origin": rf"{_ID}/g\d{{6}}\.sqlite\.from",
    "vectors": rf"{_ID}/vectors-g\d+-v\d+\.[a-z]+",
    "words": rf"{_ID}/words-g\d+-v\d+\.[a-z]+",
    "lock": rf"{_ID}/(?:write|mirror)\.lock",
    "job": rf"{_ID}/reindex\.json",
    "health": rf"{_ID}/health\.json",
    "desk": rf"{_ID}/activity\.json",
    "queries": rf"{_ID}/queries\.sqlite(?:-journal)?",
    "set aside": rf"{_ID}/broken-[^/]+/g\d{{6}}\.sqlite[^/]*",
    "backup": r"backups/[a-z0-9]{12,64}/\d{8}T[^/]+\.sqlite",
    "registry backup": r"backups/registry/\d{8}T[^/]+\.sqlite",
    "mirror pack": rf"{_ID}/mirror\.git/objects/.*",
    "mirror ref": rf"{_ID}/mirror\.git/(?:refs/.*|packed-refs)",
    "mirror HEAD": rf"{_ID}/mirror\.git/HEAD",
    "mirror other": rf"{_ID}/mirror\.git/.*",
}
_LEFTOVER_PATTERNS = (
    rf"{_ID}/CURRENT\.\d+",
    rf"{_ID}/g\d{{6}}\.sqlite\.making{_SQLITE}",
    rf"{_ID}/[^/]+\.writing",
    rf"{_ID}/(?:reindex|health)\.json\.[0-9a-f]+",
    rf"{_ID}/mirror\.new/.*",
    r"wikis/\.dropped-[^/]+/.*",
    rf"backups/[a-z0-9]+/\.making-[0-9a-f]+\.sqlite{_SQLITE}",
    r"backups/\.dropped-[^/]+/.*",
    rf"\.registry\.sqlite\.[0-9a-f]+{_SQLITE}",
)
LEFTOVER = "leftover"
"""The kind of what only a killed process leaves behind."""
FILE_KINDS = (*_PATTERNS, LEFTOVER)


def get_file_kind(file: Path, data: Path) -> str | None:
    """Which of the product's kinds of files this is; None for one the gate has not heard of."""
    name = file.relative_to(data).as_posix()
    if any(re.fullmatch(pattern, name) for pattern in _LEFTOVER_PATTERNS):
        return LEFTOVER
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, name)), None)


def find_unknown_files(data: Path) -> list[str]:
    """Files of a data directory that are of no kind the gate knows."""
    return [str(file.relative_to(data)) for file in list_files(data) if get_file_kind(file, data) is None]


def list_files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())


def damage_files(files: Iterable[Path], data: Path, rng: Random, round_number: int) -> dict[Path, str]:
    """Damage one to three of these files, each kind as likely as the others, and say what was done.

    The first kind goes by turns, so that in the long run every one is hit.
    """
    there = list(files)
    done: dict[Path, str] = {}
    for number in range(rng.randrange(1, 4)):
        kinds = sorted({kind for file in there if file.exists() and (kind := get_file_kind(file, data))})
        if not kinds:
            break
        kind = rng.choice(kinds) if number else kinds[round_number % len(kinds)]
        chosen = rng.choice([file for file in there if file.exists() and get_file_kind(file, data) == kind])
        done[chosen] = f"{damage_file(chosen, rng)} {kind}"
    return done


def damage_file(file: Path, rng: Random) -> str:
    """Do one kind of damage to one file, and name it."""
    blow = rng.choice((truncate, flip, flip, zero, delete, garble))
    file.chmod(0o644)
    blow(file, rng)
    return blow.__name__


def truncate(file: Path, rng: Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size + 1))


def flip(file: Path, rng: Random) -> None:
    """Turn over a few bits anywhere in the file."""
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 8, 200)) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def zero(file: Path, rng: Random) -> None:
    """Put zeroes in the place of a block, as a torn write or a lost sector does."""
    size = file.stat().st_size
    start = rng.randrange(size + 1) // 4096 * 4096
    with file.open("r+b") as out:
        out.seek(start)
        out.write(bytes(min(size - start, rng.choice((512, 4096, 65536, size)))))


def delete(file: Path, rng: Random) -> None:
    file.unlink()


def garble(file: Path, rng: Random) -> None:
    """Put noise in the place of all of it."""
    file.write_bytes(rng.randbytes(rng.choice((0, 1, 100, max(1, file.stat().st_size)))))


def clear(file: Path, rng: Random) -> None:
    """Leave an empty file."""
    file.write_bytes(b"")


def make_directory(file: Path, rng: Random) -> None:
    """Put a directory in the place of the file, empty or not."""
    file.unlink()
    file.mkdir()
    if rng.random() < 0.5:
        (file / "inside").write_bytes(b"something")


def make_link(file: Path, rng: Random) -> None:
    """Put a symbolic link in the place of the file: to nothing, to itself, or to a copy of it that is not whole."""
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
    """Put a named pipe in the place of the file: whoever opens it to read may wait for ever."""
    file.unlink()
    os.mkfifo(file)


Blow = Callable[[Path, Random], None]
CONTENT: tuple[Blow, ...] = (truncate, flip, zero, garble, clear, delete)
"""What can happen to what a file holds."""
OTHER_FILE: tuple[Blow, ...] = (make_directory, make_link, make_pipe)
"""What can be found where a file should be."""
