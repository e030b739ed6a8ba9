"""What can happen to files while nobody looks."""

import os
from pathlib import Path
from random import Random

KINDS = ("CURRENT", "index", "index-wal", "index-shm", "vectors", "words", "lock", "leftover", "registry")


def kind_of(file: Path) -> str:
    """Which of the product's kinds of files this is."""
    name = file.name
    if name.startswith("registry"):
        return "registry"
    if name.endswith((".writing", ".making")) or name.startswith("CURRENT."):
        return "leftover"
    for ending, kind in (("-wal", "index-wal"), ("-shm", "index-shm"), (".sqlite", "index"), (".lock", "lock")):
        if name.endswith(ending):
            return kind
    return next((kind for kind in ("vectors", "words", "CURRENT") if name.startswith(kind)), "other")


def harm(files: list[Path], rng: Random) -> list[str]:
    """Damage one to three of these files, each kind as likely as the others, and say what was done."""
    done = []
    for _ in range(rng.randrange(1, 4)):
        there = sorted(file for file in files if file.exists())
        kinds = sorted({kind_of(file) for file in there})
        if not kinds:
            break
        kind = rng.choice(kinds)
        blow = rng.choice((truncate, flip, flip, zero, delete, garble))
        blow(rng.choice([file for file in there if kind_of(file) == kind]), rng)
        done.append(f"{blow.__name__} {kind}")
    return done


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
