"""Other names and types of tool arguments that agents often send."""

import re
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "path": ("page", "page_path", "page_name", "file", "filename"),
    "paths": ("pages", "path"),
    "id": ("path", "page"),
    "query": ("q", "question", "search_query"),
    "n": ("limit", "k", "top_k", "max_results"),
    "limit": ("n", "max_results"),
    "tag": ("tags",),
    "category": ("categories",),
    "prefix": ("folder", "directory", "path_prefix"),
    "updated_since": ("since",),
    "since": ("updated_since",),
    "section": ("heading",),
    "from_line": ("start_line",),
    "to_line": ("end_line",),
    "from_revision": ("old_revision",),
    "to_revision": ("new_revision",),
    "content": ("text", "body", "content_b64", "content_base64"),
    "filename": ("file", "name"),
    "text": ("content", "body"),
    "old_string": ("old_text", "old_str"),
    "new_string": ("new_text", "new_str", "content"),
    "commit_message": ("message",),
}
_INTEGER_PATTERN = re.compile(r"[0-9]{1,9}")
_BOOLEANS = {"true": True, "false": False}


def adapt_arguments(arguments_type: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their own names, with numbers and booleans in place of text. Unknown names stay as they are.

    Another name counts only if it is no argument of the tool, and the argument itself is not given.
    """
    fields = arguments_type.model_fields
    adapted = {name: value for name, value in arguments.items() if name in fields}
    unknown = {name: value for name, value in arguments.items() if name not in fields}
    for name in fields:
        others = [other for other in _OTHER_NAMES.get(name, ()) if other in unknown]
        if others and name not in adapted:
            adapted[name] = unknown.pop(others[0])
    for name, value in adapted.items():
        annotation = fields[name].annotation
        if isinstance(value, str) and (annotation is int or int in get_args(annotation)):
            adapted[name] = int(value) if _INTEGER_PATTERN.fullmatch(value) else value
        elif isinstance(value, str) and annotation is bool:
            adapted[name] = _BOOLEANS.get(value.lower(), value)
    return {**adapted, **unknown}
