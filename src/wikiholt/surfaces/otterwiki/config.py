"""What the wiki's owner has set: WIKIHOLT_* in the environment or, weaker, in Otterwiki's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wikiholt.errors import InvalidSetting
from wikiholt.settings import Settings, load
from wikiholt.surfaces.otterwiki.moving import understood

_PREFIX = "WIKIHOLT_"
_OWN = "WIKIHOLT_OTTERWIKI_"
_FALSE = ("false", "no", "off", "0")
_KNOWN = ("RESOLVER", "HIDE", "DROPDOWN")


@dataclass(frozen=True, slots=True)
class Options:
    """What is set for the plugin alone."""

    resolver: str = ""
    """`module:function` that says which wiki a request is about."""
    hide: str | None = None
    """Patterns of pages that no search shall find; None where nothing is said."""
    dropdown: bool = True
    """Whether the search box shows results as one types."""


@dataclass(frozen=True, slots=True)
class Config:
    """All that was set when the wiki was started, as texts."""

    options: Options
    given: Mapping[str, str]
    beside: Path
    """Where data lie unless set: beside the repository."""

    @classmethod
    def of(cls, config: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """Read it, without judging it; never raises."""
        given = {name: _text(value) for name, value in config.items() if name.startswith(_PREFIX)}
        given |= {name: text for name, text in environ.items() if name.startswith(_PREFIX) and text.strip()}
        hide = given.get(f"{_OWN}HIDE")
        options = Options(
            resolver=given.get(f"{_OWN}RESOLVER", "").strip(),
            hide=None if hide is None else hide.strip(),
            dropdown=given.get(f"{_OWN}DROPDOWN", "").strip().lower() not in _FALSE,
        )
        beside = Path(str(config.get("REPOSITORY") or ".")).absolute().parent / "wikiholt"
        return cls(options, understood(environ) | given, beside)

    def settings(self) -> Settings:
        """Wikiholt's general settings; raises InvalidSetting."""
        odd = [name for name in self.given if name.startswith(_OWN) and name.removeprefix(_OWN) not in _KNOWN]
        if odd:
            known = ", ".join(_OWN + name for name in _KNOWN)
            raise InvalidSetting(f"There is no setting {odd[0]!r}.", hint=f"Known are {known}.")
        general = {name: text for name, text in self.given.items() if not name.startswith(_OWN)}
        # Several workers share the machine with the wiki itself: each syncs one wiki at a time.
        return load(environ={"WIKIHOLT_DATA": str(self.beside), "WIKIHOLT_SYNC_WORKERS": "1"} | general)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
