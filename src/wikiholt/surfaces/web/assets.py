"""The page's own files, read once: templates, and what browsers keep for ever under an address with their version."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

IMMUTABLE_CACHE_CONTROL = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORT_PATTERN = re.compile(rb'\bfrom "\./([\w.-]+)"')


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """All files; `version` changes whenever one of them does."""

    version: str
    files: dict[str, StaticFile]
    templates: dict[str, Template]

    def find_imports(self, script: str) -> list[str]:
        """What a script imports, directly or not, so that a browser can be told to fetch all of it at once."""
        found: set[str] = set()
        waiting = [script]
        while waiting:
            imported = {name.decode() for name in _IMPORT_PATTERN.findall(self.files[waiting.pop()].data)}
            waiting.extend(imported - found)
            found |= imported
        return sorted(found)

    def get_cache_control(self, version: str) -> str:
        """How long a browser may keep a file that it asked for under this version.

        An open tab may still ask for the files of the version before: it gets today's, and keeps them for this once.
        """
        return IMMUTABLE_CACHE_CONTROL if version == self.version else "no-store"


@cache
def load_static_files() -> StaticFiles:
    """Every file of static/."""
    return read_static_files(get_static_directory())


def get_static_directory() -> Traversable:
    """The folder of the files, for pages of another surface that are made of the same parts."""
    return files(__package__).joinpath("static")


def read_static_files(*directories: Traversable) -> StaticFiles:
    """The files of these folders; one of a later folder takes the place of its namesake in an earlier one."""
    found = {file.name: file.read_bytes() for folder in directories for file in folder.iterdir() if file.is_file()}
    digest = blake2b(digest_size=8)
    served: dict[str, StaticFile] = {}
    templates: dict[str, Template] = {}
    for name, data in sorted(found.items()):
        digest.update(name.encode() + b"\0" + data)
        kind = "." + name.rpartition(".")[2]
        if kind in _MEDIA_TYPES:
            served[name] = StaticFile(data, _MEDIA_TYPES[kind])
        elif kind == ".html":
            templates[name.removesuffix(".html")] = Template(data.decode())
    return StaticFiles(digest.hexdigest(), served, templates)
