"""One setting: what it is called, what it may be, and how a value given for it is understood or refused."""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from wikiholt.errors import InvalidSetting

SettingValue = str | int | float | bool | Path | tuple[str, ...]

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NUMBER_PATTERN = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?")
_KIND_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    tuple: "a list of texts",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table of settings; `check` returns what is wrong with a value, or nothing."""

    name: str
    kind: type
    default: SettingValue
    help: str
    choices: tuple[str, ...] = ()
    minimum: float = -math.inf
    maximum: float = math.inf
    check: Callable[[str], str] | None = None
    secret: bool = False
    """Whether its value is never shown."""

    @property
    def attribute(self) -> str:
        """The name of the setting as a field."""
        return self.name.replace(".", "_")

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return f"WIKIHOLT_{self.attribute.upper()}"

    def parse(self, raw: object, origin: str) -> SettingValue:
        """The value, checked; `origin` says where it came from if it has to be refused."""
        value = (
            _parse_text(raw, self.kind)
            if isinstance(raw, str) and self.kind is not str
            else _convert_typed(raw, self.kind)
        )
        if value is None:
            raise self._build_error(raw, origin, f"it must be {_KIND_NAMES[self.kind]}")
        for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
            self._check_text(text, origin)
        if isinstance(value, str | tuple):
            return value
        if isinstance(value, int | float) and not self.minimum <= value <= self.maximum:
            raise self._build_error(raw, origin, f"it must be {self.describe_bounds()}")
        return value

    def describe_bounds(self) -> str:
        """The allowed range, in words."""
        if self.maximum == math.inf:
            return f"at least {self.minimum:,}" if self.minimum > -math.inf else "any number"
        return f"between {self.minimum:,} and {self.maximum:,}"

    def _check_text(self, value: str, origin: str) -> None:
        if self.choices and value not in self.choices:
            near = difflib.get_close_matches(value.lower(), self.choices, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            raise self._build_error(
                value, origin, "it is not known", f"{meant}Known are {', '.join(filter(None, self.choices))}."
            )
        wrong = self.check(value) if self.check else ""
        if wrong:
            raise self._build_error(value, origin, wrong)

    def _build_error(self, raw: object, origin: str, reason: str, hint: str = "") -> InvalidSetting:
        shown = "…" if self.secret else repr(raw) if len(repr(raw)) <= 80 else repr(raw)[:80] + "…"
        return InvalidSetting(f"{self.name} = {shown} ({origin}) cannot be used: {reason}.", hint=hint or self.help)


def build_unknown_error(name: str, origin: str, known: Iterable[str]) -> InvalidSetting:
    """The error for a setting that does not exist, with the one that was probably meant."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known settings: {', '.join(known)}."
    return InvalidSetting(f"There is no setting {name!r} ({origin}).", hint=hint)


def _convert_typed(raw: object, kind: type) -> SettingValue | None:
    """A value that has a type already, from TOML or from code; None when the type is wrong."""
    if isinstance(raw, bool):
        return raw if kind is bool else None
    if kind is float and isinstance(raw, int):
        return float(raw)
    if kind is tuple and isinstance(raw, list | tuple):
        return tuple(raw) if all(isinstance(item, str) for item in raw) else None
    return raw if isinstance(raw, kind) and isinstance(raw, str | int | float | Path) else None


def _parse_text(raw: str, kind: type) -> SettingValue | None:
    """A value written as text, in the environment or on a command line; None when it cannot be read."""
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
    except RuntimeError:  # `~somebody` who does not exist
        return None


# What is wrong with the value of a setting, in words; an empty text if nothing is.


def check_url_template(template: str) -> str:
    """What is wrong with the template of a link, or nothing."""
    if "{path}" not in template:
        return "it must contain {path}"
    odd = [name for name in re.findall(r"\{[^{}]*\}", template) if name != "{path}"]
    if odd:
        return f"{odd[0]} is not known, only {{path}} is"
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):", template)
    return "a link must be http or https" if scheme and scheme[1].lower() not in ("http", "https") else ""


def check_domain(domain: str) -> str:
    """What is wrong with the domain that wikis' host names end in, or nothing."""
    label = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    return (
        "" if not domain or re.fullmatch(rf"{label}(?:\.{label})*", domain) else "it is no host name in small letters"
    )


def check_directory(directory: str) -> str:
    """What is wrong with a directory, or nothing."""
    try:
        return (
            "" if str(Path(directory).expanduser()).strip(" .") and "\0" not in directory else "it names no directory"
        )
    except RuntimeError:  # `~somebody` who does not exist
        return "there is no such user"


def check_server_url(url: str) -> str:
    """What is wrong with the address of a server, or nothing."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("http", "https") or not named:
        return "it must be http:// or https:// and a host"
    if parts.username or parts.password:
        return "a secret belongs into chroma.token"
    return "" if parts.path in ("", "/") and not parts.query and not parts.fragment else "it must end after the port"


def check_store_address(address: str) -> str:
    """What is wrong with the address of a database, or nothing; it is never repeated, for it holds a password."""
    if not address:
        return ""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("postgresql", "postgres") and (parts.netloc or parts.path or parts.query)
    except ValueError:
        return "it is no address"
    return "" if good and "://" in address and address.isprintable() else "it must begin with postgresql://"


def check_resource_url(url: str) -> str:
    """What is wrong with the address that this service is reached by, or nothing."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it must be http:// or https:// and a host"
    return "it must end without / and have no ?, # or @" if re.search(r"[?#@]|/$", url) else ""


def check_jwks_location(location: str) -> str:
    """What is wrong with the place of public keys, or nothing."""
    if "://" not in location:
        return check_directory(location) if location else ""
    parts = urlsplit(location)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    return "" if local or (parts.scheme == "https" and parts.hostname) else "it must be a file or begin with https://"


def check_chroma_name(name: str) -> str:
    """What is wrong with a name of Chroma's, or nothing."""
    good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]", name)
    return "" if good else "it must be 3 or more letters, digits, dots, hyphens or underscores"
