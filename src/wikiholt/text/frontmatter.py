"""Reads frontmatter, the YAML (`---`) or TOML (`+++`) before a page's text, and the dates in it, leniently."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

import yaml

from wikiholt.domain.page import FrontmatterValue, PageMetadata, PageProperty
from wikiholt.text.charset import to_one_line

EARLIEST_DATE = datetime(1970, 1, 2, tzinfo=UTC)
LATEST_DATE = datetime(2200, 1, 1, tzinfo=UTC)

_EPOCH_PATTERN = re.compile(r"\d{4,17}(?:\.\d{1,9})?")
_SLASHED_DATE = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)")
_SHORT_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_LOOSE_ZONE = re.compile(r"(?<!\s)\s++(?=(?:[+-]\d|Z$))")
_MAX_DATE_CHARS = 100


def parse_datetime(text: str) -> datetime | None:
    """Parse an ISO date or time, a year, epoch seconds or milliseconds, or an e-mail date; None if implausible."""
    if len(text) > _MAX_DATE_CHARS:
        return None
    text = text.strip()
    try:
        date = _parse_epoch(text) if _EPOCH_PATTERN.fullmatch(text) else _parse_date_text(text)
        return check_date_range(to_utc(date)) if date else None
    except (ValueError, OverflowError, TypeError, IndexError, OSError):
        return None


def to_utc(date: datetime) -> datetime:
    """The date in UTC; one without a time zone is taken as UTC."""
    if date.tzinfo is None:
        return date.replace(tzinfo=UTC)
    return date.astimezone(UTC)


def check_date_range(date: datetime) -> datetime | None:
    return date if EARLIEST_DATE <= date <= LATEST_DATE else None


def _parse_epoch(text: str) -> datetime | None:
    value = float(text)
    digits = len(text.partition(".")[0])
    if digits == 4:
        return datetime(int(value), 1, 1, tzinfo=UTC)
    if digits == 8 and "." not in text:
        return datetime(int(text[:4]), int(text[4:6]), int(text[6:]), tzinfo=UTC)
    if digits < 9:
        return None
    for scale in (1, 1_000, 1_000_000):
        if value / scale < 1e11:
            return datetime.fromtimestamp(value / scale, UTC)
    return None


def _parse_date_text(text: str) -> datetime | None:
    text = _SLASHED_DATE.sub(_format_dashed, _SHORT_DATE.sub(_format_dashed, text, count=1), count=1)
    try:
        return datetime.fromisoformat(_LOOSE_ZONE.sub("", text))
    except ValueError:
        return parsedate_to_datetime(text)


def _format_dashed(match: re.Match[str]) -> str:
    year, month, day = match.groups()
    return f"{year}-{int(month):02}-{int(day):02}"


# Frontmatter blocks.

_OPENING_FENCE = re.compile(r"(---|\+\+\+)[ \t]*\n")
_CLOSING_FENCES = {
    "---": re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE),
    "+++": re.compile(r"^\+\+\+[ \t]*(?:\n|\Z)", re.MULTILINE),
}
_MAX_FRONTMATTER_CHARS = 65_536
_MAX_TAGS = 1_000
_MAX_VALUE_CHARS = 10_000
_MAX_PROPERTIES, _MAX_PROPERTY_VALUES = 100, 1_500
"""Maximum number of properties of a page that can be filtered by, and of their values."""
_MAX_PROPERTY_CHARS = 500
"""A longer value, and a longer name, cannot be filtered by."""
_MAX_NAMES = 100
_LIST_KEYS = frozenset(
    {"tags", "tag", "keywords", "keyword", "aliases", "alias", "categories", "authors", "topics", "labels"}
)
"""The keys, without separators, whose text is a list if it has commas."""
_MIN_BOOST, _MAX_BOOST = 0.1, 10.0
_TOO_DEEP_PATTERN = re.compile(r"(?:[-?:][ \t]+){50}")
_KEY_LINE = re.compile(r"""^(["']?)([^\s:"'\[\]{}#=-][^:="'\n]{0,99}?)\1[ \t]*(?::(?=\s|$)|=)[ \t]*(.*)$""")
_FIRST_KEY = re.compile(r"""["']?[\w-]{1,100}["']?[ \t]*(?::(?:\s|$)|=)""")
_YAMLISH = re.compile(r"""^(?:\s.*|#.*|[-?:] .*|-|\]|\}|["']?[^\s:]{1,100}["']?[ \t]*:(?:\s.*)?|)$""")
_LOADER: type[yaml.BaseLoader] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_NULL_VALUES = frozenset({"", "~", "null", "Null", "NULL"})
_FALSE_VALUES = frozenset({"false", "no", "off", "0", "n"})
_TRUE_VALUES = frozenset({"true", "yes", "on", "1", "y"})
UPDATED_KEYS = (
    "lastupdated",
    "lastupdatedat",
    "updated",
    "updatedat",
    "lastmodified",
    "lastmod",
    "modified",
    "modifiedat",
    "datemodified",
    "dateupdated",
    "mtime",
    "date",
)
"""The keys of the date of a page, without separators. Properties have every date that is read."""


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The metadata of a page and the text after it; `body_line` is the line of the file where the body begins."""

    metadata: PageMetadata
    body: str
    body_line: int
    warnings: tuple[str, ...] = ()
    fields: Mapping[str, FrontmatterValue] = field(default_factory=dict)


def split_frontmatter(text: str) -> Frontmatter:
    """Split the frontmatter from a page. Never raises; no part of the frontmatter ends up in the body."""
    opening = _OPENING_FENCE.match(text)
    closing = _CLOSING_FENCES[opening[1]].search(text, opening.end()) if opening else None
    if not opening:
        return Frontmatter(PageMetadata(), text, 1)
    if not closing:
        return _treat_as_text(text, opening)
    block = text[opening.end() : closing.start()]
    warnings: list[str] = []
    fields = _parse_block(block, opening[1], warnings)
    if fields is None:
        return _treat_as_text(text, opening)
    body_line = text.count("\n", 0, closing.end()) + 1
    metadata = _build_metadata(fields, warnings)
    return Frontmatter(metadata, text[closing.end() :], body_line, tuple(warnings), fields)


def _treat_as_text(text: str, opening: re.Match[str]) -> Frontmatter:
    """A page without frontmatter. It warns if the first lines are fields, because someone forgot the closing line."""
    block = text[opening.end() : opening.end() + _MAX_FRONTMATTER_CHARS].partition("\n\n")[0]
    is_unclosed = _FIRST_KEY.match(block) is not None and _has_fields(f"{block}\n")
    warning = f"the frontmatter is not closed: no line `{opening[1]}` follows its fields, so it was read as text"
    return Frontmatter(PageMetadata(), text, 1, (warning,) if is_unclosed else ())


def add_inline_metadata(
    front: Frontmatter, tags: Iterable[str], fields: Iterable[tuple[str, FrontmatterValue]]
) -> Frontmatter:
    """The frontmatter with the tags and properties from the text of the page; its own values come first."""
    inline_fields = dict(fields)
    merged = {**inline_fields, **front.fields}
    warnings: list[str] = []
    metadata = _build_metadata(merged, warnings) if inline_fields else front.metadata
    all_tags = dict.fromkeys((*front.metadata.tags, *_get_tags(inline_fields), *tags))
    warnings = [warning for warning in warnings if warning not in front.warnings]
    return replace(
        front,
        metadata=replace(metadata, tags=tuple(all_tags)[:_MAX_TAGS]),
        warnings=(*front.warnings, *warnings),
        fields=merged,
    )


def _parse_block(block: str, fence: str, warnings: list[str]) -> Mapping[str, FrontmatterValue] | None:
    """The fields of the block, or None if it is not frontmatter but text between two rules."""
    if not block.strip():
        return {}
    loaded: object
    try:
        if len(block) > _MAX_FRONTMATTER_CHARS:
            raise ValueError(f"it is longer than {_MAX_FRONTMATTER_CHARS} characters")
        loaded = tomllib.loads(block) if fence == "+++" else _load_yaml(block)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        if not _has_fields(block):
            return None
        warnings.append(f"the frontmatter could not be read in full: {to_one_line(str(error))[:200]}")
        return _parse_line_by_line(block)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        return None
    converter = _ValueConverter()
    fields = {str(key)[:_MAX_VALUE_CHARS]: converter.convert(value) for key, value in loaded.items()}
    if converter.remaining < 0:
        warnings.append("the frontmatter expands to too much data; the last values were omitted")
    return fields


def _load_yaml(block: str) -> object:
    # every scalar stays a string: no tag is applied, no merge key expanded, `1.10` stays 1.10
    if block.count("[") + block.count("{") > 500 or _TOO_DEEP_PATTERN.search(block):
        raise ValueError("it is nested too deeply")
    return yaml.load(block, Loader=_LOADER)  # noqa: S506


class _ValueConverter:
    """Converts loaded values to strings, lists and dicts; limits depth and total size, which aliases can multiply."""

    def __init__(self) -> None:
        self.remaining = 2 * _MAX_FRONTMATTER_CHARS
        """Budget in characters; each value costs one more."""

    def convert(self, value: object, depth: int = 0) -> FrontmatterValue:
        self.remaining -= 1
        if self.remaining < 0 or value is None:
            return None
        if isinstance(value, dict):
            return {str(k): self.convert(v, depth + 1) for k, v in list(value.items())[:100]} if depth < 1 else None
        if isinstance(value, (list, tuple)):
            return [self.convert(item, depth + 1) for item in value[:_MAX_TAGS]] if depth < 2 else None
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)[:_MAX_VALUE_CHARS]
        self.remaining -= len(text)
        return text if self.remaining >= 0 else None


def _has_fields(block: str) -> bool:
    lines = block[:_MAX_FRONTMATTER_CHARS].split("\n")[:-1] or [block]
    content_lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if not content_lines or not _KEY_LINE.match(content_lines[0]):
        return False
    return sum(1 for line in lines if _YAMLISH.match(line[:300]) or _KEY_LINE.match(line[:300])) * 2 >= len(lines)


def _parse_line_by_line(block: str) -> dict[str, FrontmatterValue]:
    """Recover what is readable of broken frontmatter: `key: value` lines and the `- item` lines under a key."""
    fields: dict[str, FrontmatterValue] = {}
    key = ""
    for line in block[:_MAX_FRONTMATTER_CHARS].split("\n"):
        match = _KEY_LINE.match(line)
        if match:
            key = match[2].strip()
            fields.setdefault(key, _parse_loose_value(match[3].strip()))
        elif key and line.lstrip().startswith("- "):
            items = fields[key]
            if isinstance(items, list):
                items.append(line.lstrip()[2:].strip().strip("\"'"))
            elif items == "":
                fields[key] = [line.lstrip()[2:].strip().strip("\"'")]
    return fields


def _parse_loose_value(text: str) -> FrontmatterValue:
    """A list or a text. A missing closing bracket or quotation mark is what often breaks frontmatter."""
    closing = {"[": "]", '"': '"', "'": "'"}.get(text[:1])
    inside = text[1:]
    # In `[WIP] Guide` the marks are part of the text.
    if closing is None or (closing in inside and not inside.endswith(closing)):
        return text[:_MAX_VALUE_CHARS]
    inside = inside.removesuffix(closing)
    if closing == "]":
        return [item.strip().strip("\"'") for item in inside.split(",")]
    return inside[:_MAX_VALUE_CHARS]


@lru_cache(maxsize=1024)
def _normalize_key(key: str) -> str:
    return re.sub(r"[\s_-]", "", key).lower()


def _build_metadata(raw_fields: Mapping[str, FrontmatterValue], warnings: list[str]) -> PageMetadata:
    fields: dict[str, FrontmatterValue] = {}
    for key, value in raw_fields.items():
        if len(key) <= _MAX_PROPERTY_CHARS:
            fields.setdefault(_normalize_key(key), value)
    metadata = PageMetadata(
        title=_get_text(fields, ("title",), warnings),
        category=_get_first(fields, ("category", "categories")),
        tags=_get_tags(fields),
        description=_get_text(fields, ("description", "desc", "summary"), warnings),
        language=_get_text(fields, ("lang", "language", "locale"), warnings),
        hidden=_has_flag(fields, "search", _FALSE_VALUES)
        or _has_flag(fields, "hidden", _TRUE_VALUES)
        or _has_flag(fields, "noindex", _TRUE_VALUES),
        aliases=_get_names(_split_strings(fields, ("aliases", "alias")), ("aliases", "alias")),
        boost=_get_boost(fields, warnings),
        pins=_get_names(fields, ("pin", "pins")),
        properties=_get_properties(raw_fields, warnings),
    )
    for key in UPDATED_KEYS:
        text = fields.get(key)
        if isinstance(text, str) and text.strip() not in _NULL_VALUES:
            date = parse_datetime(text)
            if date:
                return replace(metadata, last_updated=date)
            warnings.append(f"`{key}` is not a plausible date: {to_one_line(text)[:60]}")
    return metadata


def _get_text(fields: Mapping[str, FrontmatterValue], keys: Iterable[str], warnings: list[str]) -> str | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value not in _NULL_VALUES:
            text = to_one_line(value)
            if text:
                return text
        elif isinstance(value, (list, dict)):
            warnings.append(f"`{key}` is not a string; it was ignored")
    return None


def _get_first(fields: Mapping[str, FrontmatterValue], keys: Iterable[str]) -> str | None:
    for key in keys:
        value = fields.get(key)
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, str) and item not in _NULL_VALUES and to_one_line(item):
                return to_one_line(item)
    return None


def _get_tags(fields: Mapping[str, FrontmatterValue]) -> tuple[str, ...]:
    tags: dict[str, None] = {}
    for key in ("tags", "tag", "keywords"):
        value = fields.get(key)
        if isinstance(value, str):
            items: list[FrontmatterValue] = [
                *(value.split(",") if "," in value else re.split(r"(?<!\s)\s++(?=#)", value))
            ]
        elif isinstance(value, dict):
            items = [*value]
        else:
            items = value or []
        for item in items:
            parts = item if isinstance(item, list) else [item]
            for part in parts:
                if isinstance(part, str) and part.strip() not in _NULL_VALUES:
                    tags.setdefault(to_one_line(part).lstrip("#").strip())
    tags.pop("", None)
    return tuple(tags)[:_MAX_TAGS]


def _get_names(fields: Mapping[str, FrontmatterValue], keys: Iterable[str]) -> tuple[str, ...]:
    """The names in these fields, each a string or a list of strings."""
    names: dict[str, None] = {}
    for key in keys:
        value = fields.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item not in _NULL_VALUES and (name := to_one_line(item)[:_MAX_PROPERTY_CHARS]):
                names.setdefault(name)
    return tuple(names)[:_MAX_NAMES]


def _split_strings(fields: Mapping[str, FrontmatterValue], keys: Iterable[str]) -> Mapping[str, FrontmatterValue]:
    """These fields, each string split at its commas."""
    values = ((key, fields.get(key)) for key in keys)
    return {key: [*value.split(",")] if isinstance(value, str) else value for key, value in values}


def _get_boost(fields: Mapping[str, FrontmatterValue], warnings: list[str]) -> float:
    value = fields.get("boost")
    text = value.strip() if isinstance(value, str) else ""
    if value is None or (isinstance(value, str) and text in _NULL_VALUES):
        return 1.0
    try:
        boost = float(text or 0)
    except ValueError:
        boost = 0.0
    if _MIN_BOOST <= boost <= _MAX_BOOST:
        return boost
    warnings.append(f"`boost` is not a number from {_MIN_BOOST} to {_MAX_BOOST:.0f}; it was ignored")
    return 1.0


def _get_properties(fields: Mapping[str, FrontmatterValue], warnings: list[str]) -> tuple[PageProperty, ...]:
    """The properties that can be filtered by; of a nested mapping, `key.nested`."""
    properties: list[PageProperty] = []
    count = 0
    for name, value in _iter_flat_fields(fields):
        items: Sequence[FrontmatterValue] = value if isinstance(value, list) else [value]
        if isinstance(value, str) and _normalize_key(name) in _LIST_KEYS:
            items = [item.strip() for item in value.split(",")]
        texts = (item for item in items if isinstance(item, str) and item not in _NULL_VALUES)
        values = tuple(text for text in texts if len(text) <= _MAX_PROPERTY_CHARS and to_one_line(text))
        if not values or len(name) > _MAX_PROPERTY_CHARS:
            continue
        count += len(values)
        if len(properties) == _MAX_PROPERTIES or count > _MAX_PROPERTY_VALUES:
            warnings.append(f"only the first {len(properties)} properties can be filtered by; there are too many")
            break
        properties.append(PageProperty(name, values))
    return tuple(properties)


def _iter_flat_fields(fields: Mapping[str, FrontmatterValue]) -> Iterator[tuple[str, FrontmatterValue]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", nested) for key, nested in value.items())
        else:
            yield name, value


def _has_flag(fields: Mapping[str, FrontmatterValue], key: str, values: frozenset[str]) -> bool:
    value = fields.get(key)
    return isinstance(value, str) and value.strip().lower() in values
