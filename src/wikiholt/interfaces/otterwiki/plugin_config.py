"""Moving from otterwiki-semantic-search: its environment variables are understood, or named with what to do."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wikiholt.app.settings.definitions import Settings
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting

_log = logging.getLogger(__name__)

_STORAGE_ADVICE = (
    "Wikiholt keeps its index in SQLite beside the repository; unset it, or set WIKIHOLT_DATA to say where"
)
_CHROMA_ADVICE = f"{_STORAGE_ADVICE}. With WIKIHOLT_VECTORS=chroma nearest passages are looked for in Chroma"
_MODEL_ADVICE = (
    "Wikiholt brings all-MiniLM-L6-v2; for another model set WIKIHOLT_MODEL to the directory of an ONNX model"
)
_ADVICE_BY_VARIABLE = {
    "CHROMADB_MODE": _CHROMA_ADVICE,
    "CHROMADB_HOST": _CHROMA_ADVICE,
    "CHROMADB_PORT": _CHROMA_ADVICE,
    "CHROMADB_PATH": _CHROMA_ADVICE,
    "CHROMA_COLLECTION": f"every wiki has an index of its own. {_CHROMA_ADVICE}",
    "FAISS_INDEX_DIR": _STORAGE_ADVICE,
    "BEDROCK_EMBED_DIMENSIONS": _MODEL_ADVICE,
}
_DEFAULT_MODEL_NAMES = ("all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")

_CONFLICTING_PACKAGES = {"otterwiki_semantic_search": "otterwiki-semantic-search", "otterwiki_api": "otterwiki-api"}


def translate_legacy_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Our settings that its variables stand for; never raises."""
    interval = environ.get("CHROMA_SYNC_INTERVAL", "").strip()
    usable = interval.isdecimal() and 1 <= int(interval) <= 86_400
    return {"WIKIHOLT_SYNC_INTERVAL": interval} if usable else {}


def log_legacy_advice(environ: Mapping[str, str]) -> list[str]:
    """Log what to do about variables of it that mean nothing here, and about itself; returns the lines."""
    lines = [
        f"{name} is not used: {text}." for name, text in _ADVICE_BY_VARIABLE.items() if environ.get(name, "").strip()
    ]
    if environ.get("VECTOR_BACKEND", "").strip().lower() not in ("", "faiss"):
        lines.append(f"VECTOR_BACKEND is not used: {_CHROMA_ADVICE}.")
    if environ.get("EMBEDDING_MODEL", "").strip().lower() not in ("", "local", "onnx"):
        lines.append(f"EMBEDDING_MODEL is not used: {_MODEL_ADVICE}.")
    if environ.get("SENTENCE_TRANSFORMER_MODEL", "").strip().lower() not in ("", *_DEFAULT_MODEL_NAMES):
        lines.append(f"SENTENCE_TRANSFORMER_MODEL is not used: {_MODEL_ADVICE}.")
    if environ.get("CHROMA_SYNC_INTERVAL", "").strip() and not translate_legacy_settings(environ):
        lines.append("CHROMA_SYNC_INTERVAL is not used: it is no number of seconds; set WIKIHOLT_SYNC_INTERVAL.")
    for module, package in _CONFLICTING_PACKAGES.items():
        if module in sys.modules:
            lines.append(
                f"{package} is installed as well and may answer in Wikiholt's place under /api/v1: uninstall it."
            )
    for line in lines:
        _log.warning("Wikiholt: %s", line)
    return lines


# What the wiki's owner has set: WIKIHOLT_* in the environment or, weaker, in Otterwiki's own settings.


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
        odd = [
            name
            for name in self.values
            if name.startswith(_PLUGIN_PREFIX) and name.removeprefix(_PLUGIN_PREFIX) not in _PLUGIN_OPTION_NAMES
        ]
        if odd:
            known = ", ".join(_PLUGIN_PREFIX + name for name in _PLUGIN_OPTION_NAMES)
            raise InvalidSetting(f"There is no setting {odd[0]!r}.", hint=f"Known are {known}.")
        general = {name: text for name, text in self.values.items() if not name.startswith(_PLUGIN_PREFIX)}
        # Several workers share the machine with the wiki itself: each syncs one wiki at a time.
        return load_settings(
            environ={"WIKIHOLT_DATA": str(self.default_data_directory), "WIKIHOLT_SYNC_WORKERS": "1"} | general
        )


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
