"""Files for the browser: those of the web page, and in the place of some of them the plugin's own."""

from functools import cache
from importlib.resources import files

from wikiholt.surfaces.web.assets import Assets, gathered, shared


@cache
def assets() -> Assets:
    """Everything a page inside Otterwiki may load."""
    return gathered(shared(), files(__package__).joinpath("static"))


@cache
def imported(*scripts: str) -> tuple[str, ...]:
    """What these scripts import, directly or not, without themselves."""
    return tuple(sorted({each for script in scripts for each in assets().modules(script)} - {*scripts}))
