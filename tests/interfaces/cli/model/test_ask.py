"""`wikiholt ask` with the real model, on the example wikis."""

import json
import shutil
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from wikiholt.interfaces.cli import demo_command
from wikiholt.interfaces.cli.main import main

PAGES = Path(demo_command.__file__).parent / "demo_wikis" / "allotment"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ask")
    shutil.copytree(PAGES, place / "allotment")
    rules = place / "allotment" / "_synonyms.md"
    rules.write_text("- VZQ = bonfire\n")
    data = ["--data", str(place / "data")]
    assert main([*data, "add", "allotment", str(place / "allotment")]) == 0
    assert main([*data, "sync", "allotment", "--quiet"]) == 0
    return place / "data"


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(data, capsys)


@pytest.mark.parametrize("question", ["when may I light a bonfire", "when may I light a VZQ"])
def test_a_question_gets_the_sentence_that_answers_it_with_its_line(run: CommandRunner, question: str) -> None:
    code, out, _ = run("ask", question, "-w", "allotment", "--json")
    document = json.loads(out)
    assert (code, document["answered"]) == (0, True)
    sentence = next(each for each in document["sentences"] if "1 November" in each["text"])
    assert sentence["file"] == "Rules/Bonfires.md"
    line = (PAGES / sentence["file"]).read_text().split("\n")[sentence["line"] - 1]
    assert "1 November" in line
    assert sum(len(each["text"].split()) for each in document["sentences"]) <= 80


def test_a_question_about_something_else_gets_no_sentence(run: CommandRunner) -> None:
    code, out, _ = run("ask", "how many calories does pizza have", "-w", "allotment", "--json")
    document = json.loads(out)
    assert (code, document["answered"], document["sentences"]) == (1, False, [])
    assert document["closest"]


def test_a_follow_up_is_about_the_question_before(run: CommandRunner) -> None:
    previous = "when may I light a bonfire"
    _, out, _ = run("ask", "and what may I burn?", "--after", previous, "-w", "allotment", "--json")
    assert "Rules/Bonfires.md" in {hit["file"] for hit in json.loads(out)["closest"]}


def test_a_sentence_of_another_section_names_it(run: CommandRunner) -> None:
    """What the page forbids would otherwise read as what it allows."""
    _, out, _ = run("ask", "what may go on the compost heap", "-w", "allotment")
    places = [line for line in out.splitlines() if "Composting.md:" in line]
    assert places[-1].endswith(" › Not on the heap")
    assert "›" not in places[0], "the page's own name is no section"
