"""File names of pages: which extensions they have, and the path and display name made from a file name."""

import re

from wikiholt.text.charset import to_one_line

PAGE_EXTENSIONS = (".md", ".markdown")
"""Files with these extensions are pages, in upper or lower case."""
DEFAULT_EXTENSION = ".md"
"""The extension that the path of a page omits."""
_LINK_EXTENSIONS = (*PAGE_EXTENSIONS, ".mdown", ".mkd", ".mkdn")
"""A link whose target ends with one of these leads to a page and not to an attachment."""
_EXTENSION_PATTERN = re.compile(rf"(?<=[^/])(?:{'|'.join(map(re.escape, _LINK_EXTENSIONS))})\Z", re.IGNORECASE)


def has_page_extension(path: str) -> bool:
    """Whether the path ends with the extension of a page file."""
    return bool(_EXTENSION_PATTERN.search(path))


def strip_page_extension(path: str) -> str:
    """The path without the extension of a page file."""
    return _EXTENSION_PATTERN.sub("", path)


def get_page_path(file: str) -> str:
    """The file name without `.md`; unchanged if two files would get the same path, or only dots would remain."""
    stem = file.removesuffix(DEFAULT_EXTENSION)
    if stem == file or stem.rpartition("/")[2] in ("", ".", "..") or stem.lower().endswith(_LINK_EXTENSIONS):
        return file
    return stem


def make_page_name(file: str) -> str:
    """A readable name made from the last component of a path: "getting started" for `guides/getting_started.md`."""
    last = file.rpartition("/")[2]
    return to_one_line(re.sub(r"[_-]", " ", strip_page_extension(last))) or to_one_line(last) or "untitled"
