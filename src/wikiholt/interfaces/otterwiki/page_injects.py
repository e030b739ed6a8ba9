"""Files for the browser: those of the web page, and in the place of some of them the plugin's own."""

from functools import cache
from html import escape
from importlib.resources import files

from flask import current_app, url_for

from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files
from wikiholt.interfaces.otterwiki.plugin_runtime import PluginRuntime


@cache
def load_plugin_files() -> StaticFiles:
    """Everything a page inside Otterwiki may load."""
    return read_static_files(get_web_static_directory(), files(__package__).joinpath("static"))


@cache
def find_script_imports(*scripts: str) -> tuple[str, ...]:
    """What these scripts import, directly or not, without themselves."""
    return tuple(sorted({each for script in scripts for each in load_plugin_files().find_imports(script)} - {*scripts}))


# What is added to Otterwiki's own pages: a better search box, and what lies near a page. Nothing waits for us there.
# Pages hold a link to a script and no more; the script asks the API. Who may not read the wiki is shown nothing.


RUNTIME_EXTENSION_KEY = "wikiholt"
"""Where the application keeps the host."""


def head(_: object) -> str | None:
    """For the head of every page: colours, and the search box."""
    if not _has_permission("READ"):
        return None
    host: PluginRuntime = current_app.extensions[RUNTIME_EXTENSION_KEY]
    wanted = [
        "box.js",
        *(["suggestions.js"] if host.options.dropdown else []),
        *(["menu.js"] if _has_permission("ADMIN") else []),
    ]
    return f'<link rel="stylesheet" href="{_get_static_base()}wiki.css">{render_scripts(*wanted)}'


def body(_: object) -> str | None:
    """Nothing: what there is to add stands in the head."""
    return None


def sidebar(page: object) -> str | None:
    """Beside a page: an empty place for pages that link here and pages like this one, which a script fills."""
    if not page or not _has_permission("READ"):
        return None
    return (
        f'<div class="wikiholt" id="app.near" data-page="{escape(str(page))}" hidden></div>{render_scripts("near.js")}'
    )


def render_scripts(*names: str) -> str:
    """Scripts with all they import, so that the browser fetches everything at once."""
    base = _get_static_base()
    preloads = "".join(f'<link rel="modulepreload" href="{base}{name}">' for name in find_script_imports(*names))
    return preloads + "".join(f'<script type="module" src="{base}{name}"></script>' for name in names)


def _get_static_base() -> str:
    """What comes before the name of a file in its address; a wiki may lie below a prefix."""
    return escape(
        url_for("wikiholt.asset", version=load_plugin_files().version, name="wiki.css").removesuffix("wiki.css")
    )


def _has_permission(permission: str) -> bool:
    # Otterwiki loads this after its plugins.
    from otterwiki.auth import has_permission  # noqa: PLC0415

    return bool(has_permission(permission))
