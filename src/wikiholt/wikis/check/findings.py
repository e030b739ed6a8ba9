"""Findings of a check: what is wrong in a wiki, or went wrong since another commit. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from wikiholt.text.links import get_last_part
from wikiholt.text.page_names import FOLDER_PAGES
from wikiholt.text.sentence_lines import find_lines
from wikiholt.wikis.check.number_sentences import NumberSentence, are_one_series, find_conflicts
from wikiholt.wikis.check.wiki_state import WikiState


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


RULES = {
    "unanswered-question": "An expected question does not find its page.",
    "missing-sentence": "The page of an expected question does not contain its sentence.",
    "lost-question": "A question that found its page before does not find it any more.",
    "broken-link": "A link that led to a page leads nowhere now.",
    "missing-page": "A link names a page that does not exist.",
    "orphaned-page": "No page links to this page.",
    "unreachable-page": "No links lead from the home page to this page any more.",
    "near-duplicate": "A page or a passage of it is nearly the same as another one.",
    "different-numbers": "A sentence has other numbers or dates than a nearly equal sentence on another page.",
    "unreadable-page": "The page cannot be indexed, so no search finds it.",
}
"""What each rule means."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to look at, in a file of the wiki."""

    rule: str
    severity: Severity
    file: str
    line: int
    message: str


def find_faults(state: WikiState) -> Iterator[Finding]:
    """The faults of a wiki at one commit."""
    for (path, _), end in state.links.items():
        if end.page is None:
            yield _make_missing_page(state, path, end.line, end.path)
    for path in state.find_orphans():
        message = "no page links to this page"
        yield Finding("orphaned-page", Severity.NOTE, state.files[path], 1, message)
    yield from (_make_unreadable(file, reason) for file, reason in state.unreadable.items())


def find_regressions(base: WikiState, head: WikiState) -> Iterator[Finding]:
    """The faults of the wiki at `head` that it did not have at `base`."""
    old_paths = map_old_paths(base, head)
    yield from _find_broken_links(base, head, old_paths)
    yield from _find_lost_pages(base, head, old_paths)
    yield from _find_new_duplicates(base, head, old_paths)
    yield from _find_different_numbers(base, head, old_paths)
    for file, reason in head.unreadable.items():
        if file not in base.unreadable:
            yield _make_unreadable(file, reason)


def map_old_paths(base: WikiState, head: WikiState) -> dict[str, str]:
    """The path at `base` of each page at `head` that existed then."""
    old_paths = {}
    for path in head.files:
        former = (old for old in head.former_paths[path] if old in base.files and old not in head.files)
        old = path if path in base.files else next(former, None)
        if old is not None:
            old_paths[path] = old
    return old_paths


def _find_broken_links(base: WikiState, head: WikiState, old_paths: Mapping[str, str]) -> Iterator[Finding]:
    new_paths = {old: path for path, old in old_paths.items()}
    reported = set()
    for (path, written), end in head.links.items():
        if end.page is not None or (path, end.path) in reported:
            continue
        before = base.links.get((old_paths.get(path, ""), written))
        if before is not None and before.page is None:
            continue
        reported.add((path, end.path))
        if before is None:
            yield _make_missing_page(head, path, end.line, end.path)
            continue
        now = new_paths.get(before.page or "")
        change = f"the page is {now} now" if now is not None else "the page was deleted"
        message = f"the link to {end.path} leads nowhere: {change}"
        yield Finding("broken-link", Severity.ERROR, head.files[path], end.line, message)


def _make_missing_page(state: WikiState, path: str, line: int, target: str) -> Finding:
    message = f"there is no page {target}, to which this line links"
    return Finding("missing-page", Severity.WARNING, state.files[path], line, message)


def _find_lost_pages(base: WikiState, head: WikiState, old_paths: Mapping[str, str]) -> Iterator[Finding]:
    """Pages that lost their last link, and pages that cannot be reached from the home page any more."""
    for path, old in sorted(old_paths.items()):
        file = head.files[path]
        if old in base.linked and path not in head.linked and path != head.home and not _is_folder_page(path):
            message = "no page links to this page any more"
            yield Finding("orphaned-page", Severity.WARNING, file, 1, message)
        elif head.home is not None and old in base.reachable and path not in head.reachable:
            message = f"no links lead from {head.home} to this page any more"
            yield Finding("unreachable-page", Severity.WARNING, file, 1, message)


def _is_folder_page(path: str) -> bool:
    return get_last_part(path).casefold() in FOLDER_PAGES


def _find_new_duplicates(base: WikiState, head: WikiState, old_paths: Mapping[str, str]) -> Iterator[Finding]:
    """Places on changed pages with a text that is nearly the same as one which was not, or not there, at the base."""
    pairs = {(one.path, other.path) for group in base.duplicates for one in group.places for other in group.places}
    reported = set()  # a copied page has many passages
    for group in head.duplicates:
        old = {place.path: old_paths.get(place.path) for place in group.places}
        new = [
            place
            for place in group.places
            if head.blobs[place.path] != base.blobs.get(old[place.path] or "")
            and not any((old[place.path], old[other.path]) in pairs for other in group.places if other != place)
        ]
        original = next((place for place in group.places if place not in new), group.places[0])
        for place in new:
            pair = (place.path, original.path)
            if pair not in reported and not are_one_series(*pair):
                reported.add(pair)
                message = f"this is nearly the same as {original.file}:{original.first_line}"
                yield Finding("near-duplicate", Severity.WARNING, place.file, place.first_line, message)


def _find_different_numbers(base: WikiState, head: WikiState, old_paths: Mapping[str, str]) -> Iterator[Finding]:
    before: dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]] = {}
    for sentence in base.sentences:
        before.setdefault((sentence.path, sentence.words), set()).add(sentence.numbers)

    def get_old_numbers(sentence: NumberSentence) -> set[tuple[str, ...]]:
        return before.get((old_paths.get(sentence.path, ""), sentence.words), set())

    changed = [sentence for sentence in head.sentences if sentence.numbers not in get_old_numbers(sentence)]
    for sentence, other in find_conflicts(changed, head.sentences):
        old, old_of_other = get_old_numbers(sentence), get_old_numbers(other)
        if old and old_of_other and old.isdisjoint(old_of_other):
            continue  # they have always differed
        line = sentence.chunk.first_line + find_lines(sentence.chunk.text, sentence.text)[0]
        other_line = other.chunk.first_line + find_lines(other.chunk.text, other.text)[0]
        pairs = zip(sentence.numbers, other.numbers, strict=True)
        ours, theirs = zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)
        place = f"{head.files[other.path]}:{other_line}"
        message = f"this says {', '.join(ours)}, but {place} says {', '.join(theirs)}: {other.text}"
        yield Finding("different-numbers", Severity.WARNING, head.files[sentence.path], line, message)


def _make_unreadable(file: str, reason: str) -> Finding:
    return Finding("unreadable-page", Severity.WARNING, file, 1, f"this page cannot be indexed: {reason}")
