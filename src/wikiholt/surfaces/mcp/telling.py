"""What an agent reads: short text beside the documents, and errors that say what to do next."""

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from wikiholt.errors import (
    DatabaseAway,
    Forbidden,
    IndexFault,
    NotWritable,
    PageNotFound,
    RevisionMismatch,
    TooLarge,
    TooManyRequests,
    WikiholtError,
)
from wikiholt.surfaces.documents.commits import ChangeDocument, CommitDocument
from wikiholt.surfaces.documents.pages import DeletedDocument, ListedPageDocument, RenamedDocument, WrittenDocument
from wikiholt.surfaces.http.problems import told
from wikiholt.surfaces.mcp.answers import (
    Fetched,
    Found,
    ListedPages,
    OrphanedPages,
    PageHistory,
    PageLinksBothWays,
    PagePart,
    RecentChanges,
    Rest,
)

_NEXT: Mapping[type[WikiholtError], str] = {
    PageNotFound: "Call search or list_pages to find the page's path; write_page makes a new page.",
    Forbidden: "Do without it, or ask for a key that allows it.",
    NotWritable: "This wiki cannot be written to from here. Tell the user what you would have written.",
    TooLarge: "Split it into several pages.",
    IndexFault: "Wait a few seconds and call it again; read_page works without the index.",
}


def compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def found_text(found: Found) -> str:
    """JSON, which is what the hosts read that know `search` by name; without what only programs need."""
    names = ("id", "title", "url", "heading_path", "lines", "confidence", "score", "last_updated")
    results = []
    for page in found["results"]:
        shown = {name: value for name, value in page.items() if name in names and value not in (None, [], "")}
        results.append({**shown, "text": page["text"] or page["snippet"]})
    document: dict[str, Any] = {"results": results}
    if found["notes"]:
        document["notes"] = found["notes"]
    document |= {"stale": found["stale"], "indexed_revision": found["indexed_revision"], "notice": found["notice"]}
    if found["rest"]:
        document["rest"] = found["rest"]
    return compact(document)


def fetched_text(fetched: Fetched) -> str:
    return compact(fetched)


def page_text(page: PagePart) -> str:
    first, last = page["lines"]
    head = [
        f"{page['title']} ({page['path']}), lines {first}-{last} of {page['total_lines']}, revision {page['revision']}",
        page["notice"],
        *page["warnings"],
    ]
    # Nobody can write a page that ends its own quotation: the mark is made anew for every answer.
    mark = secrets.token_hex(6)
    body = [f"----- page text {mark} -----", page["content"], f"----- end of page text {mark} -----"]
    return "\n".join([*head, *body, *_rest(page["rest"])])


def listed_text(listed: ListedPages | OrphanedPages) -> str:
    if not listed["pages"]:
        return f"No pages here (of {listed['total']})." if listed["total"] else "There are no such pages."
    last = listed["offset"] + len(listed["pages"])
    head = f"Pages {listed['offset'] + 1}-{last} of {listed['total']}:"
    return "\n".join([head, *map(_listed, listed["pages"]), *_stale(stale=listed["stale"]), *_rest(listed["rest"])])


def _listed(page: ListedPageDocument) -> str:
    told = [f"{page['content_length']} words", *filter(None, [page["category"]]), *page["tags"]]
    return f"- {page['path']}: {page['name']} ({', '.join(told)})"


def links_text(links: PageLinksBothWays) -> str:
    totals = links["totals"]
    lines = [
        links["path"],
        *_named(f"links to ({totals['links_to']})", links["links_to"]),
        *_named(f"is linked from ({totals['linked_from']})", links["linked_from"]),
        *_named(f"links to what is no page ({totals['missing']})", links["missing"]),
    ]
    return "\n".join([*lines, *_stale(stale=links["stale"]), *_rest(links["rest"])])


def _named(what: str, paths: Iterable[str]) -> list[str]:
    return [f"{what}:", *(f"- {path}" for path in paths)]


def changes_text(changes: RecentChanges) -> str:
    lines = [f"{_commit(each)} [{', '.join(each['pages_affected'])}]" for each in changes["entries"]]
    return "\n".join([*(lines or ["No commits here."]), *_rest(changes["rest"])])


def history_text(history: PageHistory) -> str:
    return "\n".join([f"{history['path']}:", *map(_commit, history["history"]), *_rest(history["rest"])])


def _commit(commit: CommitDocument | ChangeDocument) -> str:
    return f"- {commit['date']} {commit['revision'][:12]} {commit['author']}: {' '.join(commit['message'].split())}"


def written_text(written: WrittenDocument) -> str:
    if not written["changed"]:
        return f"{written['path']} held exactly that already; revision {written['revision']}."
    done = "Created" if written["created"] else "Saved"
    warned = [f"Warning: {each}" for each in written["warnings"]]
    return "\n".join([f"{done} {written['path']}; revision {written['revision']}.", *warned])


def renamed_text(renamed: RenamedDocument) -> str:
    followed = f" Links were changed on: {', '.join(renamed['updated_pages'])}." if renamed["updated_pages"] else ""
    return f"{renamed['old_path']} is now {renamed['new_path']}; revision {renamed['revision']}.{followed}"


def deleted_text(deleted: DeletedDocument) -> str:
    return f"Deleted {deleted['path']}; commit {deleted['revision']}. Its history is kept."


def _stale(*, stale: bool) -> list[str]:
    return ["The index has not reached the newest commit yet."] if stale else []


def _rest(rest: Rest | None) -> list[str]:
    return [f"{rest['told']} Next: {rest['tool']} {compact(rest['arguments'])}"] if rest else []


def error_text(error: WikiholtError, alike: Iterable[str] = ()) -> str:
    """What is wrong and what to do next; of what is not the visitor's to know, only that."""
    message, hint = told(error)
    following = next((_NEXT[kind] for kind in type(error).__mro__ if kind in _NEXT), "")
    hint = "" if following else hint
    if isinstance(error, TooManyRequests | DatabaseAway):
        following, hint = f"Wait {max(1, error.retry_after):.0f} seconds and call it again.", ""
    if isinstance(error, RevisionMismatch) and error.current:
        following, hint = f"The page is at revision {error.current} now. {_sentence(hint)}", ""
    if near := list(alike):
        following = f"Did you mean {' or '.join(map(repr, near))}? {following}"
    lines = [f"{error.code}: {message}"]
    steps = " ".join(filter(None, [_sentence(following), _sentence(hint)]))
    return "\n".join([*lines, *([f"Next: {steps}"] if steps else [])])


def _sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def invalid_text(tool: str, error: ValidationError) -> str:
    """What is wrong with the arguments, each by its name."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {_fault(each['type'], each['msg'])}" for each in faults]
    return f"bad-input: {'; '.join(told[:5])}\nNext: call {tool} again with arguments that fit its schema."


def _fault(kind: str, message: str) -> str:
    return "there is no such argument" if kind == "extra_forbidden" else message
