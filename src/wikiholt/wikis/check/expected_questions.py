"""Questions that a wiki must answer, from the table in one of its pages.

| Question | Page | Sentence |
|---|---|---|
| When may I light a fire? | [Fires](rules/fires.md) | Fires are allowed from 1 October. |

The sentence is optional. Text outside of such tables is ignored.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from wikiholt.errors import InvalidEvaluation
from wikiholt.search.request import MAX_QUERY_CHARS

_CELL_BORDER = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r":?-+:?")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_LINK = re.compile(
    r"\[\[(?P<wiki>[^\[\]|#]+)[^\[\]]*\]\]"
    r"|\[[^\[\]]*\]\((?:<(?P<quoted>[^<>#]+)[^<>]*>|(?P<target>[^\s()#]+)[^()]*)\)"
)
_MAX_COLUMNS = 3
_HINT = "write `| question | page | sentence |`; the sentence may be missing"


@dataclass(frozen=True, slots=True)
class ExpectedQuestion:
    """A question, the name of the page that must answer it, and a sentence that this page must contain, if any."""

    text: str
    page: str
    sentence: str
    line: int


def parse_expected_questions(text: str, file: str) -> list[ExpectedQuestion]:
    """The rows of the tables whose first column is `Question`. Raises InvalidEvaluation with file and line."""
    questions = []
    for line, cells in _iter_rows(text):
        problem = _find_problem(cells)
        if problem:
            raise InvalidEvaluation(f"{file}:{line}: this row {problem}", hint=_HINT)
        question, page, *sentence = cells
        questions.append(ExpectedQuestion(question, _read_page(page), "".join(sentence), line))
    if not questions:
        raise InvalidEvaluation(f"{file} has no table of questions", hint=_HINT + ", below `| Question | Page |`")
    return questions


def _find_problem(cells: Sequence[str]) -> str:
    if len(cells) > _MAX_COLUMNS:
        return f"has {len(cells)} columns"
    if not cells[0]:
        return "has no question"
    if len(cells[0]) > MAX_QUERY_CHARS:
        return f"has a question of {len(cells[0])} characters"
    return "" if len(cells) > 1 and _read_page(cells[1]) else "names no page"


def _iter_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of the tables with their cells, without the first two."""
    state, in_code = "text", False
    for line, written in enumerate(text.splitlines(), 1):
        in_code ^= bool(_FENCE.match(written))
        row = written.strip()
        if in_code or not row.startswith("|"):
            state = "text"
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(row)[1:]]
        cells = cells[:-1] if cells and not cells[-1] and row.endswith("|") else cells
        if state == "text":
            state = "questions" if cells and cells[0].casefold() == "question" else "other"
        elif state == "questions" and not all(map(_DELIMITER.fullmatch, cells)):
            yield line, cells


def _read_page(cell: str) -> str:
    """The path or file that a cell names, as it is or by a link."""
    link = _LINK.fullmatch(cell)
    name = (link["wiki"] or unquote(link["quoted"] or link["target"])) if link else cell.strip("`")
    return name.strip().removeprefix("./").lstrip("/")
