import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from wikiholt.errors import InvalidEvaluation
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.wikis.check.expected_questions import ExpectedQuestion, parse_expected_questions

HEAD = "| Question | Page | Sentence |\n|:---|---|---:|\n"


def test_the_rows_of_a_table_are_questions_with_their_lines() -> None:
    rows = "| When \\| why? | rules/fires.md | From 1 October. |\n| Who? | rota |\n"
    text = f"# Questions\n\nWe must answer these.\n\n{HEAD}{rows}"
    assert parse_expected_questions(text, "questions.md") == [
        ExpectedQuestion("When | why?", "rules/fires.md", "From 1 October.", 7),
        ExpectedQuestion("Who?", "rota", "", 8),
    ]


@pytest.mark.parametrize(
    "cell",
    [
        *("a b/c.md", "./a b/c.md", "/a b/c.md", "`a b/c.md`", "[C](a%20b/c.md)", "[C](./a%20b/c.md#x)"),
        *("[C](<a b/c.md>)", "[C](<a b/c.md#x>)", "[[a b/c.md]]", "[[a b/c.md|C]]", "[[a b/c.md#x|C]]"),
    ],
)
def test_a_page_is_a_path_or_a_link(cell: str) -> None:
    row = cell.replace("|", "\\|")
    assert parse_expected_questions(f"{HEAD}| Who? | {row} |", "q.md")[0].page == "a b/c.md"


def test_other_tables_and_code_are_no_questions() -> None:
    other = "| Name | Page |\n|---|---|\n| Ada | x |\n\n"
    code = f"```\n{HEAD}| In code? | x |\n```\n\n"
    assert [each.text for each in parse_expected_questions(f"{other}{code}{HEAD}| Who? | x |\n", "q.md")] == ["Who?"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("|  | rota |", "has no question"),
        ("| Who? |", "names no page"),
        ("| Who? |  |", "names no page"),
        ("| Who? | rota | It is Ada. | yes |", "has 4 columns"),
        (f"| {'x' * (MAX_QUERY_CHARS + 1)} | rota |", f"has a question of {MAX_QUERY_CHARS + 1} characters"),
    ],
)
def test_an_invalid_row_is_an_error_with_file_and_line(row: str, problem: str) -> None:
    with pytest.raises(InvalidEvaluation) as caught:
        parse_expected_questions(f"# Questions\n\n{HEAD}| Fine? | rota |\n{row}\n", "questions.md")
    assert caught.value.message == f"questions.md:6: this row {problem}"
    assert "| question | page | sentence |" in caught.value.hint


def test_a_page_without_a_table_of_questions_is_an_error() -> None:
    with pytest.raises(InvalidEvaluation, match=r"questions\.md has no table of questions"):
        parse_expected_questions("# Questions\n\n- Who? rota\n", "questions.md")


@settings(max_examples=limit_examples(300))
@given(st.text(alphabet="|\\` \n-:[]()#abQuestion", max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        questions = parse_expected_questions(f"{HEAD}{text}", "q.md")
    except InvalidEvaluation:
        return
    assert all(question.text and question.page for question in questions)
