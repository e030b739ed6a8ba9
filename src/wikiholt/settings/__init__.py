"""Settings: one table, read from defaults, a file, the environment and arguments, and documented from itself."""

from wikiholt.settings.loading import Settings, load_settings
from wikiholt.settings.reference import render_settings_page
from wikiholt.settings.table import SETTINGS, WIKI_SETTINGS
from wikiholt.settings.wiki import WikiSettings

__all__ = ["SETTINGS", "WIKI_SETTINGS", "Settings", "WikiSettings", "render_settings_page", "load_settings"]
