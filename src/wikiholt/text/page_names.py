"""File names of pages: which extensions they have, and the path and display name made from a file name."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from wikiholt.text.charset import to_one_line

MARKDOWN_EXTENSIONS = (".md", ".markdown", ".mdx")
RST_EXTENSION = ".rst"
ASCIIDOC_EXTENSION = ".adoc"
PAGE_EXTENSIONS = (*MARKDOWN_EXTENSIONS, ".txt", RST_EXTENSION, ASCIIDOC_EXTENSION)
"""Files with these extensions are pages, in upper or lower case."""
DOCUMENT_EXTENSIONS = (".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".epub")
"""Documents whose text is extracted. They are pages too, unless the wiki's settings say otherwise."""
HTML_EXTENSIONS = (".html", ".htm")
"""As documents, but pages only if the wiki's settings say so: most are generated, or templates."""
CODE_LANGUAGES: Mapping[str, str] = {
    ".py": "python", ".pyi": "python",
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".go": "go", ".rs": "rust", ".java": "java", ".kt": "kotlin", ".kts": "kotlin", ".scala": "scala",
    ".swift": "swift", ".c": "c", ".h": "cpp", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp",
    ".hpp": "cpp", ".hxx": "cpp", ".cs": "csharp", ".rb": "ruby", ".php": "php", ".lua": "lua",
    ".sh": "bash", ".bash": "bash",
}  # fmt: skip
"""The languages of source code by extension. Source code is pages only if the wiki's settings say so."""
CODE_EXTENSIONS = tuple(CODE_LANGUAGES)
PICTURE_EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
"""Pictures whose text is recognized. They are pages only if the wiki's settings say so."""
_CONVERTED_EXTENSIONS = (*DOCUMENT_EXTENSIONS, *HTML_EXTENSIONS, *CODE_EXTENSIONS, *PICTURE_EXTENSIONS)
_VENDORED_CODE = re.compile(
    r"(?:^|/)(?:node_modules|bower_components|site-packages|vendor(?:ed)?|third[_-]?party|dist)/"
    r"|[.-]min\.[cm]?js\Z|_pb2(?:_grpc)?\.pyi?\Z|\.pb\.(?:go|h|cc)\Z"
)
"""Source code of other projects, and code that a compiler wrote."""
DEFAULT_EXTENSION = ".md"
"""The extension that the path of a page omits."""
LINK_EXTENSIONS = (*PAGE_EXTENSIONS, ".mdown", ".mkd", ".mkdn")
"""A link whose target ends with one of these leads to a page and not to an attachment."""
_EXTENSION_PATTERN = re.compile(rf"(?<=[^/])(?:{'|'.join(map(re.escape, LINK_EXTENSIONS))})\Z", re.IGNORECASE)
FILE_KINDS: Mapping[str, tuple[str, ...]] = {
    "docs": DOCUMENT_EXTENSIONS,
    "none": (),
    "html": HTML_EXTENSIONS,
    "code": CODE_EXTENSIONS,
    "pictures": PICTURE_EXTENSIONS,
    **{extension[1:]: (extension,) for extension in DOCUMENT_EXTENSIONS},
}
"""What the setting `files` of a wiki may name, and the extensions of these documents."""
FOLDER_PAGES = frozenset({"index", "readme", "_index"})
"""Names of files that describe their folder."""
_WORD_SEPARATOR = re.compile(r"(?<!\d)(\d{4})[-_](\d{2})[-_](\d{2})(?!\d)|[_-]")
"""A date, which keeps its hyphens, or a character between words."""
_NAMESPACE_SEPARATOR = "___"
_MAX_EXTENSION_CHARS = 12
_MAX_SHOWN_EXTENSIONS = 8


def is_page_file(name: str) -> bool:
    """Whether the name of a file is that of a page: it is not hidden and has the extension of a page."""
    return name.lower().endswith((*PAGE_EXTENSIONS, *DOCUMENT_EXTENSIONS)) and not name.startswith(".")


def is_document(file: str) -> bool:
    """Whether the text of a file is extracted from it, so that it cannot be edited as a page."""
    return file.lower().endswith(_CONVERTED_EXTENSIONS)


def is_code(file: str) -> bool:
    """Whether the name of a file is that of source code."""
    return file.lower().endswith(CODE_EXTENSIONS)


def is_vendored_code(file: str) -> bool:
    """Whether a file is source code that people do not write in this repository; it is never a page."""
    return is_code(file) and bool(_VENDORED_CODE.search(file))


def get_file_extensions(kinds: Iterable[str]) -> tuple[str, ...]:
    """The extensions of the documents that the setting `files` names."""
    named: dict[str, None] = {}
    for kind in kinds:
        extensions = FILE_KINDS.get(kind.lower().removeprefix("."), ())
        named |= dict.fromkeys(extensions)
    return tuple(named)


def has_link_extension(path: str) -> bool:
    """Whether the path ends with an extension that links to pages have."""
    return bool(_EXTENSION_PATTERN.search(path))


def strip_page_extension(path: str) -> str:
    """The path without the extension of a page file."""
    if "." not in path:
        return path
    return _EXTENSION_PATTERN.sub("", path)


def get_extension(file: str) -> str:
    """The extension of a file in lower case, with its dot; empty if there is none."""
    stem, dot, extension = file.rpartition("/")[2].rpartition(".")
    return f".{extension.lower()}" if dot and stem and len(extension) <= _MAX_EXTENSION_CHARS else ""


def count_extensions(files: Iterable[str]) -> Mapping[str, int]:
    """How many of the files have each extension, the most frequent first. Files in hidden folders are not counted."""
    shown = (file for file in files if not any(part.startswith(".") for part in file.split("/")))
    return dict(sorted(Counter(map(get_extension, shown)).items(), key=lambda item: (-item[1], item[0])))


def describe_skipped_files(counts: Mapping[str, int]) -> str:
    """The number of files that are not pages, such as "312 files skipped: 300 .png, 12 .docx"; empty if it is 0."""
    if not counts:
        return ""
    parts = [f"{count} {to_one_line(extension) or 'without extension'}" for extension, count in counts.items()]
    more = ", …" if len(parts) > _MAX_SHOWN_EXTENSIONS else ""
    total = sum(counts.values())
    return f"{total} {'file' if total == 1 else 'files'} skipped: {', '.join(parts[:_MAX_SHOWN_EXTENSIONS])}{more}"


def get_page_path(file: str) -> str:
    """The file name without `.md`; unchanged if two files would get the same path, or only dots would remain."""
    stem = file.removesuffix(DEFAULT_EXTENSION)
    if stem == file or stem.rpartition("/")[2] in ("", ".", "..") or stem.lower().endswith(LINK_EXTENSIONS):
        return file
    return stem


def find_namespace_name(file: str) -> str:
    """The name `a/b` of a page that Logseq stores as `a___b.md`; empty for other files."""
    stem = strip_page_extension(file.rpartition("/")[2])
    return to_one_line(stem.replace(_NAMESPACE_SEPARATOR, "/")) if _NAMESPACE_SEPARATOR in stem else ""


def is_folder_page(file: str) -> bool:
    """Whether the file describes its folder."""
    folder, _, last = file.rpartition("/")
    return bool(folder) and strip_page_extension(last).lower() in FOLDER_PAGES


@lru_cache(maxsize=1024)  # a move needs the name of a file several times
def make_page_name(file: str) -> str:
    """A readable name made from the last component of a path: "getting started" for `guides/getting_started.md`.

    `index`, `README` and `_index` in a folder take the folder's name.
    """
    folder, _, last = file.rpartition("/")
    stem = strip_page_extension(last)
    if is_code(last):
        return to_one_line(last)
    if is_folder_page(file):
        stem = folder.rpartition("/")[2]
    return to_one_line(_WORD_SEPARATOR.sub(_to_readable, stem)) or to_one_line(last) or "untitled"


def _to_readable(match: re.Match[str]) -> str:
    return f"{match[1]}-{match[2]}-{match[3]}" if match[1] else " "
