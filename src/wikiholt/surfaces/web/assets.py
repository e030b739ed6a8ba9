"""The page's own files, read once: templates, and what browsers keep for ever under an address with their version."""

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from string import Template

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


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


@cache
def assets() -> Assets:
    """Every file of static/."""
    digest = blake2b(digest_size=8)
    served: dict[str, Asset] = {}
    templates: dict[str, Template] = {}
    for file in sorted(files(__package__).joinpath("static").iterdir(), key=lambda each: each.name):
        data = file.read_bytes()
        digest.update(file.name.encode() + b"\0" + data)
        kind = "." + file.name.rpartition(".")[2]
        if kind in _TYPES:
            served[file.name] = Asset(data, _TYPES[kind])
        elif kind == ".html":
            templates[file.name.removesuffix(".html")] = Template(data.decode())
    return Assets(digest.hexdigest(), served, templates)
