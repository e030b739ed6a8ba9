"""One setting: its name, type, default and limits; how a value is parsed and checked."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_origin
from urllib.parse import urlsplit

from wikiholt.errors import InvalidSetting
from wikiholt.text.page_names import FILE_KINDS

SettingValue = str | int | float | bool | Path | tuple[str, ...]
T = TypeVar("T")

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NUMBER_PATTERN = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?")
_KIND_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    tuple: "a list of strings",
}
_MAX_SHOWN_CHARS = 80
_MAX_LISTED_NAMES = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """The definition of a setting. `check` returns the reason why a text value is invalid, or an empty string."""

    name: str
    kind: type
    default: SettingValue
    help: str
    choices: tuple[str, ...] = ()
    find_choice: Callable[[str], str | None] | None = None
    """Returns the choice for another name of it, or None; only for the hint."""
    minimum: float = -math.inf
    maximum: float = math.inf
    check: Callable[[str], str] | None = None
    secret: bool = False
    """Whether the value is hidden in output and messages."""

    @property
    def attribute(self) -> str:
        """The field name in the settings class."""
        return self.name.replace(".", "_")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"WIKIHOLT_{self.attribute.upper()}"

    def parse(self, raw: object, origin: str) -> SettingValue:
        """Convert and check a value. `origin` names its source in the error. Raises InvalidSetting."""
        value = (
            _parse_text(raw, self.kind)
            if isinstance(raw, str) and self.kind is not str
            else _convert_typed(raw, self.kind)
        )
        if value is None:
            raise self._build_error(raw, origin, f"it must be {_KIND_NAMES[self.kind]}")
        for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
            self._check_text(text, origin)
        if isinstance(value, int | float) and not self.minimum <= value <= self.maximum:
            raise self._build_error(raw, origin, f"it must be {self.describe_bounds()}")
        return value

    def describe_bounds(self) -> str:
        """The allowed range as text."""
        if self.maximum == math.inf:
            return f"at least {self.minimum:,}" if self.minimum > -math.inf else "any number"
        return f"between {self.minimum:,} and {self.maximum:,}"

    def _check_text(self, value: str, origin: str) -> None:
        if self.choices and value not in self.choices:
            import difflib  # noqa: PLC0415 - only for an error

            named = self.find_choice(value) if self.find_choice else None
            close = [named] if named in self.choices else difflib.get_close_matches(value.lower(), self.choices, n=1)
            suggestion = f"Did you mean {close[0]!r}? " if close else ""
            choices = ", ".join(filter(None, self.choices))
            raise self._build_error(value, origin, "unknown value", f"{suggestion}Valid values: {choices}.")
        if self.check and (reason := self.check(value)):
            raise self._build_error(value, origin, reason)

    def _build_error(self, raw: object, origin: str, reason: str, hint: str = "") -> InvalidSetting:
        text = repr(raw)
        shown = "…" if self.secret else text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
        return InvalidSetting(f"{self.name} = {shown} ({origin}) is invalid: {reason}.", hint=hint or self.help)


def setting(default: T, text: str, **limits: Any) -> T:
    """Declare a field of a settings class, with its help text and further fields of `Setting`.

    Returns a dataclass field; typed as its value, as `dataclasses.field` is.
    """
    return field(default=default, repr=not limits.get("secret"), metadata={"help": text, **limits})


def list_settings(cls: type, *, dotted: bool) -> Mapping[str, Setting]:
    """The settings of a settings class by name. With `dotted`, the first underscore of a field is a dot."""
    definitions = {}
    for item in fields(cls):
        name = item.name.replace("_", ".", 1) if dotted else item.name
        kind: Any = get_origin(item.type) or item.type
        default: Any = item.default
        definitions[name] = Setting(name, kind, default, **item.metadata)
    return definitions


def build_unknown_error(name: str, origin: str, known: Iterable[str]) -> InvalidSetting:
    """The error for an unknown setting, with the closest known name."""
    import difflib  # noqa: PLC0415 - only for an error

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        hint = f"Did you mean {close[0]}?"
    elif len(names) > _MAX_LISTED_NAMES:
        hint = "Remove it; `wikiholt settings` lists the settings."
    else:
        hint = f"Known settings: {', '.join(names)}."
    return InvalidSetting(f"There is no setting {name!r} ({origin}).", hint=hint)


def _convert_typed(raw: object, kind: type) -> SettingValue | None:
    """Convert a typed value from TOML or code. None if the type is wrong."""
    if isinstance(raw, bool):
        return raw if kind is bool else None
    if kind is float and isinstance(raw, int):
        return float(raw)
    if kind is tuple and isinstance(raw, list | tuple):
        return tuple(raw) if all(isinstance(item, str) for item in raw) else None
    return raw if isinstance(raw, kind) and isinstance(raw, str | int | float | Path) else None


def _parse_text(raw: str, kind: type) -> SettingValue | None:
    """Parse a text value from the environment or the command line. None if it is malformed."""
    text = raw.strip()
    if kind is Path:
        return _parse_path(text)
    if kind is tuple:
        return tuple(part.strip() for part in re.split("[,\n]", raw) if part.strip())
    if kind is bool:
        return text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else None
    if not _NUMBER_PATTERN.fullmatch(text) or not text.isascii():
        return None
    if kind is int:
        return int(text) if "." not in text else None
    return float(text)


def _parse_path(text: str) -> Path | None:
    try:
        return Path(text).expanduser() if text and "\0" not in text else None
    except RuntimeError:  # `~name` of an unknown user
        return None


# Checks of text values. Each returns the reason why a value is invalid, or an empty string.


def allow_empty(check: Callable[[str], str]) -> Callable[[str], str]:
    """The same check, which also accepts an empty text."""
    return lambda text: check(text) if text else ""


def check_url_template(template: str) -> str:
    """The template of a link; it must contain {path} and no other placeholder."""
    if "{path}" not in template:
        return "it must contain {path}"
    unknown = [name for name in re.findall(r"\{[^{}]*\}", template) if name != "{path}"]
    if unknown:
        return f"{unknown[0]} is not a known placeholder, only {{path}} is"
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):", template)
    return "a link must be http or https" if scheme and scheme[1].lower() not in ("http", "https") else ""


def check_edit_url(template: str) -> str:
    """The address of an editor for a page, or empty."""
    if not template or (
        template.startswith(("http://", "https://")) and ("{file}" in template or "{path}" in template)
    ):
        return ""
    return "it is not an http address that contains {file} or {path}"


def check_domain(domain: str) -> str:
    """The parent domain of the wikis' host names; may be empty."""
    label = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    if not domain or re.fullmatch(rf"{label}(?:\.{label})*", domain):
        return ""
    return "it is not a host name in lower case"


def check_directory(directory: str) -> str:
    """A directory, which need not exist."""
    try:
        path = str(Path(directory).expanduser())
    except RuntimeError:  # `~name` of an unknown user
        return "there is no such user"
    return "" if path.strip(" .") and "\0" not in directory else "it is not a directory name"


def _check_host(url: str, credentials_advice: str) -> str:
    """The reason why this is not an http or https URL with a host and without credentials; may be empty."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is not a URL"
    if url and not (parts.scheme in ("http", "https") and has_host and url.isprintable() and " " not in url):
        return "it must be http:// or https:// and a host"
    return credentials_advice if parts.username or parts.password else ""


def check_server_url(url: str) -> str:
    """The URL of a server without path, query or credentials; may be empty."""
    if problem := _check_host(url, "put the secret into chroma.token"):
        return problem
    parts = urlsplit(url)
    return "" if parts.path in ("", "/") and not parts.query and not parts.fragment else "it must end after the port"


def check_api_url(url: str) -> str:
    """The base URL of an API, with a path but without credentials, query or fragment; may be empty."""
    advice = "put the key into the variable that embedding.key_variable, rerank.key_variable or ask.key_variable names"
    if problem := _check_host(url, advice):
        return problem
    return "it must not contain ? or #" if urlsplit(url).query or urlsplit(url).fragment else ""


def check_language_model(name: str) -> str:
    """The name of a language model on a server; may be empty."""
    return "" if not name or re.fullmatch(r"openai:\S+", name) else "it must be openai: and the name of a model"


def check_store_address(address: str) -> str:
    """The URL of a database; may be empty. The reason never repeats the URL, because it contains a password."""
    if not address:
        return ""
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("postgresql", "postgres") and (parts.netloc or parts.path or parts.query)
    except ValueError:
        return "it is not a URL"
    return "" if is_valid and "://" in address and address.isprintable() else "it must begin with postgresql://"


def check_resource_url(url: str) -> str:
    """The public URL of this service; may be empty."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it must be http:// or https:// and a host"
    return "it must not end with / or contain ?, # or @" if re.search(r"[?#@]|/$", url) else ""


def check_header_name(name: str) -> str:
    """The name of an HTTP header; may be empty."""
    return "" if re.fullmatch(r"[A-Za-z0-9-]*", name) else "it is not the name of a header"


def check_provider_url(url: str) -> str:
    """An https URL without query; http is allowed for this machine. May be empty."""
    return check_jwks_location(url) if not url or ("://" in url and not re.search(r"[?#@\s]", url)) else _NOT_HTTPS


_NOT_HTTPS = "it must begin with https:// and must not contain ?, # or @"


def check_jwks_location(location: str) -> str:
    """A file or an https URL; http is allowed for this machine. May be empty."""
    if "://" not in location:
        return check_directory(location) if location else ""
    parts = urlsplit(location)
    is_local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    return (
        "" if is_local or (parts.scheme == "https" and parts.hostname) else "it must be a file or begin with https://"
    )


def check_chroma_name(name: str) -> str:
    """The name of a Chroma tenant or database."""
    is_valid = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]", name)
    return "" if is_valid else "it must be 3 or more letters, digits, dots, hyphens or underscores"


_MIN_BOOST, _MAX_BOOST = 0.1, 10.0


def check_boost_rule(text: str) -> str:
    """The reason why a boost rule is invalid, or an empty string."""
    pattern, _, factor = text.rpartition("=")
    try:
        is_valid = bool(pattern.strip()) and _MIN_BOOST <= float(factor) <= _MAX_BOOST
    except ValueError:
        is_valid = False
    return "" if is_valid else f"write PATTERN=FACTOR with a factor from {_MIN_BOOST} to {_MAX_BOOST:.0f}: /runbooks=2"


def check_file_kind(text: str) -> str:
    """The reason why this names no kind of documents, or an empty string."""
    is_known = text.lower().removeprefix(".") in FILE_KINDS
    return "" if is_known else f"{text[:40]!r} is none of {', '.join(FILE_KINDS)}"
