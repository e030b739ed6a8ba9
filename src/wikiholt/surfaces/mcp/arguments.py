"""What tools take. An argument that is not here is refused, and so is a value that only nearly fits."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wikiholt.model import Filter, Mode
from wikiholt.model.answers import MAX_VALUE, MAX_VALUES
from wikiholt.search import MAX_HITS, MAX_QUERY, Request
from wikiholt.surfaces.documents.moments import since

LEAST_TOKENS, MOST_TOKENS = 200, 50_000

_TEXT = r"^[^\x00]*$"


def _several(value: Any) -> Any:
    """One text for a list of one, and an empty one for none: clients that fill in every argument send that."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def _given(value: Any) -> Any:
    return None if value == "" else value


_Value = Annotated[str, Field(min_length=1, max_length=MAX_VALUE, pattern=_TEXT)]
Values = Annotated[list[_Value], BeforeValidator(_several, json_schema_input_type=list[str] | str)]
Path = Annotated[
    str, Field(min_length=1, max_length=1000, pattern=_TEXT, description="The page's path, as search gives it.")
]
Revision = Annotated[
    Annotated[str, Field(pattern=r"^[0-9a-fA-F]{7,64}$")] | None,
    BeforeValidator(_given, json_schema_input_type=str | None),
]
Message = Annotated[str, Field(max_length=10_000, pattern=_TEXT)]


class Arguments(BaseModel):
    """What every tool's arguments have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Budgeted(Arguments):
    """An answer of bounded length."""

    max_tokens: int | None = Field(
        None,
        ge=LEAST_TOKENS,
        le=MOST_TOKENS,
        description="About how many tokens the answer may have; what is left out is said, and how to get it.",
    )


class Narrowed(Budgeted):
    """Which pages count; all that is given must hold."""

    tag: Values = Field([], max_length=MAX_VALUES, description="Only pages with all of these tags.")
    category: Values = Field([], max_length=MAX_VALUES, description="Only pages of one of these categories.")
    prefix: str = Field("", max_length=MAX_VALUE, pattern=_TEXT, description="Only pages whose path begins with this.")
    updated_since: str = Field(
        "", max_length=40, description="Only pages updated since: 2026-05-31, a date with time, or 7d, 12h, 3w ago."
    )

    def filter(self) -> Filter:
        when = since(self.updated_since) if self.updated_since else None
        return Filter(tuple(self.category), tuple(self.tag), self.prefix, when)


class Search(Narrowed):
    """A search."""

    query: str = Field(
        min_length=1, max_length=MAX_QUERY, description='A question or words; "a phrase" and -word work too.'
    )
    n: int = Field(8, ge=1, le=MAX_HITS, description="How many pages at most.")
    mode: Literal["hybrid", "semantic", "keyword"] = Field(
        "hybrid", description="By meaning and words, by meaning alone, or by words alone."
    )
    fresh: bool = Field(
        False, description="Wait until the index has reached the newest commit; own writes are waited for anyway."
    )

    def request(self) -> Request:
        return Request(self.query, self.n, Mode(self.mode), self.filter())


class Like(Narrowed):
    """Pages like one page."""

    path: Path
    n: int = Field(8, ge=1, le=MAX_HITS, description="How many pages at most.")


class ReadPage(Budgeted):
    """A page, or a part of it."""

    path: Path
    section: str = Field("", max_length=500, description="Only the section under this heading (its text or anchor).")
    from_line: int | None = Field(None, ge=1, description="The first line to read.")
    to_line: int | None = Field(None, ge=1, description="The last line to read.")
    from_character: int = Field(0, ge=0, description="Characters of the first line to leave out: for very long lines.")
    revision: Revision = Field(None, description="A commit, by 7 digits or more; the newest if left out.")


class Fetch(Budgeted):
    """A page by what `search` calls its id."""

    id: str = Field(
        min_length=1,
        max_length=1100,
        pattern=_TEXT,
        description="A result's id: the page's path; PATH#L40 begins at line 40, PATH#L40-60 ends at line 60.",
    )


class Listed(Narrowed):
    """Some of the pages, by path."""

    limit: int = Field(100, ge=1, le=1000, description="How many at most.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class Links(Budgeted):
    """The links of a page."""

    path: Path
    limit: int = Field(100, ge=1, le=1000, description="How many at most, each way.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning, each way.")


class Changes(Budgeted):
    """The newest commits, or those before them."""

    limit: int = Field(20, ge=1, le=200, description="How many at most.")
    offset: int = Field(0, ge=0, le=1_000_000, description="How many to leave out at the beginning.")


class History(Budgeted):
    """The newest commits of a page."""

    path: Path
    limit: int = Field(20, ge=1, le=200, description="How many at most.")


class Orphans(Budgeted):
    """Some of the pages that nobody links to."""

    limit: int = Field(100, ge=1, le=1000, description="How many at most.")
    offset: int = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")


class Write(Arguments):
    """What every write says."""

    path: Path
    commit_message: Message = Field("", description="Why, in a line; it stays in the wiki's history.")
    revision: Revision = Field(
        None, description="The revision that read_page gave: the write is refused if the page was changed since."
    )


class WritePage(Write):
    """A page's whole content."""

    content: str = Field(pattern=_TEXT, description="The whole page, in Markdown; frontmatter first, if any.")


class EditPage(Write):
    """One replacement."""

    old_string: str = Field(
        min_length=1, pattern=_TEXT, description="The text to replace, exactly as it stands there, and only once."
    )
    new_string: str = Field(pattern=_TEXT, description="What shall stand there instead.")


class AppendToPage(Write):
    """Text to add."""

    text: str = Field(min_length=1, pattern=_TEXT, description="What to add at the end, on a line of its own.")


class RenamePage(Write):
    """Another path."""

    new_path: str = Field(min_length=1, max_length=1000, pattern=_TEXT, description="The path it shall have.")
    update_links: bool = Field(True, description="Whether links on other pages follow, in the same commit.")


class DeletePage(Write):
    """A page to delete."""
