"""Which names a page may be written under: ones that mean the same file on every disk and to every reader."""

import unicodedata

from wikiholt.errors import InvalidPage
from wikiholt.git.objects import PageFiles

_MAX_COMPONENT_BYTES = 255
_MAX_PATH_BYTES = 1024
# They make one name look like another: `a`, one of these, `dm.txt` may look like `atxt.md`.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def validate_page_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a page may be written to this file (relative to the wiki's sub-directory)."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"A page cannot be named so: {fault}.", hint="A name such as guides/Setup.md is fine.")
    if not pages.is_page(file):
        endings = " or ".join(pages.extensions)
        raise InvalidPage(
            f"{file} would not be a page of this wiki.",
            hint=f"Pages end in {endings}, and the wiki's ignore setting must not leave them out.",
        )


def validate_attachment_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a file may be attached to a page under this name."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"A file cannot be named so: {fault}.", hint="A name such as report.pdf is fine.")
    if not pages.is_attachable(file):
        raise InvalidPage(
            "A file of this name cannot be attached.",
            hint=f"Names that begin with a dot or end in {' or '.join(pages.extensions)} are not attachments'.",
        )


def get_visual_key(name: str) -> str:
    """What a name looks like: two names with the same look are one file on some disk, or to some reader."""
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def _find_fault(file: str) -> str:
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in file):
        return "it holds a control character or something that is not text"
    if any(char in _BIDI_CONTROLS for char in file):
        return "it holds a character that turns the direction of what follows"
    if "\\" in file:
        return "it holds a backslash"
    if len(file.encode()) > _MAX_PATH_BYTES:
        return f"it is longer than {_MAX_PATH_BYTES} bytes"
    return next((fault for part in file.split("/") if (fault := _find_component_fault(part))), "")


def _find_component_fault(part: str) -> str:
    if part in ("", ".", ".."):
        return "it does not name a place inside the wiki"
    if len(part.encode()) > _MAX_COMPONENT_BYTES:
        return f"a part of it is longer than {_MAX_COMPONENT_BYTES} bytes"
    if part != part.strip() or part.endswith("."):
        return "a part of it begins or ends with a space, or ends with a dot"
    # Disks that ignore case, invisible characters or what follows a colon would take these for git's own directory.
    if get_visual_key(part).partition(":")[0].rstrip(" .") in (".git", "git~1"):
        return "it leads into git's own directory"
    return ""
