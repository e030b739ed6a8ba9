"""The settings of one wiki, kept as texts in the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from wikiholt.settings.setting import build_unknown_error
from wikiholt.settings.table import WIKI_SETTINGS


@dataclass(frozen=True, slots=True)
class WikiSettings:
    """What one wiki has of its own; an empty text means the general setting."""

    subdirectory: str = ""
    ignore: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    language: str = ""
    languages: tuple[str, ...] = ()
    anchors: str = ""
    url: str = ""
    public: str = ""
    log_queries: str = ""
    hosts: tuple[str, ...] = ()
    confined: str = ""
    interval: float = 0.0
    webhook_secret: str = ""

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Self:
        """Understand the texts of the registry or the command line; raises InvalidSetting."""
        known = {setting.name: setting for setting in WIKI_SETTINGS}
        fields: dict[str, Any] = {}
        for name, text in settings.items():
            if name not in known:
                raise build_unknown_error(name, "setting of a wiki", known)
            fields[name] = known[name].parse(text, "setting of a wiki")
        return cls(**fields)
