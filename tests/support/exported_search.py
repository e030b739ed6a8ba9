"""Reads the files of a static export, as its script does."""

import gzip
import re
from base64 import b64decode
from pathlib import Path


def find_parts(directory: Path) -> Path:
    """The data directory that the script of the export names."""
    script = (directory / "wikiholt.js").read_text(encoding="utf-8")
    (name,) = re.findall(r'"(parts-[0-9a-f]{16})/"', script)
    return directory / str(name)


def read_part(file: Path) -> bytes:
    found = re.fullmatch(rb'wikiholtPart\("([A-Za-z0-9+/=]+)"\)\n', file.read_bytes())
    assert found is not None, file
    return gzip.decompress(b64decode(found[1]))


def read_export(directory: Path) -> bytes:
    """All that the export says, each file after the other; fails if a file is missing or damaged."""
    parts = [read_part(file) for file in sorted(find_parts(directory).iterdir())]
    assert len(parts) > 3
    others = [file.read_bytes() for file in sorted(directory.iterdir()) if file.is_file()]
    return b"\n".join([*parts, *others])
