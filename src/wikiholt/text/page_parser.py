"""From a git blob to a Page: whatever somebody committed is read as well as it can be."""

import re
from dataclasses import replace
from datetime import datetime

from wikiholt.domain.page import Heading, Page, PageProblem
from wikiholt.text.charset import decode_bytes, to_one_line
from wikiholt.text.frontmatter import Frontmatter, split_frontmatter, to_utc
from wikiholt.text.markdown import AnchorStyle, parse_outline

_LFS_PREFIX = b"version https://git-lfs.github.com/spec/"
_PAGE_EXTENSIONS = (".md", ".markdown", ".mdown", ".mkd", ".mkdn")
_MAX_NAME_CHARS = 500


def parse_page(
    file: str, blob: str, data: bytes, committed: datetime | None, anchors: AnchorStyle = "github"
) -> Page | PageProblem:
    """Read one page; a Problem only where there is no text to index. Never raises.

    The name is the title of the frontmatter, else the level-1 heading the page begins with, else made from the file's
    name. `metadata.last_updated` is what the page says, else when it was committed, in UTC.
    """
    if len(data) < 1024 and data.startswith(_LFS_PREFIX):
        return PageProblem(file, blob, "lfs-pointer", "the content lies in Git LFS; only a pointer to it is in git")
    decoded = decode_bytes(data)
    if decoded is None:
        return PageProblem(file, blob, "binary", "the file holds binary data, not text")
    front = split_frontmatter(decoded.text)
    plan = parse_outline(front.body, front.body_line, anchors, file)
    name = _find_content_name(front, plan.headings)
    metadata = front.metadata
    if metadata.last_updated is None and committed is not None:
        metadata = replace(metadata, last_updated=to_utc(committed))
    return Page(
        file=file,
        path=get_page_path(file),
        name=name or make_page_name(file),
        metadata=metadata,
        headings=plan.headings,
        links=plan.links,
        body=front.body,
        body_line=front.body_line,
        warnings=decoded.warnings + front.warnings + plan.warnings,
        blocks=plan.blocks,
        name_in_content=bool(name),
        words=_count_words(front.body),
        length=len(decoded.text),
    )


def _count_words(text: str) -> int:
    # a list of all words of a large page would take many times its size
    return len(text.split()) if len(text) < 1_000_000 else sum(1 for _ in re.finditer(r"\S+", text))


def get_page_path(file: str) -> str:
    """The file without `.md`; kept whole where two files would share one path, or where `..` would be left."""
    stem = file.removesuffix(".md")
    if stem == file or stem.rpartition("/")[2] in ("", ".", "..") or stem.lower().endswith(_PAGE_EXTENSIONS):
        return file
    return stem


def make_page_name(file: str) -> str:
    """A readable name made from the last part of a path: `guides/getting_started.md` is "getting started"."""
    last = file.rpartition("/")[2]
    stem = re.sub(r"\.(?:md|markdown|mdown|mkdn?)$", "", last, flags=re.IGNORECASE)
    return to_one_line(re.sub(r"[_-]", " ", stem)) or to_one_line(last) or "untitled"


def _find_content_name(front: Frontmatter, headings: tuple[Heading, ...]) -> str:
    if front.metadata.title:
        return front.metadata.title[:_MAX_NAME_CHARS]
    if headings and headings[0].level == 1:
        return headings[0].text[:_MAX_NAME_CHARS].strip()
    return ""
