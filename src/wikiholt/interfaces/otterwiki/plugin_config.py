"""Configuration of the plugin, and advice for settings of otterwiki-semantic-search."""

import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wikiholt.api.settings.definitions import Settings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting
from wikiholt.text.dialect import (
    OTTERWIKI,
    OTTERWIKI_CASE,
    OTTERWIKI_LINK_TITLE,
    OTTERWIKI_LINK_TITLE_CASE,
    Dialect,
)

_log = logging.getLogger(__name__)

_STORAGE_ADVICE = (
    "Wikiholt keeps its index in SQLite beside the repository; unset it, or set WIKIHOLT_DATA to choose the directory"
)
_CHROMA_ADVICE = (
    f"{_STORAGE_ADVICE}. To search vectors in Chroma, set WIKIHOLT_VECTORS=chroma and WIKIHOLT_CHROMA_URL (a server) "
    "or WIKIHOLT_CHROMA_PATH (an empty directory)"
)
_CHROMA_SERVER_VARIABLES = ("VECTOR_BACKEND", "CHROMADB_HOST", "CHROMADB_PORT")
_CHROMA_SETTINGS = ("WIKIHOLT_VECTORS", "WIKIHOLT_CHROMA_URL", "WIKIHOLT_CHROMA_PATH")
_DEFAULT_CHROMA_PORT = "8000"
_MODEL_ADVICE = "Wikiholt includes wikiholt-1; for another model set WIKIHOLT_MODEL to its name or directory"
_UNUSED_VARIABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CHROMADB_MODE": (_CHROMA_ADVICE, ()),
    "CHROMADB_HOST": (_CHROMA_ADVICE, ()),
    "CHROMADB_PORT": (_CHROMA_ADVICE, ()),
    "CHROMADB_PATH": (_CHROMA_ADVICE, ()),
    "CHROMA_COLLECTION": (f"every wiki has its own index. {_CHROMA_ADVICE}", ()),
    "FAISS_INDEX_DIR": (_STORAGE_ADVICE, ()),
    "BEDROCK_EMBED_DIMENSIONS": (_MODEL_ADVICE, ()),
    "VECTOR_BACKEND": (_CHROMA_ADVICE, ("faiss",)),
    "EMBEDDING_MODEL": (_MODEL_ADVICE, ("local", "onnx")),
    "SENTENCE_TRANSFORMER_MODEL": (_MODEL_ADVICE, ("all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")),
}
"""The advice for each variable, and the values that need none."""

_CONFLICTING_PACKAGES = {"otterwiki_semantic_search": "otterwiki-semantic-search", "otterwiki_api": "otterwiki-api"}


def translate_legacy_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The Wikiholt settings that replace variables of otterwiki-semantic-search. Never raises."""
    interval = environ.get("CHROMA_SYNC_INTERVAL", "").strip()
    usable = interval.isdecimal() and 1 <= int(interval) <= 86_400
    return ({"WIKIHOLT_SYNC_INTERVAL": interval} if usable else {}) | _translate_chroma_server(environ)


def _translate_chroma_server(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings for the Chroma server of the old plugin, unless Wikiholt's own settings choose an engine."""
    backend, host, port = (environ.get(name, "").strip() for name in _CHROMA_SERVER_VARIABLES)
    port = port or _DEFAULT_CHROMA_PORT
    is_server = re.fullmatch(r"[A-Za-z0-9.-]+", host) and port.isdecimal() and 1 <= int(port) <= 65_535
    if backend.lower() != "chroma" or not is_server or any(environ.get(name, "").strip() for name in _CHROMA_SETTINGS):
        return {}
    return {"WIKIHOLT_VECTORS": "chroma", "WIKIHOLT_CHROMA_URL": f"http://{host}:{port}"}


def log_legacy_advice(environ: Mapping[str, str]) -> list[str]:
    """Log advice for unused variables and conflicting packages, and return the lines."""
    translated = translate_legacy_settings(environ)
    values = {name: environ.get(name, "").strip().lower() for name in _UNUSED_VARIABLES}
    used = _CHROMA_SERVER_VARIABLES if "WIKIHOLT_VECTORS" in translated else ()
    lines = [
        f"{name} is not used: {advice}."
        for name, (advice, accepted) in _UNUSED_VARIABLES.items()
        if name not in used and values[name] not in ("", *accepted)
    ]
    if values["VECTOR_BACKEND"] == "faiss":
        lines.append(
            "VECTOR_BACKEND=faiss is not used: the engine depends on the size; WIKIHOLT_VECTORS=faiss sets it."
        )
    if used:
        url = translated["WIKIHOLT_CHROMA_URL"]
        lines.append(f"VECTOR_BACKEND=chroma is used as WIKIHOLT_VECTORS=chroma and WIKIHOLT_CHROMA_URL={url}.")
    if environ.get("CHROMA_SYNC_INTERVAL", "").strip() and "WIKIHOLT_SYNC_INTERVAL" not in translated:
        lines.append("CHROMA_SYNC_INTERVAL is not used: it is not a number of seconds; set WIKIHOLT_SYNC_INTERVAL.")
    for module, package in _CONFLICTING_PACKAGES.items():
        if module in sys.modules:
            lines.append(
                f"{package} is installed too and may answer requests to /api/v1 instead of Wikiholt: uninstall it."
            )
    for line in lines:
        _log.warning("Wikiholt: %s", line)
    return lines


# Settings: WIKIHOLT_* in the environment takes precedence over Otterwiki's configuration


_SETTING_PREFIX = "WIKIHOLT_"
_PLUGIN_PREFIX = "WIKIHOLT_OTTERWIKI_"
_LINK_FIRST_STYLES = ("LINKTITLE", "PAGENAMETITLE")
_FALSE_VALUES = ("false", "no", "off", "0")
_PLUGIN_OPTION_NAMES = ("RESOLVER", "HIDE", "DROPDOWN")


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """All settings at the start of Otterwiki: those of the plugin itself, and the general ones as texts."""

    resolver: str
    """`module:function` that returns the wiki of a request."""
    hide: str | None
    """Patterns of pages to hide from search; None if not set."""
    dialect: str
    """The dialect of links, by Otterwiki's WIKILINK_STYLE and RETAIN_PAGE_NAME_CASE."""
    dropdown: bool
    """Whether the search box shows results while the user types."""
    values: Mapping[str, str]
    default_data_directory: Path
    """The data directory if WIKIHOLT_DATA is not set: beside the repository."""

    @classmethod
    def from_environment(cls, config: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """Read the settings without validation. Never raises."""
        values = {name: _to_text(value) for name, value in config.items() if name.startswith(_SETTING_PREFIX)}
        values |= {name: text for name, text in environ.items() if name.startswith(_SETTING_PREFIX) and text.strip()}
        hide = values.get(f"{_PLUGIN_PREFIX}HIDE")
        return cls(
            resolver=values.get(f"{_PLUGIN_PREFIX}RESOLVER", "").strip(),
            hide=None if hide is None else hide.strip(),
            dialect=get_dialect(config).name,
            dropdown=values.get(f"{_PLUGIN_PREFIX}DROPDOWN", "").strip().lower() not in _FALSE_VALUES,
            values=translate_legacy_settings({**environ, **values}) | values,
            default_data_directory=Path(str(config.get("REPOSITORY") or ".")).absolute().parent / "wikiholt",
        )

    def load_settings(self) -> Settings:
        """Load the general settings. Raises InvalidSetting."""
        unknown = [
            name
            for name in self.values
            if name.startswith(_PLUGIN_PREFIX) and name.removeprefix(_PLUGIN_PREFIX) not in _PLUGIN_OPTION_NAMES
        ]
        if unknown:
            known = ", ".join(_PLUGIN_PREFIX + name for name in _PLUGIN_OPTION_NAMES)
            raise InvalidSetting(f"Unknown setting {unknown[0]!r}.", hint=f"Known settings: {known}.")
        general = {name: text for name, text in self.values.items() if not name.startswith(_PLUGIN_PREFIX)}
        # Several workers share the machine with Otterwiki, so each syncs one wiki at a time.
        return load_settings(
            environ={"WIKIHOLT_DATA": str(self.default_data_directory), "WIKIHOLT_SYNC_WORKERS": "1"} | general
        )


def get_dialect(config: Mapping[str, object]) -> Dialect:
    """The dialect that Otterwiki has with this configuration."""
    link_style = _to_text(config.get("WIKILINK_STYLE")).upper().replace("_", "").strip()
    plain, with_case = (
        (OTTERWIKI_LINK_TITLE, OTTERWIKI_LINK_TITLE_CASE)
        if link_style in _LINK_FIRST_STYLES
        else (OTTERWIKI, OTTERWIKI_CASE)
    )
    return with_case if config.get("RETAIN_PAGE_NAME_CASE") else plain


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
