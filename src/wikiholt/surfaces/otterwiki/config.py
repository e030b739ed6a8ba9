"""What the wiki's owner has set: WIKIHOLT_* in the environment or, weaker, in Otterwiki's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wikiholt.errors import InvalidSetting
from wikiholt.settings import Settings, load_settings
from wikiholt.surfaces.otterwiki.moving import translate_legacy_settings

_SETTING_PREFIX = "WIKIHOLT_"
_PLUGIN_PREFIX = "WIKIHOLT_OTTERWIKI_"
_FALSE_VALUES = ("false", "no", "off", "0")
_PLUGIN_OPTION_NAMES = ("RESOLVER", "HIDE", "DROPDOWN")


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What is set for the plugin alone."""

    resolver: str = ""
    """`module:function` that says which wiki a request is about."""
    hide: str | None = None
    """Patterns of pages that no search shall find; None where nothing is said."""
    dropdown: bool = True
    """Whether the search box shows results as one types."""


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """All that was set when the wiki was started, as texts."""

    options: PluginOptions
    values: Mapping[str, str]
    default_data_directory: Path
    """Where data lie unless set: beside the repository."""

    @classmethod
    def from_environment(cls, config: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """Read it, without judging it; never raises."""
        given = {name: _to_text(value) for name, value in config.items() if name.startswith(_SETTING_PREFIX)}
        given |= {name: text for name, text in environ.items() if name.startswith(_SETTING_PREFIX) and text.strip()}
        hide = given.get(f"{_PLUGIN_PREFIX}HIDE")
        options = PluginOptions(
            resolver=given.get(f"{_PLUGIN_PREFIX}RESOLVER", "").strip(),
            hide=None if hide is None else hide.strip(),
            dropdown=given.get(f"{_PLUGIN_PREFIX}DROPDOWN", "").strip().lower() not in _FALSE_VALUES,
        )
        beside = Path(str(config.get("REPOSITORY") or ".")).absolute().parent / "wikiholt"
        return cls(options, translate_legacy_settings(environ) | given, beside)

    def load_settings(self) -> Settings:
        """Wikiholt's general settings; raises InvalidSetting."""
        odd = [name for name in self.values if name.startswith(_PLUGIN_PREFIX) and name.removeprefix(_PLUGIN_PREFIX) not in _PLUGIN_OPTION_NAMES]
        if odd:
            known = ", ".join(_PLUGIN_PREFIX + name for name in _PLUGIN_OPTION_NAMES)
            raise InvalidSetting(f"There is no setting {odd[0]!r}.", hint=f"Known are {known}.")
        general = {name: text for name, text in self.values.items() if not name.startswith(_PLUGIN_PREFIX)}
        # Several workers share the machine with the wiki itself: each syncs one wiki at a time.
        return load_settings(environ={"WIKIHOLT_DATA": str(self.default_data_directory), "WIKIHOLT_SYNC_WORKERS": "1"} | general)


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
