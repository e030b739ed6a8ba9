"""The HTML that the plugin injects into Otterwiki's pages, and the static files of the plugin.

Injected HTML only links scripts, which request data from the API; it never delays a page. Users without READ
permission get nothing.
"""

from functools import cache
from html import escape
from importlib.resources import files

from flask import current_app, url_for

from wikiholt.interfaces.http.static_files import StaticFiles, get_web_static_directory, read_static_files
from wikiholt.interfaces.otterwiki.plugin_runtime import PluginRuntime


@cache
def load_plugin_files() -> StaticFiles:
    """Read the static files of the web page; files of the plugin replace those with the same name."""
    return read_static_files(get_web_static_directory(), files(__package__).joinpath("static"))


@cache
def find_script_imports(*scripts: str) -> tuple[str, ...]:
    """Return the direct and indirect imports of these scripts, without the scripts themselves."""
    imports = {name for script in scripts for name in load_plugin_files().find_imports(script)}
    return tuple(sorted(imports - {*scripts}))


RUNTIME_EXTENSION_KEY = "wikiholt"
"""The key of the PluginRuntime in `app.extensions`."""


def render_head(_: object) -> str | None:
    """Return the HTML for the head of every page: the stylesheet and the search box scripts."""
    if not _has_permission("READ"):
        return None
    runtime: PluginRuntime = current_app.extensions[RUNTIME_EXTENSION_KEY]
    scripts = [
        "search_box.js",
        *(["suggestions.js"] if runtime.options.dropdown else []),
        *(["menu.js"] if _has_permission("ADMIN") else []),
    ]
    return f'<link rel="stylesheet" href="{_get_static_base()}wiki.css">{render_scripts(*scripts)}'


def render_sidebar(page: object) -> str | None:
    """Return an empty element for the sidebar, which a script fills with linking and related pages."""
    if not page or not _has_permission("READ"):
        return None
    return (
        f'<div class="wikiholt" id="app.related" data-page="{escape(str(page))}" hidden></div>'
        f"{render_scripts('related_pages.js')}"
    )


def render_scripts(*names: str) -> str:
    """Return script tags with preload links for all imports, so that the browser fetches them at once."""
    base = _get_static_base()
    preloads = "".join(f'<link rel="modulepreload" href="{base}{name}">' for name in find_script_imports(*names))
    return preloads + "".join(f'<script type="module" src="{base}{name}"></script>' for name in names)


def _get_static_base() -> str:
    """Return the URL prefix of static files, which includes the prefix of the wiki."""
    return escape(
        url_for("wikiholt.asset", version=load_plugin_files().version, name="wiki.css").removesuffix("wiki.css")
    )


def _has_permission(permission: str) -> bool:
    # Otterwiki loads this module after its plugins.
    from otterwiki.auth import has_permission  # noqa: PLC0415

    return bool(has_permission(permission))
