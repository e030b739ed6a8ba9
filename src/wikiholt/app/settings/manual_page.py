"""The settings as a page of the manual, written from the table."""

from wikiholt.app.settings.setting_definition import Setting
from wikiholt.app.settings.table import SETTINGS, WIKI_SETTINGS

_INTRO = """\
# Settings

Every setting has a default. A file can change it, the environment can change it again, and an argument of the command
has the last word.

- **File**: `wikiholt.toml` in the data directory, or the file named by `--config` or `WIKIHOLT_CONFIG`. Dots are
  tables: `chunk.target_tokens = 200`, or `target_tokens = 200` under `[chunk]`. A relative `data` starts at the file.
- **Environment**: `WIKIHOLT_` and the name in capitals, dots as underscores: `WIKIHOLT_CHUNK_TARGET_TOKENS=200`. An
  empty variable counts as not set.
- **Argument**: `--set NAME=VALUE` before the command: `wikiholt --set precision=fp32 sync`. Repeatable.

A name that does not exist, a value of the wrong kind or out of range is an error that says where it stands.
"""
_WIKI_INTRO = """\
## Settings of one wiki

Given when the wiki is added, as options of `add`, or later with `wikiholt set SLUG NAME=VALUE`, and kept in the
registry. A secret is never shown again.
"""


def render_settings_page() -> str:
    """The Markdown page of all settings."""
    rows = [f"| `{s.name}` | `{s.variable}` | {_format_default(s)} | {_format_meaning(s)} |" for s in SETTINGS]
    wiki_rows = [f"| `{s.name}` | {_format_default(s)} | {_format_meaning(s)} |" for s in WIKI_SETTINGS]
    return "\n".join(
        [
            _INTRO,
            "| Setting | Variable | Default | Meaning |\n|---|---|---|---|",
            *rows,
            "",
            _WIKI_INTRO,
            "| Setting | Default | Meaning |\n|---|---|---|",
            *wiki_rows,
            "",
        ]
    )


def _format_default(setting: Setting) -> str:
    value = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
    return f"`{value}`" if setting.default not in ("", ()) else "empty"


def _format_meaning(setting: Setting) -> str:
    text = setting.help.replace("|", "\\|")
    choices = [f"`{choice}`" for choice in setting.choices if choice]
    if choices:
        text += f" {'Any' if setting.kind is tuple else 'One'} of {', '.join(choices)}."
    if setting.kind in (int, float):
        text += f" {setting.describe_bounds().capitalize()}."
    return text
