"""Files for the browser: those of the web page, and in the place of some of them the plugin's own."""

from functools import cache
from importlib.resources import files

from wikiholt.surfaces.web.assets import StaticFiles, read_static_files, get_static_directory


@cache
def load_plugin_files() -> StaticFiles:
    """Everything a page inside Otterwiki may load."""
    return read_static_files(get_static_directory(), files(__package__).joinpath("static"))


@cache
def find_script_imports(*scripts: str) -> tuple[str, ...]:
    """What these scripts import, directly or not, without themselves."""
    return tuple(sorted({each for script in scripts for each in load_plugin_files().find_imports(script)} - {*scripts}))
