"""Telling Otterwiki of commits that the API has made: its hooks and its push, as after a save of its own."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from otterwiki.plugins import plugin_manager

from wikiholt.surfaces.http.admission import Admission, Deed, Wrote
from wikiholt.surfaces.otterwiki.host import Here
from wikiholt.text.page import page_path

_LOG = logging.getLogger(__name__)


def tell(here: Here, admission: Admission) -> None:
    """Call, in the request's own thread, what Otterwiki would; what another plugin raises is logged, for the commit
    is made."""
    for commit in admission.commits:
        _guarded(lambda files: plugin_manager.hook.repository_changed(changed_files=files), list(commit.files))
        _guarded(_push)
        _guarded(_tell_of_page, here, admission, commit)


def _tell_of_page(here: Here, admission: Admission, commit: Wrote) -> None:
    hook, shown = plugin_manager.hook, admission.names.shown
    author, message = (commit.author.name, commit.author.email), commit.message
    if commit.deed is Deed.SAVED:
        _tell_saved(here, admission, commit, commit.files)
    elif commit.deed is Deed.DELETED:
        hook.page_deleted(pagepath=shown(commit.path), author=author, message=message)
    elif commit.deed is Deed.RENAMED:
        _tell_saved(here, admission, commit, commit.files[1:])
        hook.page_renamed(
            old_pagepath=shown(commit.path), new_pagepath=shown(commit.new_path), author=author, message=message
        )


def _tell_saved(here: Here, admission: Admission, commit: Wrote, files: Sequence[str]) -> None:
    contents = here.farm.service.wiki(here.wiki.slug).contents
    for path in map(page_path, files):
        plugin_manager.hook.page_saved(
            pagepath=admission.names.shown(path),
            content=contents.read(path).content,
            author=(commit.author.name, commit.author.email),
            message=commit.message,
        )


def _push() -> None:
    from otterwiki.repomgmt import get_repo_manager  # noqa: PLC0415 - it is loaded after the plugins are set up

    manager = get_repo_manager()
    if manager:
        manager.auto_push_if_enabled()


def _guarded(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - it may raise anything, and the commit is made all the same
        _LOG.exception("a hook failed after a commit was made over the API")
