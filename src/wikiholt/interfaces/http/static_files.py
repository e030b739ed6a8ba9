"""The static files of the web page and of the Otterwiki plugin, read once and served under a versioned URL."""

import gzip
import re
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

IMMUTABLE_CACHE_CONTROL = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORT_PATTERN = re.compile(rb'\bfrom "\./([\w.-]+)"')


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent, also compressed by gzip."""

    data: bytes
    media_type: str
    compressed: bytes


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """A set of files. `version` changes whenever one of them changes."""

    version: str
    files: dict[str, StaticFile]
    templates: dict[str, Template]

    def find_imports(self, script: str) -> list[str]:
        """The direct and indirect imports of a script, for `modulepreload` links."""
        imports: set[str] = set()
        pending = [script]
        while pending:
            direct = {name.decode() for name in _IMPORT_PATTERN.findall(self.files[pending.pop()].data)}
            pending.extend(direct - imports)
            imports |= direct
        return sorted(imports)

    def get_cache_control(self, version: str) -> str:
        """The Cache-Control header of a file requested under this version.

        An open tab may still request an older version: it gets the current file, which it must not cache.
        """
        return IMMUTABLE_CACHE_CONTROL if version == self.version else "no-store"


def get_web_static_directory() -> Traversable:
    """The static directory of the web page, whose files the Otterwiki plugin uses too."""
    return files("wikiholt.interfaces").joinpath("web", "static")


def read_static_files(*directories: Traversable) -> StaticFiles:
    """Read the files of these directories. A file of a later directory replaces one with the same name."""
    contents = {
        file.name: file.read_bytes() for directory in directories for file in directory.iterdir() if file.is_file()
    }
    digest = blake2b(digest_size=8)
    served: dict[str, StaticFile] = {}
    templates: dict[str, Template] = {}
    for name, data in sorted(contents.items()):
        digest.update(name.encode() + b"\0" + data)
        suffix = "." + name.rpartition(".")[2]
        if suffix in _MEDIA_TYPES:
            served[name] = StaticFile(data, _MEDIA_TYPES[suffix], gzip.compress(data, mtime=0))
        elif suffix == ".html":
            templates[name.removesuffix(".html")] = Template(data.decode())
    return StaticFiles(digest.hexdigest(), served, templates)
