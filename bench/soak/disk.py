"""The files of a data directory by kind; unexpected files are named."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wikiholt.interfaces.cli.local_client import SOCKET_NAME

_WIKI_FILES: Mapping[str, tuple[str, int]] = {
    r"CURRENT": ("index", 1),
    r"g\d+\.sqlite": ("index", 1),
    r"g\d+\.sqlite-(wal|shm)": ("log", 2),
    r"write\.lock": ("index", 1),
    r"vectors-g\d+-v\d+\.exact": ("cache", 1),
    r"g\d+\.keywords": ("cache", 1),
    r"reindex\.json|health\.json": ("job", 2),
}
"""Permitted files of a wiki's directory without a writer: pattern, kind and maximum number."""
_REGISTRY = re.compile(r"registry\.sqlite(-journal)?|revoked|sessions\.sqlite(-journal)?|wikiholt\.toml|registry\.lock")


@dataclass(slots=True)
class DiskUse:
    """Bytes and files by kind, and unexpected files."""

    bytes: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)

    def add(self, kind: str, file: Path) -> None:
        try:
            self.bytes[kind] += file.stat().st_size
        except FileNotFoundError:
            return
        self.files[kind] += 1


def check_files(data: Path, ids: set[str], kept: int) -> DiskUse:
    """Classify the data directory of wikis with these ids, with `kept` backups each."""
    disk = DiskUse()
    for file in sorted(data.rglob("*")):
        if file.is_dir():
            continue
        top, *rest = file.relative_to(data).parts
        if top in ("wikis", "backups") and len(rest) >= 2 and rest[0] not in ids | {"registry"}:
            disk.unexpected.append(f"{top}/(no wiki)/{'/'.join(rest[1:])}")
        elif top == "backups":
            disk.add("backup", file)
        elif not rest and _REGISTRY.fullmatch(top):
            disk.add("registry", file)
        elif top not in ("wikis", SOCKET_NAME):
            disk.unexpected.append("/".join((top, *rest)))
    for wiki_id in sorted(ids):
        _check_wiki(disk, data / "wikis" / wiki_id)
    for shelf in sorted(ids | {"registry"}):
        names = [file.name for file in (data / "backups" / shelf).glob("*")]
        whole = [name for name in names if re.fullmatch(r"[^.].*\.sqlite", name)]
        if len(whole) > kept + 1:
            disk.unexpected.append(f"backups: {len(whole)} where {kept} are kept")
        # A kill may leave one pending file until the next backup; more are a fault.
        if len(names) - len(whole) > 3:
            disk.unexpected.append(f"backups: {len(names) - len(whole)} other files")
    return disk


def _check_wiki(disk: DiskUse, directory: Path) -> None:
    seen: Counter[str] = Counter()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        name = str(file.relative_to(directory))
        pattern = next((pattern for pattern in _WIKI_FILES if re.fullmatch(pattern, name)), None)
        if pattern is None:
            disk.unexpected.append(f"wikis/…/{name}")
            continue
        kind, most = _WIKI_FILES[pattern]
        seen[pattern] += 1
        disk.add(kind, file)
        if seen[pattern] > most:
            disk.unexpected.append(f"wikis/…/{name}: more than {most}")
