"""Loads the settings. Defaults are overridden by the settings file, then the environment, then arguments."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wikiholt.api.settings.definitions import SETTINGS, Settings
from wikiholt.api.settings.setting import SettingValue, build_unknown_error
from wikiholt.errors import InvalidSetting

SETTINGS_FILE = "wikiholt.toml"
LOCAL_DATA_DIRECTORY = "wikiholt-data"
"""A directory of this name is preferred to the user's data directory."""
ROOT_USER_ID = 0
_CONFIG_VARIABLE = "WIKIHOLT_CONFIG"
# Kubernetes and Docker set variables like these for a service named wikiholt; they are not settings.
# The Otterwiki plugin reads its own variables.
_IGNORED_VARIABLES_PATTERN = re.compile(
    r"WIKIHOLT_(?:SERVICE_(?:HOST|PORT)(?:_.*)?|PORT(?:_\d+_.*)?|NAME|ENV_.*|OTTERWIKI_.*)"
)
_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS.values()}


def load_settings(
    data: Path | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Load and check the settings. `overrides` are by name; `data` and `config` override all other sources.

    The settings file is optional unless it is named. Raises InvalidSetting.
    """
    arguments = dict(overrides or {}) | ({"data": data} if data is not None else {})
    overriding = _read_environment(environ or {}) | _read_arguments(arguments)
    named = (environ or {}).get(_CONFIG_VARIABLE, "").strip()
    named_file = config or (Path(named).expanduser() if named else None)
    if named_file is not None:
        from_file = _read_file(named_file, required=True)
    else:
        if "data" not in overriding:
            overriding["data"] = find_data_directory(Path.cwd())
        directory = Path(str(overriding["data"]))
        from_file = _read_file(directory / SETTINGS_FILE, required=False)
        if "data" in from_file:
            raise InvalidSetting(
                f"data cannot be set in the {SETTINGS_FILE} of the data directory itself.",
                hint="Remove it, or name the file with --config.",
            )
    values = from_file | overriding
    if "data" not in values:
        values["data"] = find_data_directory(Path.cwd())
    if values.get("chroma.layout") == "seed":
        # The programs that read such collections embed their queries with it.
        values.setdefault("model", "all-MiniLM-L6-v2")
    values["data"] = Path(str(values["data"])).absolute()  # git runs in other directories
    fields: dict[str, Any] = {SETTINGS[name].attribute: value for name, value in values.items()}
    return _check_consistent(Settings(**fields))


def find_data_directory(folder: Path) -> Path:
    """The data directory if nothing names one: `wikiholt-data` in the folder or the nearest folder above it that has
    one, else the directory `wikiholt` of the user's data directory ($XDG_DATA_HOME, by default ~/.local/share).

    Raises InvalidSetting if the folder's own belongs to another user; above the folder such directories are ignored.
    """
    for directory in (folder, *folder.parents):
        path = directory / LOCAL_DATA_DIRECTORY
        if not path.is_dir():
            continue
        # Its settings file names models and databases: in a shared directory such as /tmp, anybody could create one.
        if path.stat().st_uid in (os.geteuid(), ROOT_USER_ID):
            return path
        if directory == folder:
            raise InvalidSetting(f"{path} belongs to another user.", hint="To use it anyway, name it with --data.")
    import platformdirs  # noqa: PLC0415 - not needed by most services, which name their directory

    return platformdirs.user_data_path("wikiholt", appauthor=False)


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
            hint="Set chroma.path = chroma for a Chroma that Wikiholt starts, or chroma.url for a running server.",
        )
    if settings.oauth_issuers and not (settings.oauth_resource and settings.oauth_jwks):
        raise InvalidSetting(
            "oauth.issuers needs oauth.resource and oauth.jwks.",
            hint="Set the public URL of this service, and the location of the issuers' public keys.",
        )
    if settings.mcp_oauth and not settings.oauth_resource:
        raise InvalidSetting("mcp.oauth needs oauth.resource.", hint="Set the public URL of this service.")
    return settings


def _read_arguments(arguments: Mapping[str, object]) -> dict[str, SettingValue]:
    values = {}
    for name, raw in arguments.items():
        if name not in SETTINGS:
            raise build_unknown_error(name, "command-line argument", SETTINGS)
        values[name] = SETTINGS[name].parse(raw, "command-line argument")
    return values


def _read_environment(environ: Mapping[str, str]) -> dict[str, SettingValue]:
    """Parse the variables of the environment. An empty variable counts as not set."""
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


def _read_file(path: Path, *, required: bool) -> dict[str, SettingValue]:
    try:
        text = path.read_text("utf-8")
        import tomllib  # noqa: PLC0415 - most installations have no settings file

        document = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not required:
            return {}
        raise InvalidSetting(f"There is no settings file {path}.", hint="Check the path.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"The settings file {path} cannot be read: {error}.", hint="It must be TOML.") from error
    values = {}
    for name, raw in _flatten(document):
        if name not in SETTINGS:
            raise build_unknown_error(name, f"in {path}", SETTINGS)
        setting = SETTINGS[name]
        # TOML has types: a quoted number is a mistake worth its own message.
        if isinstance(raw, str) and setting.kind not in (str, Path):
            raise InvalidSetting(f"{name} = {raw!r} (in {path}) must not be quoted.", hint=f"Write {name} = {raw}.")
        value = setting.parse(raw, f"in {path}")
        values[name] = Path(os.path.normpath(path.parent / value)) if isinstance(value, Path) else value
    return values


def _flatten(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The values of a TOML document by dotted name."""
    for key, value in document.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in SETTINGS:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
