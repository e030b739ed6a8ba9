"""Otterwiki with another plugin that records its hook calls and raises for pages with a certain name."""

import json
from pathlib import Path
from typing import Any

from otterwiki.plugins import hookimpl, plugin_manager


class ProbePlugin:
    @hookimpl
    def repository_changed(self, changed_files: Any) -> None:
        _write_event("repository_changed", files=sorted(changed_files))

    @hookimpl
    def page_saved(self, pagepath: Any, content: Any, author: Any, message: Any) -> None:
        _write_event("page_saved", path=pagepath, content=content, author=list(author), message=message)
        if "Raise" in pagepath:
            raise RuntimeError("an error in another plugin")

    @hookimpl
    def page_deleted(self, pagepath: Any, author: Any, message: Any) -> None:
        _write_event("page_deleted", path=pagepath, author=list(author), message=message)

    @hookimpl
    def page_renamed(self, old_pagepath: Any, new_pagepath: Any, author: Any, message: Any) -> None:
        _write_event("page_renamed", old=old_pagepath, new=new_pagepath, author=list(author), message=message)


def _write_event(hook: str, **arguments: Any) -> None:
    with Path("probe.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"hook": hook, **arguments}) + "\n")


plugin_manager.register(ProbePlugin())

from otterwiki.server import app  # noqa: E402 - the probe must be there when the first page is written

__all__ = ["app"]
