import pytest

from wikiholt.domain.search import StoredChunk
from wikiholt.text.dialect import GFM
from wikiholt.wikis.check.number_sentences import NumberSentence, are_one_series, find_conflicts, read_number_sentences

FIRES = "Fires are allowed on the allotment from {} until the end of the season."


def read(path: str, text: str) -> list[NumberSentence]:
    return read_number_sentences(path, [StoredChunk(1, 1, 0, text, (), "", 1, 1)], GFM)


def find(one: str, *others: str) -> list[tuple[str, str]]:
    changed = read("a", one)
    pages = [sentence for path, text in zip("bcd", others, strict=False) for sentence in read(path, text)]
    return [(sentence.text, other.text) for sentence, other in find_conflicts(changed, [*changed, *pages])]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("7 am", "8 am"), ("1 October", "1 November"), ("2024-10-01", "2024-11-01"), ("3.5 bar", "4 bar"), ("5GB", "6GB")],
)
def test_a_sentence_with_another_number_or_date_elsewhere_is_a_conflict(ours: str, theirs: str) -> None:
    one, other = FIRES.format(ours), FIRES.format(theirs)
    assert find(one, f"# Rules\n\n{other} More text follows after it.\n") == [(one, other)]


def test_a_nearly_equal_sentence_counts_too() -> None:
    one = FIRES.format("1 October")
    assert find(one, FIRES.format("1 November").replace("season", "year")) != []


@pytest.mark.parametrize(
    "others",
    [
        [FIRES.format("1 October")],
        ["Fires were once allowed on other sites from 1 November, as the old rules said."],
        [FIRES.format("1 November"), FIRES.format("1 December")],
        [f"# {FIRES.format('1 November')}"],
        [f"```\n{FIRES.format('1 November')}\n```"],
        [f"| {FIRES.format('1 November')} | x |"],
        [FIRES.format("1 or 2 November")],
    ],
    ids=["same", "other words", "template", "heading", "code", "table", "more numbers"],
)
def test_what_is_no_conflict(others: list[str]) -> None:
    assert find(FIRES.format("1 October"), *others) == []


def test_names_with_digits_and_short_sentences_have_no_numbers() -> None:
    assert read("a", "The k8s cluster uses the ipv6 protocol and the v2 format of all messages.") == []
    assert read("a", "Step 1 begins now.") == []


def test_two_sentences_of_one_page_are_no_conflict() -> None:
    assert find(f"{FIRES.format('1 October')} {FIRES.format('1 November')}") == []


def test_may_is_a_month_only_as_a_name() -> None:
    assert [each.numbers for each in read("a", "You may light a fire here from 1 May until the autumn.")] == [
        ("1", "May")
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("notes/2024-05-01", "notes/2024-05-08", True),
        ("release 1.9", "release 1.10", True),
        ("notes/a", "notes/a", True),
        ("notes/2024", "minutes/2024", False),
        ("fires", "faq", False),
    ],
)
def test_pages_of_a_series_differ_only_by_numbers(one: str, other: str, expected: bool) -> None:
    assert are_one_series(one, other) is expected


def test_pages_of_a_series_have_values_of_their_own() -> None:
    one, other = read("notes/2024-05", FIRES.format("1 May")), read("notes/2024-06", FIRES.format("1 June"))
    assert list(find_conflicts(one, [*one, *other])) == []
