"""What the wiki's owner has set: WIKIHOLT_* in the environment or, weaker, in Otterwiki's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wikiholt.settings import Settings, load

_PREFIX = "WIKIHOLT_"
_OWN = "WIKIHOLT_OTTERWIKI_"
_FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Options:
    """What is set for the plugin alone."""

    resolver: str = ""
    """`module:function` that says which wiki a request is about."""
    hide: str = ""
    """Patterns of pages that no search shall find."""
    dropdown: bool = True
    """Whether the search box shows results as one types."""


def options(config: Mapping[str, object], environ: Mapping[str, str]) -> Options:
    """The plugin's own options; never raises."""
    given = _given(config, environ)
    return Options(
        resolver=given.get(f"{_OWN}RESOLVER", "").strip(),
        hide=given.get(f"{_OWN}HIDE", "").strip(),
        dropdown=given.get(f"{_OWN}DROPDOWN", "true").strip().lower() not in _FALSE,
    )


def settings(config: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Wikiholt's general settings, with data beside the wiki's repository unless set; raises InvalidSetting."""
    given = {name: text for name, text in _given(config, environ).items() if not name.startswith(_OWN)}
    beside = Path(str(config["REPOSITORY"])).absolute().parent / "wikiholt"
    return load(environ={f"{_PREFIX}DATA": str(beside), "WIKIHOLT_SYNC_WORKERS": "1"} | given)


def _given(config: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, str]:
    """Every WIKIHOLT_* that is set, as text; an empty one counts as not set."""
    found = {name: _text(value) for name, value in config.items() if name.startswith(_PREFIX)}
    found |= {name: text for name, text in environ.items() if name.startswith(_PREFIX) and text.strip()}
    return {name: text for name, text in found.items() if text.strip()}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
