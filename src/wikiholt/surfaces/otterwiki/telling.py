"""Telling Otterwiki of commits that the API has made: its hooks and its push, as after a save of its own."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from otterwiki.plugins import plugin_manager

from wikiholt.surfaces.http.admission import HostGrant, ChangeKind, CommitEvent
from wikiholt.surfaces.otterwiki.host import CurrentWiki
from wikiholt.text.page import get_page_path

_log = logging.getLogger(__name__)


def notify_otterwiki(current_wiki: CurrentWiki, host_grant: HostGrant) -> None:
    """Call, in the request's own thread, what Otterwiki would; what another plugin raises is logged, for the commit
    is made."""
    for commit in host_grant.commits:
        _call_safely(lambda files: plugin_manager.hook.repository_changed(changed_files=files), list(commit.files))
        _call_safely(_push_repository)
        _call_safely(_notify_page_change, current_wiki, host_grant, commit)


def _notify_page_change(current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent) -> None:
    hook, shown = plugin_manager.hook, host_grant.path_style.to_display_path
    author, message = (commit.author.name, commit.author.email), commit.message
    if commit.kind is ChangeKind.SAVED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files)
    elif commit.kind is ChangeKind.DELETED:
        hook.page_deleted(pagepath=shown(commit.path), author=author, message=message)
    elif commit.kind is ChangeKind.RENAMED:
        _notify_page_saved(current_wiki, host_grant, commit, commit.files[1:])
        hook.page_renamed(
            old_pagepath=shown(commit.path), new_pagepath=shown(commit.new_path), author=author, message=message
        )


def _notify_page_saved(current_wiki: CurrentWiki, host_grant: HostGrant, commit: CommitEvent, files: Sequence[str]) -> None:
    contents = current_wiki.application.service.get_handle(current_wiki.wiki.slug).pages
    for path in map(get_page_path, files):
        plugin_manager.hook.page_saved(
            pagepath=host_grant.path_style.to_display_path(path),
            content=contents.read(path).content,
            author=(commit.author.name, commit.author.email),
            message=commit.message,
        )


def _push_repository() -> None:
    from otterwiki.repomgmt import get_repo_manager  # noqa: PLC0415 - it is loaded after the plugins are set up

    manager = get_repo_manager()
    if manager:
        manager.auto_push_if_enabled()


def _call_safely(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - it may raise anything, and the commit is made all the same
        _log.exception("a hook failed after a commit was made over the API")
