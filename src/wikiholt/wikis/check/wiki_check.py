"""Runs a check: at one commit, or at two with the same index, so that the second needs only what is new."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from wikiholt.domain.protocols import Source
from wikiholt.domain.search import QueryRecord
from wikiholt.errors import InvalidEvaluation, NoPages
from wikiholt.text.charset import decode_bytes
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.check.expected_questions import ExpectedQuestion, parse_expected_questions
from wikiholt.wikis.check.findings import Finding, Severity, find_faults, find_regressions, map_old_paths
from wikiholt.wikis.check.questions import ExpectedOutcome, ask_expected, find_lost, find_unanswered, mine_answered
from wikiholt.wikis.check.wiki_state import WikiState, read_state
from wikiholt.wikis.evaluation.questions import Question
from wikiholt.wikis.handle import WikiHandle

QUESTIONS_FILE = "questions.md"
_MAX_QUESTIONS_BYTES = 1 << 20
_SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of a check, the worst first, and how much was checked."""

    base: str | None
    head: str
    findings: Sequence[Finding]
    pages: int
    links: int
    expected: int
    mined: int
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckedBase:
    """What is remembered of the base while the index is brought to the head."""

    state: WikiState
    outcomes: Mapping[str, ExpectedOutcome]
    """Those of the questions that the base expected too, by text."""
    answered: Sequence[Question]


class WikiCheck:
    """Checks a wiki by questions that are in one of its pages, and by its own links, names and texts."""

    def __init__(
        self, open_at: Callable[[str], WikiHandle], source: Source, questions_file: str, records: Sequence[QueryRecord]
    ) -> None:
        """`open_at` syncs the wiki with a commit. `records` are searches that people made in it."""
        self._open_at = open_at
        self._source = source
        self._file = questions_file
        self._page = get_page_path(questions_file)
        self._records = records

    def run(self, base: str | None, head: str, notes: Sequence[str] = ()) -> CheckReport:
        """Check the head, or what changed from the base to it. Raises InvalidEvaluation and the errors of a sync."""
        questions = self.read_questions(head)
        notes = list(notes)
        checked = None
        if base is not None:
            try:
                checked = self.check_base(base, questions)
            except NoPages:
                notes.append("there are no pages at the base, so the head was checked without it")
        if not questions:
            notes.append(f"there is no {self._file} with questions that this wiki must answer")
        return self.check_head(checked, head, questions, notes)

    def read_questions(self, commit: str) -> list[ExpectedQuestion]:
        """The expected questions at a commit. Without the file there are none, unless it is not the usual one."""
        entry = self._source.find_file(self._file, commit)
        if entry is None:
            if self._file != QUESTIONS_FILE:
                hint = "name a page of the wiki that has a table of questions, by its file"
                raise InvalidEvaluation(f"there is no file {self._file} at {commit[:10]}", hint=hint)
            return []
        blob = next(iter(self._source.read_blobs([entry.blob], _MAX_QUESTIONS_BYTES)))
        text = decode_bytes(blob.data) if blob.data is not None else None
        if text is None:
            raise InvalidEvaluation(f"{self._file} cannot be read", hint="write it as a Markdown file of at most 1 MB")
        return parse_expected_questions(text.text, self._file)

    def check_base(self, commit: str, questions: Sequence[ExpectedQuestion]) -> CheckedBase:
        """Read the wiki at the base, and ask the questions there."""
        handle = self._open_at(commit)
        expected: set[str] = set()
        with suppress(InvalidEvaluation):  # the head may have repaired the file, or added it
            expected = {question.text for question in self.read_questions(commit)}
        outcomes = ask_expected(handle, [each for each in questions if each.text in expected], self._page)
        by_text = {outcome.question.text: outcome for outcome in outcomes}
        return CheckedBase(_read_state(handle), by_text, mine_answered(handle, self._records))

    def check_head(
        self, base: CheckedBase | None, commit: str, questions: Sequence[ExpectedQuestion], notes: Sequence[str]
    ) -> CheckReport:
        """Compare the head with the base, if there is one."""
        handle = self._open_at(commit)
        state = _read_state(handle)
        outcomes = ask_expected(handle, questions, self._page)
        findings = list(find_unanswered(outcomes, self._file, base.outcomes if base is not None else {}))
        if base is None:
            findings += [fault for fault in find_faults(state) if fault.file != self._file]
        else:
            findings += find_regressions(base.state, state)
            findings += find_lost(handle, base.answered, map_old_paths(base.state, state), state.files)
        findings.sort(key=lambda each: (_SEVERITIES.index(each.severity), each.file, each.line))
        return CheckReport(
            base.state.revision if base is not None else None,
            state.revision,
            findings,
            len(state.files),
            len(state.links),
            len(questions),
            len(base.answered) if base is not None else 0,
            notes,
        )


def _read_state(handle: WikiHandle) -> WikiState:
    with handle.open_contents() as contents:
        return read_state(*contents)
