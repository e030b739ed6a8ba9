"""Settings from four places, each stronger than the one before: defaults, the file, the environment, arguments."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from wikiholt.app.settings.setting_definition import SettingValue, build_unknown_error
from wikiholt.app.settings.table import SETTINGS, WIKI_SETTINGS
from wikiholt.errors import InvalidSetting

SETTINGS_FILE = "wikiholt.toml"
_CONFIG_VARIABLE = "WIKIHOLT_CONFIG"
# Container platforms announce a service called wikiholt by variables like these; they are no settings.
# Those of the plugin for Otterwiki are read there; commands run beside it.
_IGNORED_VARIABLES_PATTERN = re.compile(
    r"WIKIHOLT_(?:SERVICE_(?:HOST|PORT)(?:_.*)?|PORT(?:_\d+_.*)?|NAME|ENV_.*|OTTERWIKI_.*)"
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked. Dots in a name are underscores here."""

    data: Path
    store: str = field(repr=False)
    postgres_lease: float
    postgres_connections: int
    postgres_hnsw_from: int
    model: str
    precision: str
    threads: int
    rerank_model: str
    rerank_budget: int
    chunk_target_tokens: int
    chunk_overlap_tokens: int
    language: str
    languages: tuple[str, ...]
    anchors: str
    url: str
    vectors: str
    faiss_crossover: int
    chroma_url: str
    chroma_path: str
    chroma_tenant: str
    chroma_database: str
    chroma_layout: str
    chroma_timeout: float
    chroma_token: str = field(repr=False)
    page_max_bytes: int
    lock_timeout: float
    search_fresh_timeout: float
    serve_host: str
    serve_port: int
    serve_domain: str
    serve_hosts: tuple[str, ...]
    serve_public: bool
    serve_trusted_proxies: tuple[str, ...]
    serve_cors_origins: tuple[str, ...]
    sync_interval: float
    sync_workers: int
    sync_slice: float
    discover_interval: float
    backup_place: str
    backup_interval: float
    backup_keep: int
    check_interval: float
    remote_schemes: tuple[str, ...]
    remote_allow_private: bool
    remote_timeout: float
    remote_max_bytes: int
    limit_key_per_minute: int
    limit_address_per_minute: int
    limit_body_bytes: int
    mcp_max_tokens: int
    mcp_aliases: bool
    oauth_issuers: tuple[str, ...]
    oauth_resource: str
    oauth_jwks: str
    queries_log: bool
    queries_keep: float
    queries_most: int
    search_stale_check: bool
    log_level: str


def load_settings(
    data: Path | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings that hold; `overrides` are by name, `data` and `config` win over everything; no file is needed."""
    arguments = dict(overrides or {}) | ({"data": data} if data is not None else {})
    given = _read_environment(environ or {})
    strong = given | _read_arguments(arguments)
    named = config or _get_named_file(environ or {})
    if named is not None:
        weak = _read_file(named, required=True)
    else:
        weak = _read_file(Path(str(strong.get("data", _BY_NAME["data"].default))) / SETTINGS_FILE, required=False)
        if "data" in weak:
            raise InvalidSetting(
                f"data cannot be set in the {SETTINGS_FILE} that lies in the data directory itself.",
                hint="Take it out, or name the file with --config.",
            )
    values = {setting.name: setting.default for setting in SETTINGS} | weak | strong
    fields: dict[str, Any] = {_BY_NAME[name].attribute: value for name, value in values.items()}
    return _check_consistent(Settings(**fields))


def _check_consistent(settings: Settings) -> Settings:
    if settings.chunk_overlap_tokens >= settings.chunk_target_tokens:
        raise InvalidSetting(
            f"chunk.overlap_tokens ({settings.chunk_overlap_tokens}) must be less than "
            f"chunk.target_tokens ({settings.chunk_target_tokens}).",
            hint="A quarter of the target is a good overlap.",
        )
    if settings.vectors == "store" and not settings.store:
        raise InvalidSetting(
            "vectors = store needs a store in PostgreSQL.", hint="Leave vectors at auto, or set store = postgresql://…"
        )
    if settings.vectors == "chroma" and bool(settings.chroma_url) == bool(settings.chroma_path):
        raise InvalidSetting(
            "vectors = chroma needs either chroma.url or chroma.path" + (", not both." if settings.chroma_url else "."),
            hint="Set chroma.path = chroma for a Chroma of Wikiholt's own, or chroma.url for a server that runs.",
        )
    if settings.oauth_issuers and not (settings.oauth_resource and settings.oauth_jwks):
        raise InvalidSetting(
            "oauth.issuers needs oauth.resource and oauth.jwks.",
            hint="Say where this service is reached, and where the issuers' public keys are.",
        )
    return settings


def _read_arguments(arguments: Mapping[str, object]) -> dict[str, SettingValue]:
    values = {}
    for name, raw in arguments.items():
        if name not in _BY_NAME:
            raise build_unknown_error(name, "given as an argument", _BY_NAME)
        values[name] = _BY_NAME[name].parse(raw, "given as an argument")
    return values


def _read_environment(environ: Mapping[str, str]) -> dict[str, SettingValue]:
    """The settings in the environment; an empty variable counts as not set."""
    values = {}
    for variable, raw in environ.items():
        if not variable.startswith("WIKIHOLT_") or variable == _CONFIG_VARIABLE:
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is not None and raw.strip():
            values[setting.name] = setting.parse(raw, f"environment variable {variable}")
        elif setting is None and not _IGNORED_VARIABLES_PATTERN.fullmatch(variable):
            raise build_unknown_error(variable, "in the environment", _BY_VARIABLE)
    return values


def _get_named_file(environ: Mapping[str, str]) -> Path | None:
    text = environ.get(_CONFIG_VARIABLE, "").strip()
    return Path(text).expanduser() if text else None


def _read_file(path: Path, *, required: bool) -> dict[str, SettingValue]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not required:
            return {}
        raise InvalidSetting(f"There is no settings file {path}.", hint="Check the path.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"The settings file {path} cannot be read: {error}.", hint="It must be TOML.") from error
    values = {}
    for name, raw in _flatten(document):
        if name not in _BY_NAME:
            raise build_unknown_error(name, f"in {path}", _BY_NAME)
        setting = _BY_NAME[name]
        # In a file a number is a number: "200" in quotes is a slip worth naming.
        if isinstance(raw, str) and setting.kind not in (str, Path):
            raise InvalidSetting(f"{name} = {raw!r} (in {path}) is in quotes.", hint=f"Write {name} = {raw}.")
        value = setting.parse(raw, f"in {path}")
        values[name] = Path(os.path.normpath(path.parent / value)) if isinstance(value, Path) else value
    return values


def _flatten(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The keys of a TOML document with dots, tables opened."""
    for key, value in document.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in _BY_NAME:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# The settings of one wiki, kept as texts in the registry.


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
