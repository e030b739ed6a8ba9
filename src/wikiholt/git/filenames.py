"""Validation of file names for pages and attachments: a valid name denotes the same file on every file system."""

import unicodedata

from wikiholt.errors import InvalidPage
from wikiholt.git.objects import PageFiles

_MAX_COMPONENT_BYTES = 255
_MAX_PATH_BYTES = 1024
# Bidirectional controls make one name look like another: `a`, one of these, `dm.txt` may look like `atxt.md`.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def validate_page_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a page may be written to this file (relative to the wiki's subdirectory)."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"The page name is invalid: {fault}.", hint="Use a name such as guides/Setup.md.")
    if not pages.is_page(file):
        extensions = " or ".join(pages.extensions)
        raise InvalidPage(
            f"{file} would not be a page of this wiki.",
            hint=f"Page files end in {extensions} and must not match the wiki's ignore patterns.",
        )


def validate_attachment_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a page may have an attachment with this file name."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"The file name is invalid: {fault}.", hint="Use a name such as report.pdf.")
    if not pages.is_attachable(file):
        raise InvalidPage(
            "A file with this name cannot be attached.",
            hint=f"Attachments cannot begin with a dot or end in {' or '.join(pages.extensions)}.",
        )


def get_visual_key(name: str) -> str:
    """A key that is equal for names that some file system or reader cannot tell apart."""
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def _find_fault(file: str) -> str:
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in file):
        return "it contains a control character or is not text"
    if any(char in _BIDI_CONTROLS for char in file):
        return "it contains a bidirectional control character"
    if "\\" in file:
        return "it contains a backslash"
    if len(file.encode()) > _MAX_PATH_BYTES:
        return f"it is longer than {_MAX_PATH_BYTES} bytes"
    return next((fault for part in file.split("/") if (fault := _find_component_fault(part))), "")


def _find_component_fault(part: str) -> str:
    if part in ("", ".", ".."):
        return "it contains an empty, `.` or `..` component"
    if len(part.encode()) > _MAX_COMPONENT_BYTES:
        return f"a component is longer than {_MAX_COMPONENT_BYTES} bytes"
    if part != part.strip() or part.endswith("."):
        return "a component begins or ends with a space, or ends with a dot"
    # File systems that ignore case, invisible characters or the part after a colon treat these as the git directory.
    if get_visual_key(part).partition(":")[0].rstrip(" .") in (".git", "git~1"):
        return "it points into the git directory"
    return ""
