"""Renders docs/settings.md from the setting definitions."""

import sys
from collections.abc import Iterable
from pathlib import Path

from wikiholt.api.settings.definitions import SETTINGS, WIKI_SETTINGS
from wikiholt.api.settings.setting import Setting
from wikiholt.text.language_names import LANGUAGES

_INTRO = """\
# Settings

Every setting has a default. The settings file overrides the default, the environment overrides the file, and an
argument of the command overrides both.

- **File**: `wikiholt.toml` in the data directory, or the file named by `--config` or `WIKIHOLT_CONFIG`. Dots are
  tables: `chunk.target_tokens = 200`, or `target_tokens = 200` under `[chunk]`. A relative `data` is
  relative to the file.
- **Environment**: `WIKIHOLT_` and the name in capitals, dots as underscores: `WIKIHOLT_CHUNK_TARGET_TOKENS=200`. An
  empty variable counts as not set.
- **Argument**: `--set NAME=VALUE` before the command: `wikiholt --set threads=1 sync`. Repeatable.

An unknown name, a value of the wrong type or a value out of range is an error. The message names the source.
"""
_WIKI_INTRO = """\
## Settings of one wiki

Set with `wikiholt set SLUG NAME=VALUE`, many also with an option of `wikiholt add PATH`, and stored in the registry.
A secret is never shown.
"""


def render_settings_page() -> str:
    """The Markdown page with all settings."""
    return "\n".join([_INTRO, *_list_rows(SETTINGS.values()), "", _WIKI_INTRO, *_list_rows(WIKI_SETTINGS.values()), ""])


def _list_rows(settings: Iterable[Setting]) -> list[str]:
    rows = [f"| `{setting.name}` | {_format_default(setting)} | {_format_meaning(setting)} |" for setting in settings]
    return ["| Setting | Default | Meaning |", "|---|---|---|", *rows]


def _format_default(setting: Setting) -> str:
    value = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
    if isinstance(setting.default, Path):
        return "automatic"
    return f"`{value}`" if setting.default not in ("", ()) else "empty"


def _format_meaning(setting: Setting) -> str:
    text = setting.help.replace("|", "\\|")
    choices = [f"`{choice}`" for choice in setting.choices if choice]
    if choices and setting is not SETTINGS["language"] and set(LANGUAGES) <= set(setting.choices):
        text += " Values: those of `language` above."
    elif choices:
        text += f" {'Any' if setting.kind is tuple else 'One'} of {', '.join(choices)}."
    if setting.kind in (int, float):
        text += f" {setting.describe_bounds().capitalize()}."
    return text


if __name__ == "__main__":
    sys.stdout.write(render_settings_page())
