"""Settings: one table, read from defaults, a file, the environment and arguments, and documented from itself."""

from wikiholt.settings.loading import Settings, load
from wikiholt.settings.reference import describe
from wikiholt.settings.table import SETTINGS, WIKI_SETTINGS
from wikiholt.settings.wiki import WikiSettings

__all__ = ["SETTINGS", "WIKI_SETTINGS", "Settings", "WikiSettings", "describe", "load"]
