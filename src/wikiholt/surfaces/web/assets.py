"""The page's own files, read once: templates, and what browsers keep for ever under an address with their version."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

FOR_EVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORTED = re.compile(rb'\bfrom "\./([\w.-]+)"')


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All files; `version` changes whenever one of them does."""

    version: str
    served: dict[str, Asset]
    templates: dict[str, Template]

    def modules(self, script: str) -> list[str]:
        """What a script imports, directly or not, so that a browser can be told to fetch all of it at once."""
        found: set[str] = set()
        waiting = [script]
        while waiting:
            imported = {name.decode() for name in _IMPORTED.findall(self.served[waiting.pop()].data)}
            waiting.extend(imported - found)
            found |= imported
        return sorted(found)

    def kept(self, version: str) -> str:
        """How long a browser may keep a file that it asked for under this version.

        An open tab may still ask for the files of the version before: it gets today's, and keeps them for this once.
        """
        return FOR_EVER if version == self.version else "no-store"


@cache
def assets() -> Assets:
    """Every file of static/."""
    return gathered(shared())


def shared() -> Traversable:
    """The folder of the files, for pages of another surface that are made of the same parts."""
    return files(__package__).joinpath("static")


def gathered(*folders: Traversable) -> Assets:
    """The files of these folders; one of a later folder takes the place of its namesake in an earlier one."""
    found = {file.name: file.read_bytes() for folder in folders for file in folder.iterdir() if file.is_file()}
    digest = blake2b(digest_size=8)
    served: dict[str, Asset] = {}
    templates: dict[str, Template] = {}
    for name, data in sorted(found.items()):
        digest.update(name.encode() + b"\0" + data)
        kind = "." + name.rpartition(".")[2]
        if kind in _TYPES:
            served[name] = Asset(data, _TYPES[kind])
        elif kind == ".html":
            templates[name.removesuffix(".html")] = Template(data.decode())
    return Assets(digest.hexdigest(), served, templates)
