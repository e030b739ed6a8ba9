"""`wikiholt open`: opens a page in the editor at its line, or in the browser."""

import os
import shlex
import subprocess
import webbrowser
from pathlib import Path
from urllib.parse import quote, urlsplit

from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.file_places import FilePlaces
from wikiholt.interfaces.cli.output import to_safe_line
from wikiholt.interfaces.cli.page_argument import PageArgument, find_page
from wikiholt.interfaces.cli.page_commands import find_heading
from wikiholt.interfaces.cli.wiki_selection import add_wiki_option, resolve_wiki
from wikiholt.wikis.handle import WikiHandle

_LINE_ARGUMENTS = {
    ("+{line}", "{file}"): "vi vim nvim gvim view nano pico emacs emacsclient kak joe mg micro gedit ne",
    ("--goto", "{file}:{line}"): "code code-insiders codium cursor windsurf",
    ("{file}:{line}",): "subl zed zeditor hx helix mcedit",
    ("--line", "{line}", "{file}"): "kate idea pycharm webstorm",
}
"""How editors take a line. Other editors get only the file."""


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "open", run_open)
    parser.add_argument("page", metavar="PAGE", help="path, file, title, FILE:LINE or PAGE#heading")
    parser.add_argument("--browser", action="store_true", help="open its address, from the setting url")
    add_wiki_option(parser)


def run_open(context: CommandContext) -> int:
    handle = context.service.get_handle(resolve_wiki(context).slug)
    target = find_page(handle, context.arguments.page)
    line, anchor = _find_place(handle, target)
    path = FilePlaces.for_wiki(handle.wiki).find_path(target.file)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if path is not None and editor and not context.arguments.browser:
        command = build_editor_command(editor, path, line)
        _run_editor(command)
        return context.print_result({"path": target.path, "opened": "editor", "command": command}, [])
    address = handle.build_link(target.path) + (f"#{quote(anchor)}" if anchor else "")
    if urlsplit(address).scheme not in ("http", "https"):
        raise _make_nothing_error(handle, target, browser=context.arguments.browser, on_disk=path)
    if not webbrowser.open(address):
        raise InvalidSetting(f"No browser could open {address}", hint="Set BROWSER, or open the address yourself.")
    document = {"path": target.path, "opened": "browser", "address": address}
    return context.print_result(document, [f"Opened {to_safe_line(address)}"])


def _find_place(handle: WikiHandle, target: PageArgument) -> tuple[int | None, str]:
    """The line and the anchor that the argument names."""
    if not target.heading:
        return target.line, ""
    heading = find_heading(handle.pages.read(target.path), target.heading)
    return heading.line, heading.anchor


def build_editor_command(editor: str, path: Path, line: int | None) -> list[str]:
    """The command that opens the file at the line. The path is absolute, so that no editor takes it for an option."""
    try:
        command = shlex.split(editor)
    except ValueError:
        command = []
    if not command:
        raise InvalidSetting(f"The editor {editor!r} is not a command.", hint="Set VISUAL or EDITOR to a command.")
    name = Path(command[0]).name
    templates = next((form for form, names in _LINE_ARGUMENTS.items() if name in names.split()), None)
    if line is None or templates is None:
        return [*command, str(path)]
    return [*command, *(template.format(file=path, line=line) for template in templates)]


def _run_editor(command: list[str]) -> None:
    try:
        completed = subprocess.run(command, check=False)
    except OSError as error:
        raise InvalidSetting(
            f"The editor {command[0]!r} cannot be started: {error.strerror}.", hint="Set VISUAL or EDITOR to a command."
        ) from error
    if completed.returncode:
        raise InvalidSetting(
            f"The editor {command[0]!r} ended with exit code {completed.returncode}.", hint="Check VISUAL and EDITOR."
        )


def _make_nothing_error(
    handle: WikiHandle, target: PageArgument, *, browser: bool, on_disk: Path | None
) -> InvalidSetting:
    address_hint = f"wikiholt set {handle.wiki.slug} url='https://wiki.example.org/{{path}}'"
    if browser or on_disk is None:
        problem = f"{target.path} has no address" if browser else f"{target.path} is not a file on this disk"
        return InvalidSetting(f"{problem}.", hint=f"Set the address of the wiki's pages: {address_hint}")
    return InvalidSetting(
        "No editor is set, and the wiki has no address.",
        hint=f"Set EDITOR, such as EDITOR=nano, or the address of its pages: {address_hint}",
    )
